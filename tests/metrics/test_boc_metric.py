import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.functional.cases import random_logits
from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import BoCMetric, kernels
from torch_boc.core.schema import Counts
from torch_boc.functional import bag_of_coins, boc_summary
from torch_boc.functional.per_sample import sample_stats
from torch_boc.functional.summary import DEFAULT_KEYS, P_VALUE_KEYS, QUANTILES, RISK_KEYS
from torch_boc.functional.tally import named_sums

LABELLED = ["accuracy", "ece", "ece_dominance", "nll", "brier_confidence", "brier_dominance"]
LABELLED += ["gap_correct", "gap_wrong"]


@pytest.mark.parametrize("options", [{}, {"trials": 20, "bins": 10, "alpha": 0.2}, {"ignore_index": 3}], ids=str)
def test_class_is_function_however_the_data_come(options):
    batches = labelled_batches(50, 8, 31)
    expected = boc_summary(*joined(batches), **options)
    check_metric(lambda: BoCMetric(**options), batches, expected)
    with kernels.use("torch"):
        check_metric(lambda: BoCMetric(**options), batches, expected)


def test_agrees_with_numpy():
    logits, target = joined(labelled_batches(400, classes=5))
    expected = reference.summary(logits.numpy(), target.numpy())
    result = boc_summary(logits, target)
    for key, value in expected.items():
        assert result[key].item() == pytest.approx(value, abs=1e-9), key


def test_chosen_keys_come_in_their_order_under_the_prefix():
    batches = labelled_batches(20, 30)
    expected = boc_summary(*joined(batches))
    metric = BoCMetric(keys=["nll", "gap", "nll"], prefix="val/boc/")
    check_metric(metric.clone, batches, {f"val/boc/{key}": expected[key] for key in ("nll", "gap")})
    metric.update(*batches[0])
    assert list(metric.compute()) == ["val/boc/nll", "val/boc/gap"]


@pytest.mark.parametrize("options", [{}, {"binary": True}, {"ignore_index": 3}], ids=str)
def test_risks_are_those_of_sorted_samples(options):
    batches = labelled_batches(150, 8, 31, classes=2 if options.get("binary") else 7)
    logits, target = joined(batches)
    order = logits.softmax(-1).amax(-1).argsort(descending=True)
    order = order[target[order] != options.get("ignore_index", -100)]
    wrong = (logits.argmax(-1) != target).double()[order]
    number = torch.arange(1, len(wrong) + 1).double()
    coverage, risk = number / len(wrong), wrong.cumsum(0) / number
    expected = {"aurc": risk.mean(), "augrc": (risk * coverage).mean()}
    for percent in (1, 2, 5):
        expected[f"coverage_at_{percent}"] = (coverage * (risk <= percent / 100)).amax()
    if options.get("binary"):
        batches = [(rows[:, 1] - rows[:, 0], labels) for rows, labels in batches]
    keys = [key for key in RISK_KEYS if not key.startswith("ece")]
    check_metric(lambda: BoCMetric(keys=keys, **options), batches, expected)


@pytest.mark.parametrize("options", [{}, {"binary": True}, {"ignore_index": 3}], ids=str)
def test_errors_of_equal_mass_and_by_class_are_those_of_their_formulas(options):
    """Bins of neighbours, as in torch-uncertainty and netcal; and the mean over classes of the error of each."""
    classes = 2 if options.get("binary") else 7
    batches = labelled_batches(150, 8, 67, classes=classes)
    logits, target = (x.numpy() for x in joined(batches))
    logits, target = logits[kept := target != options.get("ignore_index")].astype(float), target[kept]
    chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    order = chance.max(1).argsort()
    right = (chance.argmax(1) == target)[order]
    mass = sum(abs(part.sum()) for part in np.array_split(right - chance.max(1)[order], 15))
    errors = []
    for label in range(classes):
        bins, own = np.ceil(chance[:, label] * 15), chance[:, label]
        errors.append(sum(abs(((target == label) - own)[bins == b].sum()) for b in range(1, 16)) / len(target))
    if options.get("binary"):
        batches = [(rows[:, 1] - rows[:, 0], labels) for rows, labels in batches]
    expected = {"ece_classwise": torch.tensor(np.mean(errors))}
    check_metric(lambda: BoCMetric(keys=["ece_classwise"], **options), batches, expected)
    metric = BoCMetric(keys=["ece_equal_mass", "aurc"], **options)
    for batch in batches:
        metric.update(*batch)
    assert float(metric.compute()["ece_equal_mass"]) == pytest.approx(
        mass / len(target), abs=2e-3 if "ignore_index" in options else 2e-4
    )
    with pytest.raises(ValueError, match="expected logits for the key 'ece_classwise', got their statistics"):
        BoCMetric(classes, keys=["ece_classwise"]).update(BoCMetric().extract(*labelled_batches(5, classes=classes)[0]))


def test_risks_need_targets_and_are_asked_for():
    ((logits, target),) = labelled_batches(40)
    metric = BoCMetric(keys=["gap", "aurc"])
    metric.update(logits)
    found = metric.compute()
    assert_same(found, {"gap": boc_summary(logits)["gap"], "aurc": found["gap"] * torch.nan})
    metric.update(metric.extract(logits, target, extras=["gen"]))
    assert metric.compute()["aurc"] > 0
    with pytest.raises(ValueError, match="expected statistics with the top logits and the sums that this score needs"):
        metric.update(BoCMetric().extract(logits, target))


def test_without_targets_only_what_needs_them_is_nan():
    result = boc_summary(labelled_batches(20)[0][0])
    assert {key for key, value in result.items() if value.isnan()} == set(LABELLED)
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert list(BoCMetric().compute()) == list(result)


def test_targets_may_come_with_some_batches_only():
    (first, labels), (second, _) = labelled_batches(30, 20)
    metric = BoCMetric()
    metric.update(first, labels)
    metric.update(second)
    result, labelled, everything = metric.compute(), boc_summary(first, labels), boc_summary(torch.cat([first, second]))
    assert_same(result, everything | {key: labelled[key] for key in LABELLED})


@given(st.lists(st.floats(-14, 0), min_size=1, max_size=30))
def test_quantiles_are_within_one_bin(exponents):
    gaps = torch.tensor([10**x for x in exponents], dtype=torch.float64)
    logits = torch.stack([gaps.new_zeros(len(gaps)), (gaps / 2).log(), gaps.log()], -1)
    coins = bag_of_coins(logits)
    result = boc_summary(logits)
    for key, level in QUANTILES.items():
        lower = coins.gap.quantile(level, interpolation="lower").item()
        higher = coins.gap.quantile(level, interpolation="higher").item()
        low, high = (0.0 if gap < 1e-12 else gap for gap in (lower, higher))
        assert low / 1.05 <= result[key].item() <= high * 1.05 + 1e-12


def test_a_confidence_of_one_is_in_the_last_bin():
    """With 0.99, whose error has the other sign. torchmetrics gives 1.0 a bin of its own, where they do not cancel."""
    sure, nearly = torch.tensor([200.0, 0.0, 0.0]), torch.tensor([0.99, 0.005, 0.005]).log()
    logits, target = torch.stack([sure] * 4 + [nearly] * 4), torch.tensor([0, 0, 0, 1, 0, 0, 0, 0])
    error = boc_summary(logits, target)["ece"].item()
    assert error == pytest.approx(abs(7 / 8 - (1 + 0.99) / 2), abs=1e-6)


def test_evidence_is_counted_with_the_flips_of_the_metric():
    logits = 3 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    one, other = BoCMetric(trials=5), BoCMetric(trials=5)
    one.update(sample_stats(logits))
    other.update(logits)
    torch.testing.assert_close(one.compute()["p_value"], other.compute()["p_value"])


def test_p_values_are_computed_only_if_a_key_asks_for_them():
    """What was not asked for is absent, and states with and without it do not mix."""
    logits, target = random_logits(200, 10), torch.arange(200) % 10
    want = boc_summary(logits, target)
    without, whole = BoCMetric(keys=DEFAULT_KEYS), BoCMetric(keys=(*DEFAULT_KEYS, "rejection_rate"))
    for path in ("auto", "torch"):
        with kernels.use(path):
            for metric in (without, whole):
                metric.reset()
                metric.update(logits, target)
                metric.update(sample_stats(logits, target))
        found = without.compute()
        torch.testing.assert_close(found, {key: want[key] for key in DEFAULT_KEYS}, rtol=1e-12, atol=1e-15)
        assert {*want} - {*without.summary()} == {*P_VALUE_KEYS}
        assert whole.compute()["rejection_rate"] == want["rejection_rate"]
        assert Counts(*without.total().counts).rejected == named_sums(without.total())[0].p_value == 0
    assert without._defaults.keys().isdisjoint(whole._defaults.keys())
    with pytest.raises(ValueError, match="with the same arguments"):
        without.merge_state(whole)
