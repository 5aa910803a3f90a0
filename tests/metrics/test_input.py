"""Bad input gets a clear error, when it comes or when results are asked for, and spoils nothing."""

import math

import pytest
import torch

from tests.metrics.tester import assert_same
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap
from torch_boc.functional import boc_summary

pytestmark = pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
LOGITS = torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.5, 0.2, 0.1]])
BAD = torch.tensor([[math.nan, 1.0, 0.0], [math.inf, 2.0, 1.0]])
WRONG = [
    (BoCMetric, {"nan_strategy": "maybe"}, "warn, error, ignore"),
    (BoCMetric, {"alpha": 2}, "alpha in"),
    (BoCMetric, {"bins": 0}, "at least 1 bin"),
    (BoCMetric, {"trials": 0}, "positive integer"),
    (BoCMetric, {"num_classes": 1}, "at least 2"),
    (BoCMetric, {"keys": ("gap", "magic")}, "expected keys as a list of names among samples"),
    (BoCMetric, {"keys": "gap"}, "expected keys as a list of names"),
    (CoherenceGap, {"part": "half"}, "total, forced, free"),
    (CoherenceGap, {"average": "macro"}, "micro, none"),
    (CoherenceGap, {"average": "none"}, "num_classes"),
    (BoCSeparation, {"scores": ("msp", "magic")}, "among msp, log_odds, energy"),
    (BoCSeparation, {"scores": ()}, "among msp, log_odds, energy"),
    (BoCSeparation, {"exact_up_to": -1}, "number of samples"),
]


@pytest.mark.parametrize(("make", "arguments", "match"), WRONG, ids=str)
def test_bad_arguments(make, arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make(**arguments)


@pytest.mark.parametrize(
    ("preds", "target", "error", "match"),
    [
        (LOGITS.long(), None, TypeError, "floating-point"),
        (LOGITS[0], None, ValueError, r"shape \(N, C\), got shape \(3,\).* binary=True"),
        (LOGITS.tolist(), None, TypeError, "torch.Tensor"),
        (LOGITS[:, :1], None, ValueError, "at least 2 classes"),
        (LOGITS, torch.zeros(3), TypeError, "integer class indices"),
        (LOGITS, torch.zeros(3).bool(), TypeError, "integer class indices"),
        (LOGITS, torch.zeros(2, dtype=torch.long), ValueError, r"shape \(3,\)"),
        (LOGITS, [0, 1, 2], TypeError, "torch.Tensor"),
    ],
    ids=lambda value: str(value)[:20].replace("\n", " "),
)
def test_bad_batches_leave_the_state_alone(preds, target, error, match):
    metric = BoCMetric(num_classes=3)
    metric.update(LOGITS)
    with pytest.raises(error, match=match):
        metric.update(preds, target)
    assert_same(metric.compute(), boc_summary(LOGITS))


METRICS = {
    "BoCMetric": BoCMetric,
    "CoherenceGap": CoherenceGap,
    "BoCSeparation": lambda **how: BoCSeparation(("msp", "entropy"), **how),
    "in bins": lambda **how: BoCSeparation(("msp",), exact_up_to=0, **how),
}
over_metrics = pytest.mark.parametrize("make", METRICS.values(), ids=METRICS.keys())


def add(metric, logits):
    if not isinstance(metric, BoCSeparation):
        return metric.update(logits)
    metric.update(logits, False)
    return metric.update(-logits, True)


def labels(metric, target):
    """Targets, or the same as flags."""
    return target.bool() if isinstance(metric, BoCSeparation) else target


@over_metrics
@pytest.mark.parametrize(("shape", "dim"), [((4, 8, 3), -1), ((4, 8, 3), 1), ((4, 3, 6, 5), 1), ((4, 8, 3, 5), 2)])
def test_the_class_axis_is_that_of_the_target_or_given(make, shape, dim):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=rf"expected dim, .*: dim=1 reads {shape[1]} classes .* dim=-1 {shape[-1]} cl"):
        add(make(), logits)
    rows = logits.movedim(dim, -1)
    given, found, expected = make(dim=dim), make(), make()
    add(given, logits)
    add(expected, rows.reshape(-1, rows.shape[-1]))
    assert_same(given.compute(), expected.compute(), atol=1e-6)  # float32 in another order
    target = torch.zeros(rows.shape[:-1], dtype=torch.long)
    target[0] = 1
    target = labels(found, target)
    if dim == 2:
        with pytest.raises(ValueError, match=r"of shape \(4, 3, 5\) or \(4, 8, 3\).* got shape \(4, 8, 5\)"):
            found.update(logits, target)
        return
    for metric in (found, given):
        metric.reset()
        metric.update(logits, target)
    assert_same(found.compute(), given.compute(), atol=1e-6)


@over_metrics
def test_a_target_that_fits_both_readings_decides_nothing(make):
    metric = make()
    with pytest.raises(ValueError, match=r"expected dim.* dim=1 reads 5 classes .* and dim=-1 5 classes"):
        metric.update(torch.randn(4, 5, 5), labels(metric, torch.zeros(4, 5, dtype=torch.long)))


@over_metrics
def test_single_logits(make):
    """(N,) and (N, 1), with targets of any dtype, are the two classes (0, z)."""
    z, target = 4 * torch.randn(40, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    expected = make()
    expected.update(torch.stack([torch.zeros(40), z], 1), labels(expected, target))
    for logits, given in ((z, target), (z[:, None], target[:, None].float()), (z, target.bool())):
        metric = make(binary=True)
        flags = given.flatten().bool() if isinstance(metric, BoCSeparation) else given
        metric.update(logits, flags)
        assert_same(metric.compute(), expected.compute())
        with pytest.raises(ValueError, match="expected single logits, got probabilities"):
            make(binary=True).update(logits.sigmoid(), flags)
        make(binary=True, validate_args=False).update(logits.sigmoid(), flags)
        make(binary=True).update(0.2 + 0.1 * logits.sigmoid(), flags)  # as a network that has learnt nothing


@pytest.mark.parametrize("make", [BoCMetric, CoherenceGap])
def test_targets_that_cross_entropy_ignores_do_not_count(make):
    target = torch.tensor([0, -100, 2])
    assert_same(make()(LOGITS, target), make()(LOGITS[::2], target[::2]))
    assert_same(boc_summary(LOGITS, target), boc_summary(LOGITS[::2], target[::2]))


@over_metrics
def test_processes_with_different_classes_fail_together(make):
    metric = make(dist_sync_fn=lambda x, group=None: [x, torch.tensor(4)] if x.ndim == 0 else [x, x])
    add(metric, LOGITS)
    metric.distributed_available_fn = lambda: True
    with pytest.raises(ValueError, match=r"expected the same number of classes in all processes, got \[3, 4\]"):
        metric.compute()


@pytest.mark.parametrize("ood", [torch.zeros(3), 1, torch.zeros(2, dtype=torch.bool)], ids=str)
def test_bad_flags(ood):
    with pytest.raises((TypeError, ValueError), match="expected ood as"):
        BoCSeparation().update(LOGITS, ood)


@over_metrics
def test_probabilities_are_refused(make):
    for preds in (LOGITS.softmax(-1), LOGITS.softmax(-1).half(), torch.tensor([[0.0, 1.0, 0.0]])):
        with pytest.raises(ValueError, match=r"pass the logits, or preds.log\(\)"):
            add(make(), preds)
    add(make(), LOGITS.log_softmax(-1))
    add(make(), torch.tensor([[0.2, 0.3, 0.5], [0.2, 0.3, 0.6]]))
    deferred = make()  # what `compute` does where `update` may not wait for the device
    add(deferred, LOGITS)
    deferred._first.found = torch.tensor(True)
    with pytest.raises(ValueError, match="got probabilities"):
        deferred.compute()


@over_metrics
@pytest.mark.parametrize("classes", [3, 10, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rounded_probabilities_and_percentages_are_refused(make, classes, dtype):
    """Their rows do not sum to 1 or 100 by up to half a unit of the last digit for each class."""
    shares = (3 * torch.randn(50, classes, generator=torch.Generator().manual_seed(0))).softmax(-1)
    for digits in (2, 3, 4):
        with pytest.raises(ValueError, match="got probabilities"):
            add(make(), shares.round(decimals=digits).to(dtype))
        with pytest.raises(ValueError, match=r"got percentages \(every row of the first batch .* sums to 100\)"):
            add(make(), (100 * shares).round(decimals=digits - 2).to(dtype))


@over_metrics
def test_logits_that_are_no_probabilities(make):
    rows = 0.25 * torch.arange(8.0).reshape(2, 4)
    for logits in (rows, 100 * rows, rows - 0.625, torch.zeros(4, 1000), torch.eye(3) * 9, 10 * torch.ones(5, 3)):
        add(make(), logits)


@over_metrics
def test_bad_rows_are_counted_over_batches(make):
    warning, failing = (make(nan_strategy=strategy) for strategy in ("warn", "error"))
    for metric in (warning, failing):
        for logits in (BAD, LOGITS, BAD[:1]):
            metric.update(logits, labels(metric, torch.zeros(len(logits), dtype=torch.long)))
    with pytest.warns(UserWarning, match=r"^3 rows of logits with NaN"):
        warning.compute()
    with pytest.raises(ValueError, match=r"^3 rows of logits with NaN"):
        failing.compute()


def test_targets_that_are_no_class_are_reported():
    metric = BoCMetric()
    metric.update(LOGITS, torch.tensor([0, 3, -1]))
    with pytest.raises(ValueError, match=r"targets in \[0, 3\), got 2 outside"):
        metric.compute()


@over_metrics
def test_the_number_of_classes_is_that_of_the_first_batch_or_the_one_given(make):
    found, given = make(), make(num_classes=3)
    for metric in (found, given):
        add(metric, LOGITS)
        for use in (metric.update, metric):
            with pytest.raises(ValueError, match="expected logits with 3 classes"):
                use(LOGITS[:, :2], labels(metric, torch.zeros(3, dtype=torch.long)))
        metric.reset()
        add(metric, LOGITS)


@pytest.mark.parametrize("make", [BoCMetric, CoherenceGap, BoCSeparation])
def test_only_metrics_of_the_same_classes_merge(make):
    def filled(classes, **options):
        metric = make(**options)
        metric.update(torch.randn(4, classes), labels(metric, torch.tensor([1, 0, 1, 0])))
        return metric

    first = filled(5)
    with pytest.raises(ValueError, match="expected a metric of 5 classes, got one of 3"):
        first.merge_state(filled(3))
    assert_same(first.compute(), first.clone().compute())
    empty = make()
    empty.merge_state(first)
    assert empty.num_classes == 5
    assert_same(empty.compute(), first.compute())
    first.merge_state(empty)
    assert first._computed is None, "the result of before, which torchmetrics would return again"
    other = {"exact_up_to": 10} if make is BoCSeparation else {"ignore_index": 1}
    with pytest.raises(ValueError, match=rf"expected a {make.__name__} with the same arguments, got one with others$"):
        first.merge_state(filled(5, **other))
