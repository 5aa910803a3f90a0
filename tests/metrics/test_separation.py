import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from tests.dispatch import NoHostSync
from tests.metrics.cases import joined, ood_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import BoCSeparation
from torch_boc.functional import auroc, compute_scores, fpr_at_tpr, scores
from torch_boc.functional.separation import bin_centres, score_bin

ALL = tuple(scores)
values = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=20).map(torch.tensor)


def sklearn_separation(known: np.ndarray, unknown: np.ndarray) -> tuple[float, float]:
    truth = np.r_[np.ones(len(known)), np.zeros(len(unknown))]
    score = np.r_[known, unknown]
    false, true, _ = roc_curve(truth, score, drop_intermediate=False)
    return roc_auc_score(truth, score), false[np.argmax(true >= 0.95)]


@given(values, values)
def test_agrees_with_sklearn(known, unknown):
    result = auroc(known, unknown).item(), fpr_at_tpr(known, unknown).item()
    assert result == pytest.approx(sklearn_separation(known.numpy(), unknown.numpy()), abs=1e-12)


def test_class_is_function_and_sklearn_for_every_score():
    batches = ood_batches(120, 40, 77)
    logits, ood = joined(batches)
    expected = {}
    for name, score in compute_scores(logits, ALL).items():
        pair = sklearn_separation(score[~ood].numpy(), score[ood].numpy())
        expected |= {
            f"{name}_{key}": torch.tensor(x, dtype=torch.float64)
            for key, x in zip(("auroc", "fpr95"), pair, strict=True)
        }
    check_metric(lambda: BoCSeparation(ALL), batches, expected)


def test_binned_is_the_same_however_the_data_come():
    batches = ood_batches(120, 40, 77)
    metric = BoCSeparation(ALL, thresholds=256)
    metric.update(*joined(batches))
    check_metric(lambda: BoCSeparation(ALL, thresholds=256), batches, metric.compute(), atol=0)


@pytest.mark.parametrize("bins", [4, 64, 1024, 16384])
def test_binned_says_its_error(bins):
    logits, ood = joined(ood_batches(3000))
    exact, binned = BoCSeparation(ALL)(logits, ood), BoCSeparation(ALL, thresholds=bins)(logits, ood)
    for name in ALL:
        off = (binned[f"{name}_auroc"] - exact[f"{name}_auroc"]).abs()
        assert off <= binned[f"{name}_auroc_error"] + 1e-12
        excess = binned[f"{name}_fpr95"] - exact[f"{name}_fpr95"]
        assert -1e-12 <= excess <= binned[f"{name}_fpr95_error"] + 1e-12


def test_error_falls_with_the_number_of_bins():
    logits, ood = joined(ood_batches(3000))
    names = [name for name in ALL if name != "structural_score"]  # which has many ties, binned or not
    coarse, fine = (BoCSeparation(names, thresholds=bins)(logits, ood) for bins in (256, 8192))
    for name in names:
        assert fine[f"{name}_auroc_error"] < 0.2 * coarse[f"{name}_auroc_error"]


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=50), st.sampled_from([0.0, 1.0]))
def test_bins_keep_the_order(numbers, ceiling):
    ordered = torch.tensor(sorted(numbers), dtype=torch.float64)
    places = score_bin(ordered, 128, ceiling)
    assert (places.diff() >= 0).all()
    assert places.min() >= 0
    assert places.max() < 128


def test_centres_lie_in_their_bins():
    for ceiling in (0.0, 1.0):
        centres = bin_centres(64, ceiling)
        expected = torch.arange(64)
        inner = (centres - ceiling).abs() > 1e-12  # 1 - 1e-15 is hardly a number
        assert_same(score_bin(centres, 64, ceiling)[inner], expected[inner])


def test_the_papers_score_ranks_backwards_and_the_others_do_not():
    result = BoCSeparation(ALL)(*joined(ood_batches(2000)))
    assert result["structural_score_auroc"] < 0.3
    for name in ("msp", "entropy", "dominance", "gap", "p_value", "logit_gap"):
        assert result[f"{name}_auroc"] > 0.7


def test_one_flag_for_a_whole_batch():
    logits, ood = joined(ood_batches(100))
    by_flag = BoCSeparation()
    by_flag.update(logits[~ood], False)
    by_flag.update(logits[ood], torch.tensor(True))
    assert_same(by_flag.compute(), BoCSeparation()(logits, ood))


def test_pixels_are_samples():
    logits, ood = torch.randn(3, 5, 4, 2, dtype=torch.float64), torch.rand(3, 4, 2) > 0.5
    flat = logits.movedim(1, -1).reshape(-1, 5), ood.reshape(-1)
    assert_same(BoCSeparation()(logits, ood), BoCSeparation()(*flat))


@pytest.mark.parametrize("thresholds", [None, 64])
@pytest.mark.parametrize("ood", [True, False])
def test_one_kind_alone_is_nan(thresholds, ood):
    metric = BoCSeparation(thresholds=thresholds)
    metric.update(torch.randn(5, 3), ood)
    result = metric.compute()
    assert all(value.isnan() for key, value in result.items() if not key.endswith("error"))


@pytest.mark.parametrize("thresholds", [None, 64])
def test_update_reads_nothing_back(thresholds):
    metric = BoCSeparation(ALL, thresholds, validate_args=False)
    with NoHostSync():
        metric.update(torch.randn(6, 4), True)
        metric.update(torch.randn(6, 4), torch.arange(6) > 2)


def test_exact_mode_keeps_one_float_a_score_and_binned_mode_does_not_grow():
    exact, binned = BoCSeparation(("msp", "gap")), BoCSeparation(("msp", "gap"), thresholds=64)
    for metric in (exact, binned):
        for _ in range(3):
            metric.update(torch.randn(100, 50), False)
    assert sum(part.numel() for part in getattr(exact, exact._table)) == 300 * 3  # two scores and the flag
    assert binned.histograms().shape == (2, 2, 64)
    with pytest.raises(ValueError, match="thresholds=None"):
        binned.samples()
