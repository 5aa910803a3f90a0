import pytest
import torch

from tests.metrics.cases import joined, ood_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import BoCSeparation
from torch_boc.functional import aupr, auroc, compute_scores, fpr_at_tpr, scores
from torch_boc.functional.registry import unsaturated_scores

ALL, SOME = tuple(scores), ("msp", "energy", "gap")

pytestmark = pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")


def test_class_is_function_for_every_score():
    batches = ood_batches(120, 40, 77)
    logits, ood = joined(batches)
    expected = {}
    for name, score in unsaturated_scores(logits, ALL).items():
        pair = score[~ood], score[ood]
        turned = -pair[1], -pair[0]
        expected |= {f"{name}_auroc": auroc(*pair), f"{name}_aupr_in": aupr(*pair), f"{name}_aupr_out": aupr(*turned)}
        expected |= {f"{name}_fpr95": fpr_at_tpr(*pair), f"{name}_fpr95_out": fpr_at_tpr(*turned)}
    check_metric(lambda: BoCSeparation(ALL), batches, expected)


def test_both_conventions_are_those_of_pytorch_ood():
    """There, scores rise out of distribution, OOD samples are the positive class, and their target is negative."""
    theirs = pytest.importorskip("pytorch_ood.metrics")
    logits, ood = joined(ood_batches(700, 500))
    logits[::3] = logits[::3].round()  # ties
    metric = BoCSeparation(("max_logit", "energy"))
    metric.update(logits, ood)
    values = metric.compute()
    for name, scores_ in compute_scores(logits, ["max_logit", "energy"]).items():
        reference = theirs.OODMetrics()
        reference.update(-scores_, torch.where(ood, -1, 0))
        wanted = reference.compute()
        keys = {"auroc": "AUROC", "aupr_in": "AUPR-IN", "aupr_out": "AUPR-OUT", "fpr95_out": "FPR95TPR"}
        for key, their in keys.items():
            assert values[f"{name}_{key}"].item() == pytest.approx(float(wanted[their]), abs=1e-9)
        reference = theirs.FPRAtTPR()  # with the roles exchanged it is the other convention
        reference.update(scores_, torch.where(ood, 0, -1))
        assert values[f"{name}_fpr95"].item() == pytest.approx(*reference.compute().values(), abs=1e-9)
        assert values[f"{name}_fpr95"] != values[f"{name}_fpr95_out"]


def test_binned_is_the_same_however_the_data_come():
    batches = ood_batches(120, 40, 77)
    metric = BoCSeparation(SOME, exact_up_to=0)
    metric.update(*joined(batches))
    check_metric(lambda: BoCSeparation(SOME, exact_up_to=0), batches, metric.compute(), atol=0)


@pytest.mark.parametrize("scale", [1, 1e-3, 1e-6])
def test_binned_states_its_error(scale):
    """Which is large for logits of a small scale, whose scores are alike."""
    logits, ood = joined(ood_batches(3000))
    exact, binned = (BoCSeparation(SOME, exact_up_to=most)(scale * logits, ood) for most in (None, 0))
    for name in SOME:
        for key in ("auroc", "aupr_in", "aupr_out"):
            off = (binned[f"{name}_{key}"] - exact[f"{name}_{key}"]).abs()
            assert off <= binned[f"{name}_{key}_error"] + 1e-12
        for key in ("fpr95", "fpr95_out"):
            excess = binned[f"{name}_{key}"] - exact[f"{name}_{key}"]
            assert -1e-12 <= excess <= binned[f"{name}_{key}_error"] + 1e-12
    assert (binned["msp_auroc_error"] > 0.3) == (scale < 1e-3)


@pytest.mark.parametrize("name", ALL)
def test_numbers_rank_as_the_scores(name):
    logits = joined(ood_batches(400))[0]
    number, score = unsaturated_scores(logits, [name])[name], scores[name](logits)
    torch.testing.assert_close(scores[name].value(number), score, rtol=0, atol=0)
    assert (score[number.argsort()].diff() >= 0).all()


@pytest.mark.parametrize("name", ["msp", "dominance"])
def test_sure_predictions_are_told_apart(name):
    """All these scores are rounded to 1, and were taken for ties."""
    rivals = torch.zeros(200, 2, dtype=torch.float64)
    known, unknown = (
        torch.cat([torch.linspace(*ends, 200).double()[:, None], rivals], 1) for ends in ((60, 80), (40, 65))
    )
    assert (compute_scores(torch.cat([known, unknown]), [name])[name] == 1).all()
    for options in ({}, {"exact_up_to": 0}):
        metric = BoCSeparation([name], **options)
        metric.update(known, False)
        metric.update(unknown, True)
        expected = auroc(known[:, 0], unknown[:, 0])
        torch.testing.assert_close(metric.compute()[f"{name}_auroc"], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("forward", [False, True])
def test_more_than_may_be_kept_is_binned(forward):
    """In exact mode until then; the results stay those of bins, and of all samples."""
    batches = ood_batches(40, 50, 60, 30)
    metric, binned = BoCSeparation(SOME, exact_up_to=100), BoCSeparation(SOME, exact_up_to=0)
    for number, batch in enumerate(batches):
        metric(*batch) if forward else metric.update(*batch)
        binned.update(*batch)
        assert metric.exact == (number < 2)
        assert sum(map(len, getattr(metric, metric._rows))) <= 100
    assert torch.equal(metric.histograms(), binned.histograms())
    with pytest.warns(UserWarning, match=r"_error is .* beyond 100 samples"):
        assert_same(metric.compute(), binned.compute(), atol=0)
    with pytest.raises(ValueError, match="keeps at most 100"):
        metric.ranked_samples()
    metric.reset()
    assert metric.exact


@pytest.mark.parametrize("sizes", [(90, 20), (20, 90), (90, 90), (20, 20)])
def test_merged_metrics_may_differ_in_what_they_keep(sizes):
    batches = ood_batches(*sizes)
    first, second = (BoCSeparation(("msp",), exact_up_to=50) for _ in batches)
    first.update(*batches[0])
    second.update(*batches[1])
    first.merge_state(second)
    whole = BoCSeparation(("msp",), exact_up_to=None if max(sizes) < 50 else 0)
    whole.update(*joined(batches))
    assert first.exact == whole.exact
    assert torch.equal(first.histograms(), whole.histograms())
    if first.exact:
        assert_same(first.compute(), whole.compute(), atol=0)


def test_nan_scores_and_one_kind_alone_give_nan():
    good, bad = torch.tensor([1.0, 2.0]), torch.tensor([1.0, torch.nan])
    for pair in ((good, bad), (bad, good), (good, good[:0]), (good[:0], good)):
        assert all(area(*pair).isnan() for area in (fpr_at_tpr, auroc, aupr))
    for ood in (True, False):
        metric = BoCSeparation(("msp", "gap"), exact_up_to=0)
        metric.update(torch.randn(5, 3), ood)
        assert all(value.isnan() for key, value in metric.compute().items() if not key.endswith("error"))
