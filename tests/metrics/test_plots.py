import math
import sys

import pytest
import torch
from matplotlib.figure import Figure

from tests.golden import assert_golden
from tests.metrics.cases import labelled_batches, ood_batches
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap
from torch_boc.functional import bag_of_coins


def test_draws_into_given_axes_without_pyplot():
    sys.modules.pop("matplotlib.pyplot", None)
    metric = BoCMetric()
    metric.update(*labelled_batches(300)[0])
    for kind in ("gap", "coherence", "reliability"):
        own = Figure().subplots()
        figure, axis = metric.plot(ax=own, kind=kind)
        assert axis is own
        assert figure is own.figure
        assert axis.has_data()
    with pytest.raises(ValueError, match="gap, coherence, reliability, all"):
        metric.plot(kind="pie")
    with pytest.raises(ValueError, match="expected 3 axes"):
        metric.plot(ax=Figure().subplots())
    assert "matplotlib.pyplot" not in sys.modules


def confident(samples):
    """Confidences from 1 - 1e-9 to 1, nearly all right."""
    margin = torch.linspace(22, 30, samples, dtype=torch.float64).unsqueeze(1)
    return torch.cat([margin, torch.zeros(samples, 9).double()], 1), (torch.arange(samples) % 50 == 0).long()


CASES = {
    "confident": confident(300),
    "tiny": labelled_batches(20)[0],
    "one": labelled_batches(1)[0],
    "many classes": labelled_batches(400, classes=1000)[0],
    "flat": (0.01 * labelled_batches(300)[0][0], labelled_batches(300)[0][1]),
    "two classes": labelled_batches(300, classes=2)[0],
}


@pytest.mark.parametrize("case", CASES)
def test_axes_fit_the_data_and_clip_no_point(case):
    metric = BoCMetric()
    metric.update(*CASES[case])
    figure, axes = metric.plot()
    figure.canvas.draw()
    for axis in axes[1:]:
        points = [line for line in axis.lines if line.get_marker() in ("o", "s")]
        inner = axis.get_window_extent()
        for line in points:
            size = line.get_markersize() / 2 * figure.dpi / 72
            for x, y in axis.transData.transform(line.get_xydata()) if len(line.get_xdata()) else ():
                assert inner.x0 + size <= x <= inner.x1 - size
                assert inner.y0 + size <= y <= inner.y1 - size
    low, high = axes[0].get_xlim()
    gaps = bag_of_coins(CASES[case][0]).gap
    if (seen := gaps[gaps >= 1e-12]).numel():
        assert seen.min() / 13 < low < seen.min()
        assert seen.max() < high < 13 * seen.max()


def test_reliability_shows_only_bins_with_enough_samples():
    """Nine samples of confidence about 0.57, ten of about 0.82."""
    top = torch.cat([torch.full((9,), 1.0), torch.full((10,), 2.2)]).unsqueeze(1)
    metric = BoCMetric()
    metric.update(torch.cat([top, torch.zeros(19, 2)], 1), torch.zeros(19, dtype=torch.long))
    _, axis = metric.plot(kind="reliability")
    (line,) = (line for line in axis.lines if line.get_label() == "confidence")
    assert line.get_xdata() == pytest.approx([math.exp(2.2) / (math.exp(2.2) + 2)])
    assert axis.get_legend().get_title().get_text() == "bins of 10 samples or more"
    few = BoCMetric()
    few.update(*labelled_batches(9)[0])
    _, axis = few.plot(kind="reliability")
    assert [text.get_text() for text in axis.texts] == ["no bin has 10 samples"]


def test_course_with_keys_and_prefix():
    for options, labels in (
        ({"prefix": "val_", "keys": ("nll", "gap")}, ["val_gap"]),
        ({"keys": ("nll", "accuracy")}, ["nll", "accuracy"]),
    ):
        metric = BoCMetric(**options)
        results = [metric(*batch) for batch in labelled_batches(20, 20)]
        assert [line.get_label() for line in metric.plot(results)[1].lines] == labels


@pytest.mark.parametrize("exact_up_to", [None, 0])
@pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
def test_separation(exact_up_to):
    metric = BoCSeparation(("msp", "gap"), exact_up_to=exact_up_to)
    metric.update(*ood_batches(300)[0])
    figure, (left, right) = metric.plot()
    figure.canvas.draw()
    assert left.get_xlabel().startswith("gap")
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels[0] == f"msp {metric.compute()['msp_auroc']:.3f}"
    assert right.lines[0].get_xydata()[[0, -1]].flatten().tolist() == pytest.approx([0, 0, 1, 1])
    assert metric.plot(score="msp")[1][0].get_xlabel().startswith("msp")
    with pytest.raises(ValueError, match="msp, gap"):
        metric.plot(score="energy")
    assert metric.plot([metric.compute()] * 2)[1].lines


def test_the_dots_are_the_means_of_bins():
    logits = torch.tensor([[2.0, 1.0, 0.0]]).repeat(3, 1)
    metric = BoCMetric()
    metric.update(logits)
    (dots,) = (line for line in metric.plot(kind="coherence")[1].lines if line.get_marker() == "o")
    coins = bag_of_coins(logits[0].double())
    assert dots.get_xydata().tolist() == [pytest.approx([float(coins.confidence), float(coins.gap)], rel=1e-6)]


def described(figure):
    """What a figure shows, in lines: of each axis its words, its ends, and some points of what is drawn in it."""

    def points(values):
        some = values[:: len(values) // 12 + 1]
        return " ".join(",".join(f"{x:.3g}" for x in point) for point in some)

    lines = [f"figure {points([figure.get_size_inches()])}"]
    for axis in figure.axes:
        lines += [f"axis {axis.get_title()!r} {axis.get_xlabel()!r} {axis.get_ylabel()!r} {axis.get_xscale()}"]
        ends, grid = points([axis.get_xlim(), axis.get_ylim()]), axis.xaxis.get_gridlines()[0]
        lines += [f"  ends {ends} grid {grid.get_visible()} {grid.get_alpha()}"]
        for line in axis.lines:
            style = f"{line.get_color()} {line.get_linestyle()!r} {line.get_marker()} {line.get_markersize():g}"
            lines += [f"  line {line.get_label()} {style} {line.get_linewidth():g}: {points(line.get_xydata())}"]
        for band in axis.collections:
            corners = band.get_paths()[0].vertices
            lines += [f"  band {band.get_label()} {points(band.get_facecolor())}: {points(corners)}"]
        for patch in axis.patches:
            corners = patch.get_patch_transform().transform(patch.get_path().vertices)
            if corners[:, 1].any():  # no empty bars
                lines += [f"  patch {patch.get_label()} {points([patch.get_facecolor()])}: {points(corners)}"]
        lines += [f"  text {text.get_text()!r} {points([text.get_position()])}" for text in axis.texts]
        if (legend := axis.get_legend()) is not None:
            names = [text.get_text() for text in legend.get_texts()]
            lines += [f"  legend {legend.get_title().get_text()!r} {legend._loc} {names}"]
    return "\n".join(lines) + "\n"


@pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
def test_golden_plots():
    drawn = []
    for case in ("many classes", "confident", "tiny"):
        metric = BoCMetric()
        metric.update(*CASES[case])
        drawn.append(metric.plot()[0])
    drawn += [BoCMetric().plot()[0], CoherenceGap().plot([torch.tensor(0.1), torch.tensor(0.2)])[0]]
    drawn += [CoherenceGap().plot([torch.tensor([0.1, 0.3]), torch.tensor([0.2, 0.5])])[0]]
    for exact_up_to in (None, 0):
        metric = BoCSeparation(("msp", "gap"), exact_up_to=exact_up_to)
        metric.update(*ood_batches(30)[0])
        drawn.append(metric.plot()[0])
    assert_golden(__file__, {"plots.txt": "".join(map(described, drawn))})
