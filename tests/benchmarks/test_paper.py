"""The committed page against the logits of the zoo, the paper's numbers against the paper, and pages of other runs."""

import re
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.paper import __main__ as command
from benchmarks.paper import figures
from benchmarks.paper.claims import CLAIMS, agreement, claim_table
from benchmarks.paper.curves import convert, ood_of, read_curves
from benchmarks.paper.experiments import FOLDER, available, compute, published
from benchmarks.paper.page import ANCHOR, BEYOND, page
from benchmarks.paper.sentences import answer, course, verdict
from benchmarks.paper.tables import NOT_RUN, band_points, calibration_table, inside, ood_table
from tests.data.cases import labelled, unfamiliar
from torch_boc.evaluation import LogitSet
from torch_boc.plots import image
from torch_boc.zoo.entry import Entry

PAPER = Path(__file__).parents[3] / "shared" / "paper.tex"
LABELS = {"ViT": "vit", "ResNet": "resnet", "RoBERTa": "nlp"}
NUMBER = re.compile(r"[+−]?\d[\d,]*(?:\.\d+)?(?:e[−-]\d+)?")


def numbers_in(text):
    return [float(x.replace(",", "").replace("−", "-")) for x in NUMBER.findall(text)]


def assert_same_page(ours, theirs):
    """The same words, and the same numbers up to one in the last of four decimals."""
    for here, there in zip(ours.splitlines(), theirs.splitlines(), strict=True):
        assert NUMBER.sub("#", here) == NUMBER.sub("#", there)
        assert numbers_in(here) == pytest.approx(numbers_in(there), abs=1.01e-4, rel=1e-6)


def entry(name, classes=10, *, splits=("training samples",), columns=("odin", "mahalanobis"), samples=400):
    """A small entry with the sets that real ones have."""

    def data(logits, target, called):
        return LogitSet(logits, target, {column: logits.amax(1) for column in columns}, called)

    sets = {split: data(*labelled(samples, classes, seed=i + 5), split) for i, split in enumerate(splits)}
    test, ood = data(*labelled(samples, classes), "test"), data(unfamiliar(samples, classes), None, "strange")
    card = {"name": name, "model": f"a | small {name}", "checkpoint": "none", "data": "made up"}
    return Entry(name, card, test, {"strange": ood}, sets)


@pytest.fixture(scope="module")
def everything():
    """All three experiments run, on small made-up entries: RoBERTa has a held-out split and no ODIN."""
    entries = [
        entry("vit-cifar10"),
        entry("resnet20-cifar10"),
        entry("roberta-agnews", 4, splits=("training samples", "validation"), columns=("mahalanobis",)),
    ]
    return [(paper, compute(x, replicates=20)) for paper, x in zip(published(), entries, strict=True)]


@pytest.fixture(scope="module")
def nothing():
    return [(paper, None) for paper in published()]


@pytest.fixture
def metrics(tmp_path):
    """What Lightning's CSVLogger writes: rows of steps, and a row at the end of each epoch."""
    path = tmp_path / "metrics.csv"
    keys = ("accuracy", "forced_gap", "gap", "svhn/forced_gap", "svhn/gap", "svhn/gap_auroc", "svhn/msp_auroc")
    lines = [",".join(["epoch", "step", "train/loss", *(f"val/boc/{key}" for key in keys)])]
    for epoch in range(3):
        lines.append(f"{epoch},{epoch * 10 + 4},0.5,,,,,,,")
        values = [0.5 + epoch / 10, 0.18 - epoch / 50, 0.2 - epoch / 50, 0.3, 0.4, 0.7, 0.71]
        lines.append(",".join([str(epoch), str(epoch * 10 + 9), "", *map(str, values)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_committed_page_is_that_of_the_zoo():
    """If this fails, the page is out of date: run `python -m benchmarks.paper`."""
    papers = published()
    found = {name: compute(x) for name, x in available(papers).items()}
    curves = read_curves(names=[paper.entry for paper in papers])
    assert set(curves) < set(found)
    text = page([(paper, found.get(paper.entry)) for paper in papers], curves)
    assert_same_page(text, (FOLDER / "README.md").read_text(encoding="utf-8"))


def test_comparison_of_pages_sees_a_changed_digit_and_word():
    assert_same_page("a 0.1234 (1,000)\n", "a 0.1235 (1,000)\n")
    for other in ("a 0.1237 (1,000)\n", "a 0.1234 (1,001)\n", "b 0.1234 (1,000)\n", "a 0.1234 (1,000)\nb\n"):
        with pytest.raises((AssertionError, ValueError)):
            assert_same_page("a 0.1234 (1,000)\n", other)


def test_committed_page_has_its_figures():
    links = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert {"comparison.png", "beyond.png"} <= set(links)
    for link in links:
        assert (FOLDER / link).read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not PAPER.exists(), reason="needs the paper's source")
@pytest.mark.parametrize("paper", published(), ids=lambda x: x.name)
def test_published_numbers_are_those_of_the_paper(paper):
    text = PAPER.read_text(encoding="utf-8")
    for key, kind in (("calibration", "calib"), ("ood", "ood")):
        table = text[text.index(f"\\label{{tab:{LABELS[paper.name]}_{kind}}}") :]
        rows = table[table.index("\\midrule") : table.index("\\bottomrule")].splitlines()[1:]
        expected = [[float(x) for x in row.rstrip("\\ ").split("&")[1:]] for row in rows if "&" in row]
        assert list(paper.content[key].values()) == expected
    for checkpoint in paper.content["setup"]["checkpoint"].split(" of "):
        assert checkpoint in text.replace("\\-", "-").replace("\\_", "_").replace("-\\\\", "-")


def test_page_of_everything(everything, metrics, tmp_path):
    convert([metrics], tmp_path / "training" / "vit-cifar10.csv")
    text = page(everything, read_curves(tmp_path / "training"))
    assert NOT_RUN not in text
    assert "training.png" in text
    assert "Of 15 statements" in text
    assert text.count("mean p̂") == 3
    assert "a \\| small vit-cifar10" in text
    assert not re.search(r"\bnan\b|None", text)
    assert f"(#{ANCHOR})" in text
    assert re.sub(r"[^a-z ]", "", BEYOND.lower()).replace(" ", "-") == ANCHOR


def test_page_of_nothing(nothing):
    text = page(nothing, {})
    assert "Not run yet: ViT, ResNet and RoBERTa." in text
    assert "No run has been recorded yet." in text
    assert "beyond.png" not in text
    assert all(f"| {value:.4f} |" in text for paper, _ in nothing for value in paper.content["ood"]["msp"])


def test_every_row_of_a_table_has_every_column(everything, nothing):
    for experiments in (everything, nothing):
        lines = page(experiments, {}).splitlines()
        tables = 0
        for before, line in pairwise(lines):
            if before.startswith("|") and line.startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", before)) == len(re.findall(r"(?<!\\)\|", line))
                tables += line.startswith("| :--")
        assert tables >= 17


def test_held_out_columns(everything):
    """With a held-out split the whole test set is judged; without one, half of it."""
    (vit, ours), _, (roberta, theirs) = everything
    assert (ours.halved, ours.held_out_split) == (True, "held-out half")
    assert (theirs.halved, theirs.held_out_split) == (False, "validation")
    assert ours.held_out.settings["samples"]["id"] == 200
    msp = calibration_table(vit, ours).rows[0]
    assert msp[2] != msp[3]
    msp, temperature = calibration_table(roberta, theirs).rows[:2]
    assert msp[3].text == "–"
    fits = theirs.results.calibration.set_index(["method", "split"])["ece"]
    assert float(temperature[2].text) == pytest.approx(fits["temperature", "training samples"], abs=5.1e-5)
    assert float(temperature[3].text) == pytest.approx(fits["temperature", "validation"], abs=5.1e-5)


def test_scores_of_the_paper_come_first(everything):
    for paper, ours in everything:
        rows = [row[0].text for row in ood_table(paper, ours).rows]
        assert rows[:2] == ["MSP", "energy"]
        assert ("ODIN" in rows) == (paper.name != "RoBERTa")
        assert rows[-1] == "logit gap"


def test_claims_by_the_numbers_of_the_paper():
    holds = {paper.name: [claim.holds(paper.numbers) for claim in CLAIMS] for paper in published()}
    assert holds["ResNet"] == holds["RoBERTa"] == [True] * 5
    assert holds["ViT"] == [True, True, True, False, False]


def test_agreement_counts_what_the_tables_show(everything):
    shown = [row[3].text for paper, ours in everything for row in claim_table(paper, ours).rows]
    assert set(shown) <= {"yes", "no"}
    assert agreement(everything) == (shown.count("yes"), 15)


def test_every_point_of_the_paper_lies_in_the_band():
    points = band_points(published())
    assert len(points) == 4
    assert all(inside(*point[2:]) for point in points)
    assert not inside(0.45, *points[0][3:])
    (roberta,) = (point for point in points if point[0].startswith("RoBERTa"))
    assert roberta[3:] == pytest.approx((1 / 4, 1 / 3), abs=1e-12)


def beyond_rows(within, gain):
    """A table of `beyond_confidence` with given intervals (low, value, high)."""
    rows = [("strata", "concentration", within, (0, 0, 0)), ("model", "concentration", (0.8, 0.85, 0.9), gain)]
    rows += [("model", x, (0.7, y, 0.9), (0, 0, 0)) for x, y in (("confidence", 0.81), ("confidence_spline", 0.82))]
    names = ("_low", "", "_high")
    return pd.DataFrame(
        {"how": how, "what": what}
        | {f"auroc{n}": x for n, x in zip(names, auroc, strict=True)}
        | {f"versus_confidence{n}": x for n, x in zip(names, versus, strict=True)}
        for how, what, auroc, versus in rows
    )


EVEN, SAME, NONE = (0.4, 0.45, 0.48), (0.48, 0.5, 0.52), (float("nan"),) * 3


@pytest.mark.parametrize(
    ("within", "gain", "expected"),
    [
        (SAME, (-0.01, 0.0, 0.01), "no"),
        (SAME, (-0.03, -0.02, -0.01), "no"),
        (NONE, NONE, "no"),
        (EVEN, (-0.01, 0.0, 0.01), "a trace, of no proven use"),
        (EVEN, (0.001, 0.004, 0.007), "yes, but little"),
        (SAME, (0.01, 0.03, 0.05), "yes"),
    ],
)
def test_verdict_follows_the_numbers(within, gain, expected):
    table = beyond_rows(within, gain)
    assert verdict(table) == expected
    assert f"a against b: {expected}." in answer("a", "b", table)
    assert "where confidence alone reaches 0.8200" in answer("a", "b", table)


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (EVEN, "have the more evenly matched rivals"),
        ((0.52, 0.55, 0.6), "have the more concentrated rivals"),
        (SAME, "as concentrated in both sets"),
        (NONE, "as concentrated in both sets"),
    ],
)
def test_answer_says_which_way(within, expected):
    assert expected in answer("a", "b", beyond_rows(within, (0.01, 0.02, 0.03)))


def test_curves_keep_the_epochs(metrics, tmp_path):
    convert([metrics], tmp_path / "training" / "vit-cifar10.csv")
    (curve,) = read_curves(tmp_path / "training").values()
    assert [row["epoch"] for row in curve] == [0, 1, 2]
    assert curve[1]["val/boc/gap"] == pytest.approx(0.18)
    assert "train/loss" not in curve[0]
    assert ood_of(curve) == "svhn"
    text = course("vit", curve)
    assert "from 0.200 to 0.160, on svhn from 0.400 to 0.400; 87.5 % of the former" in text


@pytest.mark.parametrize(("nll", "said"), [((0.3, 0.28, 0.31), True), ((0.3, 0.29, 0.28), False)])
def test_course_says_where_the_likelihood_got_worse(nll, said):
    rows = zip((0.3, 0.2, 0.1), nll, strict=True)
    curve = [
        {
            "epoch": epoch,
            "val/boc/gap": gap,
            "val/boc/forced_gap": gap / 2,
            "val/boc/svhn/gap": gap,
            "val/boc/nll": value,
        }
        for epoch, (gap, value) in enumerate(rows)
    ]
    sentence = "From epoch 2 on Δ falls from 0.200 to 0.100 while the NLL rises from 0.280 to 0.310"
    assert (sentence in course("a", curve)) == said


def test_resumed_runs_are_joined(metrics, tmp_path):
    """Of an epoch that was begun twice the later row counts."""
    lines = metrics.read_text().splitlines()
    later = tmp_path / "later.csv"
    later.write_text("\n".join([lines[0], lines[6].replace("0.16", "0.11").replace("2,29", "2,31")]) + "\n")
    convert([metrics, later], tmp_path / "out.csv")
    curve = read_curves(tmp_path)["out"]
    assert [row["epoch"] for row in curve] == [0, 1, 2]
    assert curve[2]["val/boc/gap"] == pytest.approx(0.11)


def test_curves_without_gaps(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,train/loss\n0,4,0.5\n")
    with pytest.raises(ValueError, match="expected rows with val/boc/gap, got none"):
        convert([path], tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    assert read_curves(tmp_path / "absent") == {}


def test_curves_of_other_entries_are_left_out(metrics, tmp_path):
    for name in ("vit-cifar10", "minilm-clinc150"):
        convert([metrics], tmp_path / f"training/{name}.csv")
    assert list(read_curves(tmp_path / "training", names=["vit-cifar10", "absent"])) == ["vit-cifar10"]


def test_figures_show_what_there_is(everything, nothing, metrics, tmp_path):
    convert([metrics], tmp_path / "training" / "vit-cifar10.csv")
    drawn = [
        figures.comparison(everything),
        figures.comparison(nothing),
        figures.beyond([ours for _, ours in everything]),
        figures.training(read_curves(tmp_path / "training")),
    ]
    assert [len(figure.axes) for figure in drawn] == [6, 6, 2, 1]
    assert [sum(len(axis.lines) for axis in figure.axes) > 0 for figure in drawn] == [True] * 4
    assert "not run" in drawn[1].axes[0].get_title()
    for figure in drawn:
        assert image(figure, "png").startswith(b"\x89PNG")


def test_training_curves_show_both_sets_and_what_is_forced(metrics, tmp_path):
    convert([metrics], tmp_path / "training" / "vit-cifar10.csv")
    (axis,) = figures.training(read_curves(tmp_path / "training")).axes
    expected = [[0.2, 0.18, 0.16], [0.18, 0.16, 0.14], [0.4] * 3, [0.3] * 3]
    for line, values in zip(axis.lines, expected, strict=True):
        assert list(line.get_xdata()) == [1, 2, 3]
        assert list(line.get_ydata()) == pytest.approx(values)
    assert axis.get_title() == "vit-cifar10, OOD: svhn"
    assert [text.get_text() for text in axis.texts] == ["87.5 %\nforced", "75.0 %\nforced"]
    texts = [text.get_text() for text in axis.figure.legends[0].texts]
    assert texts == [
        "Δ, in-distribution",
        "Δ, out-of-distribution",
        "what confidence alone forces",
        "the rest, which is free",
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_training_curves_of_several_models(metrics, tmp_path, count):
    """Runs of any length, with and without an OOD set and a gap, two panels in a row."""
    convert([metrics], tmp_path / "training" / "a.csv")
    whole = read_curves(tmp_path / "training")["a"]
    alone = [{key: value for key, value in row.items() if "svhn" not in key} for row in whole]
    flat = [dict.fromkeys(whole[0], 0.0) | {"epoch": 0}]
    curves = dict(zip("abcd", [whole, alone, flat, whole[:2]], strict=True))
    figure = figures.training({name: curves[name] for name in "abcd"[:count]})
    assert [axis.get_title()[0] for axis in figure.axes] == list("abcd"[:count])
    assert figure.get_size_inches()[0] <= 2 * 3.5
    assert image(figure, "png").startswith(b"\x89PNG")


def test_command_writes_the_page(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "available", lambda papers: {})
    monkeypatch.setattr(command, "read_curves", lambda names: {})
    command.main()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "comparison.png"]
    assert "not run: ViT, ResNet, RoBERTa" in capsys.readouterr().out
