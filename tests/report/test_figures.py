"""The figures: what is drawn, how it is labelled, and what is left out."""

import pytest

from tests.report.cases import LEAK, make_results
from torch_boc.report.axes import figure_text
from torch_boc.report.topics import draw_figures

ALL = ["reliability", "roc", "scores", "stream", "coherence", "gaps", "trials"]
MANY = ("svhn", "cifar100", "<b>x</b>", "$a_b$", "_hidden", "six", "a name that is far too long for any legend at all")


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def line(axis, start):
    (found,) = [each for each in axis.lines if str(each.get_label()).startswith(start)]
    return found


@pytest.fixture(scope="module")
def drawn():
    return draw_figures(make_results(("held out", LEAK)))


@pytest.mark.parametrize(
    ("splits", "ood"), [((), ()), (("held out",), ("svhn",)), (("held out", LEAK), ("a", "b")), ((), MANY)]
)
def test_every_combination_is_drawn_without_a_warning(splits, ood):
    made = draw_figures(make_results(splits, ood))
    assert list(made) == [name for name in ALL if ood or name not in ("roc", "scores", "stream")]
    for figure in made.values():
        figure.draw_without_rendering()


def test_reliability(drawn):
    (axis,) = drawn["reliability"].axes
    assert not any(line.get_clip_on() for line in axis.lines[1:])  # points at an edge are whole
    assert legend(axis) == ["MSP", "temperature, held out", f"temperature, {LEAK}", "BoC"]
    assert len({each.get_color() for each in axis.lines[1:]}) == 4
    assert len(axis.collections) == 4  # the bands
    rows = make_results().reliability.query("method == 'MSP' and samples > 0")
    assert line(axis, "MSP").get_xydata().tolist() == rows[["confidence", "accuracy"]].to_numpy().tolist()
    edges = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.min() == rows["accuracy_low"].min()
    assert edges.max() == rows["accuracy_high"].max()


def test_roc(drawn):
    (axis,) = drawn["roc"].axes
    assert axis.get_title() == "test against svhn"
    assert legend(axis) == [
        "MSP 0.891",
        "energy 0.880",
        "p* 0.891",
        "s_BoC 0.109 (upside down)",
        "Mahalanobis 0.862",
        "ODIN 0.841",
    ]
    curve = make_results().roc.query("score == 'energy'")
    assert line(axis, "energy").get_xydata().tolist() == curve[["fpr", "tpr"]].to_numpy().tolist()
    assert line(axis, "p*").get_linestyle() == "--"


def test_coherence_shows_the_band_and_bins_with_samples(drawn):
    (axis,) = drawn["coherence"].axes
    assert legend(axis) == ["possible", "forced by confidence", "test", "svhn"]
    rows = make_results().coherence.query("set == 'svhn' and samples > 0")
    assert line(axis, "svhn").get_xydata().tolist() == rows[["confidence", "gap"]].to_numpy().tolist()
    assert line(axis, "test").get_markerfacecolor() != "none"
    assert line(axis, "svhn").get_markerfacecolor() == "none"


def test_trials(drawn):
    left, right = drawn["trials"].axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("ECE of BoC", "AUROC of s_BoC (upside down)")
    for axis, column in ((left, "ece"), (right, "auroc")):
        assert [label.get_text() for label in axis.get_xticklabels()] == ["20", "50", "100", "200"]
        assert axis.get_ylim()[0] == 0
        for variant, style in (("deterministic", "-"), ("Monte Carlo", "--")):
            table = make_results().trials
            values = table[table["variant"] == variant][column]
            assert line(axis, variant).get_ydata().tolist() == values.tolist()
            assert line(axis, variant).get_linestyle() == style


def test_names_are_printed_as_they_are():
    assert figure_text("$a$") == r"\$a\$"
    assert figure_text("_x").strip() == "_x"
    assert not figure_text("_x").startswith("_")
    assert len(figure_text("y" * 99)) == 32
