import sys

import pytest
import torch
from matplotlib.figure import Figure

from tests.metrics.cases import labelled_batches, ood_batches
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap


@pytest.fixture
def metric():
    metric = BoCMetric()
    metric.update(*labelled_batches(300)[0])
    return metric


def test_draws_three_panels_without_pyplot(metric):
    sys.modules.pop("matplotlib.pyplot", None)
    figure, axes = metric.plot()
    figure.canvas.draw()
    assert [axis.get_title() for axis in axes] == ["Coherence gap", "Gap against confidence", "Reliability"]
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize("kind", ["gap", "coherence", "reliability"])
def test_draws_into_given_axes(metric, kind):
    own = Figure().subplots()
    figure, axis = metric.plot(ax=own, kind=kind)
    assert axis is own
    assert figure is own.figure
    assert axis.has_data()


def test_points_of_the_coherence_plot_lie_in_the_band(metric):
    _, axis = metric.plot(kind="coherence")
    (lower,) = (line for line in axis.lines if line.get_label() == "forced by confidence")
    (points,) = (line for line in axis.lines if line.get_label() == "mean of a bin")
    slack = 0.02  # a mean over a bin is a little below a concave band
    x, y = map(torch.as_tensor, points.get_data())
    place = torch.searchsorted(torch.as_tensor(lower.get_xdata()), x).clamp(max=299)
    assert (y >= torch.as_tensor(lower.get_ydata())[place] - slack).all()


def test_wrong_plots_are_refused(metric):
    with pytest.raises(ValueError, match="gap, coherence, reliability, all"):
        metric.plot(kind="pie")
    with pytest.raises(ValueError, match="expected 3 axes"):
        metric.plot(ax=Figure().subplots())


def test_without_targets_it_says_so():
    metric = BoCMetric()
    metric.update(torch.randn(20, 4))
    _, axis = metric.plot(kind="reliability")
    assert [text.get_text() for text in axis.texts] == ["no targets"]


def test_an_empty_metric_can_be_drawn():
    figure, _ = BoCMetric(num_classes=4).plot()
    figure.canvas.draw()


def test_course_of_several_results(metric):
    _, axis = metric.plot([metric.compute(), metric.compute()])
    assert {line.get_label() for line in axis.lines} == {"gap", "forced_gap", "free_gap"}
    gap = CoherenceGap(7, average="none")
    gap.update(labelled_batches(200)[0][0])
    _, axis = gap.plot([gap.compute(), gap.compute()])
    assert len(axis.lines) == 7
    assert CoherenceGap(7).plot(torch.tensor(0.1))[1].lines


@pytest.mark.parametrize("thresholds", [None, 128])
def test_separation(thresholds):
    metric = BoCSeparation(("msp", "gap"), thresholds)
    metric.update(*ood_batches(300)[0])
    figure, (left, right) = metric.plot()
    figure.canvas.draw()
    assert left.get_xlabel().startswith("gap")
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels[0] == f"msp {metric.compute()['msp_auroc']:.3f}"
    curve = right.lines[0].get_xydata()
    assert curve[0].tolist() == [0, 0]
    assert curve[-1].tolist() == pytest.approx([1, 1])
    assert metric.plot(score="msp")[1][0].get_xlabel().startswith("msp")
    with pytest.raises(ValueError, match="msp, gap"):
        metric.plot(score="energy")
    assert metric.plot([metric.compute()] * 2)[1].lines
