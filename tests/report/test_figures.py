"""The figures: what is drawn, how it is labelled, and what is left out."""

import sys

import pytest
from matplotlib.colors import to_rgba

from tests.report.cases import LEAK, make_results
from torch_boc.plots import CYCLE
from torch_boc.report.axes import figure_text
from torch_boc.report.calibration import reliability_figure
from torch_boc.report.coherence import gap_figure, trial_figure
from torch_boc.report.detection import roc_figure, score_figure
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


def test_without_targets_there_is_no_reliability_and_no_ece():
    made = draw_figures(make_results((), targets=False))
    assert "reliability" not in made
    assert [axis.get_ylabel() for axis in made["trials"].axes] == ["AUROC of s_BoC (upside down)"]
    assert list(draw_figures(make_results((), (), targets=False))) == ["coherence", "gaps"]


def test_pyplot_is_not_needed(monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # torchmetrics imports it
    for figure in draw_figures(make_results()).values():
        figure.draw_without_rendering()
    assert "matplotlib.pyplot" not in sys.modules


def test_axes_are_labelled_and_text_is_legible(drawn):
    for name, figure in drawn.items():
        assert figure.get_layout_engine() is not None
        for axis in figure.axes:
            sizes = [label.get_size() for label in (*axis.get_xticklabels(), *axis.get_yticklabels())]
            sizes += [text.get_size() for text in (axis.get_legend().get_texts() if axis.get_legend() else [])]
            assert min(sizes) * 6.4 / max(6.4, figure.get_size_inches()[0]) >= (8 if len(figure.axes) == 1 else 5.8)
            if name == "scores":
                assert axis.get_title()
            else:
                assert axis.get_xlabel()
                assert axis.get_ylabel()
    assert drawn["scores"].get_supxlabel() == "score (higher = more in-distribution)"
    assert drawn["scores"].get_supylabel() == "share of samples"


def test_no_text_overlaps(drawn):
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        texts = [axis.title for axis in figure.axes] + [axis.xaxis.label for axis in figure.axes]
        texts += [axis.yaxis.label for axis in figure.axes] + [
            label for axis in figure.axes for label in tick_labels(axis)
        ]
        boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
        pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
        assert not any(a.shrunk(0.9, 0.9).overlaps(b.shrunk(0.9, 0.9)) for a, b in pairs), name


def tick_labels(axis):
    """Tick labels that lie within the limits of their axis; matplotlib keeps others, which it does not draw."""
    for ticks, limits in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
        for place, label in zip(ticks.get_ticklocs(), ticks.get_ticklabels(), strict=True):
            if limits[0] <= place <= limits[1]:
                yield label


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


def test_bins_of_a_few_samples_are_not_drawn():
    results = make_results()
    table = results.reliability
    table.loc[(table["method"] == "MSP") & (table["bin_low"] < 0.5), "samples"] = 9
    (axis,) = reliability_figure(results).axes
    assert line(axis, "MSP").get_xdata().min() > 0.5
    table["samples"] = 9
    assert reliability_figure(results) is None


def test_one_split_needs_no_name():
    (axis,) = reliability_figure(make_results()).axes
    assert legend(axis) == ["MSP", "temperature", "BoC"]


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


def test_roc_has_a_panel_for_each_set_up_to_six():
    axes = roc_figure(make_results((), MANY)).axes
    assert [axis.get_title() for axis in axes][:3] == [
        "test against svhn",
        "test against cifar100",
        "test against <b>x</b>",
    ]
    assert len(axes) == 6


def test_gaps(drawn):
    (axis,) = drawn["gaps"].axes
    assert legend(axis) == ["test", "svhn"]
    outlines = [patch for patch in axis.patches if patch.get_label() in ("test", "svhn")]
    table = make_results().histograms.query("score == 'gap'")
    for patch, name in zip(outlines, ("test", "svhn"), strict=True):
        rows = table[table["set"] == name]
        assert patch.get_data().values.tolist() == rows["share"].tolist()


def test_histograms_are_logarithmic_where_one_bin_has_most():
    results = make_results()
    table = results.histograms
    table.loc[(table["score"] == "gap") & (table["bin_low"] == 0) & (table["set"] == "test"), "share"] = 0.9
    assert gap_figure(results).axes[0].get_yscale() == "log"
    assert score_figure(results).axes[0].get_yscale() == "linear"


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


def test_trials_of_several_sets_share_a_colour():
    _, axis = trial_figure(make_results((), ("a", "b"))).axes
    assert legend(axis) == ["a", "b", "dashed: Monte Carlo"]
    assert [each.get_color() for each in axis.lines[:4]] == [CYCLE[0], CYCLE[0], CYCLE[1], CYCLE[1]]


def test_small_histograms_are_six_at_most_and_include_own_scores(drawn):
    assert [axis.get_title() for axis in drawn["scores"].axes] == [
        "MSP",
        "energy",
        "log p*",
        "q̄",
        "Mahalanobis",
        "ODIN",
    ]
    assert [text.get_text() for text in drawn["scores"].legends[0].get_texts()] == ["test", "svhn"]


def test_many_sets_are_outlined_without_filling():
    (axis,) = gap_figure(make_results((), MANY)).axes
    assert not any(patch.get_fill() for patch in axis.patches)
    assert len(axis.patches) == 7


def test_names_are_printed_as_they_are():
    assert figure_text("$a$") == r"\$a\$"
    assert figure_text("_x").strip() == "_x"
    assert not figure_text("_x").startswith("_")
    assert len(figure_text("y" * 99)) == 32


def test_colours_are_those_safe_for_all(drawn):
    known = {to_rgba(colour) for colour in (*CYCLE, "#CC79A7")}
    used = {to_rgba(each.get_color()) for figure in drawn.values() for axis in figure.axes for each in axis.lines}
    assert used <= known


def test_empty_tables_leave_figures_out():
    results = make_results()
    empty = {
        name: getattr(results, name).iloc[:0]
        for name in ("reliability", "roc", "coherence", "trials", "histograms", "stream")
    }
    assert draw_figures(type(results)(**{**vars(results), **empty})) == {}
