"""The alarm on a stream: its level, how soon it comes, and that neither batches nor restarts change it."""

import copy
import math
import pickle

import pytest
import torch

from tests.functional.cases import random_logits
from tests.nn.models import saved
from torch_boc import ConformalTest, DriftMonitor, zoo
from torch_boc.functional.martingale import empty_martingale, update_martingale
from torch_boc.nn import drift

KINDS = {"plain": {}, "by class": {"groups": "prediction"}, "rho": {"score": "concentration", "groups": "confidence"}}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())


def calibrated(rows=400, **options):
    return ConformalTest(**options).calibrate(random_logits(rows, 5, seed=1))


def stream(rows=300):
    """Samples like the held-out ones, of which the last third is flatter; one cannot be scored."""
    logits = random_logits(rows, 5, seed=2)
    logits[2 * rows // 3 :] *= 0.3
    logits[rows // 2, 1] = math.nan
    return logits


WAYS = {"endless": {"run_length": 1000}, "mix": {"mix": True}}


@pytest.mark.parametrize(
    ("options", "way"), [*((x, {}) for x in KINDS.values()), *(({}, x) for x in WAYS.values())], ids=[*KINDS, *WAYS]
)
@pytest.mark.parametrize("size", [1, 7, 300])
def test_batches_of_any_size_give_the_same(options, way, size, monkeypatch):
    one, other = DriftMonitor(calibrated(**options), **way), DriftMonitor(calibrated(**options), **way)
    expected = one.update(stream())
    monkeypatch.setattr(drift, "CHUNK", 64)
    found = torch.cat([other.update(batch) for batch in stream().split(size)])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    states = one.state_dict()
    for name, value in other.state_dict().items():
        torch.testing.assert_close(value, states[name], rtol=1e-9, atol=1e-9, msg=name, equal_nan=True)
    assert one.seen == 299
    assert one.skipped == 1


def test_p_values_by_hand():
    """Ranks among the held-out samples and all before; the numbers that break ties are those of the seed."""
    test, logits = calibrated(), stream(40)
    path, growing = DriftMonitor(test, seed=5).update(logits), copy.deepcopy(test)
    p = []
    for row in logits:
        smallest = drift.seeded_uniforms(5, torch.tensor([len(p)]))
        low, high = growing.test(row[None], smoothed=False), growing.bin_scores(row[None])
        if not high.valid:
            continue
        equal = growing.counts[0, high.bin] + 1
        p.append(low - (1 - smallest) * equal / (growing.samples + 1))
        growing.update(row[None])
    expected = update_martingale(torch.cat(p), empty_martingale(), torch.tensor(0)).evidence
    torch.testing.assert_close(path[~logits.isnan().any(-1)], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("way", [{}, {"mix": True}], ids=str)
def test_exchangeable_streams_raise_few_alarms(way):
    """Held-out samples and stream are drawn anew 100 times; one alarm in ten would be allowed."""
    alarms = 0
    for seed in range(100):
        logits = random_logits(300, 5, seed=seed)
        test = ConformalTest("concentration", groups="confidence").calibrate(logits[:150])
        monitor = DriftMonitor(test, alpha=0.1, **way)
        monitor.update(logits[150:])
        alarms += int(monitor.alarm)
    assert alarms <= 10 + 3 * math.sqrt(10)


def test_real_drift_is_found_soon():
    entry = zoo.load("resnet20-cifar10")
    known, splits = entry.test_and_splits()
    (ood,) = entry.ood.values()
    start = DriftMonitor(ConformalTest().calibrate(next(iter(splits.values())).logits))
    generator = torch.Generator().manual_seed(0)
    known, unknown = (x.logits[torch.randperm(len(x), generator=generator)[:1500]] for x in (known, ood))
    start.update(known[:1000])
    assert not start.alarm
    assert start.change is None
    turned = copy.deepcopy(start)
    turned.update(unknown[:500])
    assert 0 < turned.alarm_at - 1000 <= 40
    assert abs(turned.began - 1000) <= 30
    low, high = turned.change
    assert low <= 1000 <= high <= turned.alarm_at
    third = torch.rand(500, generator=generator) < 0.3
    start.update(torch.where(third[:, None], unknown[:500], known[1000:]))
    assert 0 < start.alarm_at - 1000 <= 300


def test_classes_that_vanish_are_found():
    """The scores of the classes that stay are those of the held-out samples."""
    entry = zoo.load("resnet20-cifar10")
    known, splits = entry.test_and_splits()
    test = ConformalTest().calibrate(next(iter(splits.values())).logits)
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(0))
    stays = known.target[order] < 3
    stream = torch.cat([known.logits[order[:500]], known.logits[order[500:]][stays[500:]][:200]])
    monitor, without = DriftMonitor(test, mix=True), DriftMonitor(test)
    monitor.update(stream)
    without.update(stream)
    assert not without.alarm
    assert 500 < monitor.alarm_at <= 560
    assert abs(monitor.began - 500) <= 20


def test_dependence_is_the_correlation_of_neighbours_and_is_said():
    """Uniform scores among as many in each bin of them: the p-values are nearly the scores."""
    logits = random_logits(400, 5, seed=3)
    p = torch.rand(400, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 1.1
    uniform = ConformalTest().calibrate(scores=(torch.arange(20_000) + 0.5) / 20_000)
    monitor, twice = DriftMonitor(uniform, alpha=1e-12), DriftMonitor(calibrated(), alpha=1e-9)
    for batch in p.split(70):
        monitor.update(scores=batch)
    correlation, error = monitor.dependence
    assert correlation == pytest.approx(torch.corrcoef(torch.stack([p[1:], p[:-1]]))[0, 1].item(), abs=5e-3)
    assert error == pytest.approx(1 / math.sqrt(399))
    twice.update(logits.repeat_interleave(2, 0))
    with pytest.warns(match=r"neighbouring samples depend on each other \(correlation 0\.[45]\d, .*every k-th frame"):
        assert twice.dependence.correlation == pytest.approx(0.5, abs=0.1)
    assert math.isnan(DriftMonitor(calibrated()).dependence.correlation)


def test_an_alarm_stays_and_a_reset_forgets():
    monitor = DriftMonitor(calibrated())
    before = copy.deepcopy(monitor.state_dict())
    monitor.update(0.1 * random_logits(100, 5))
    at = int(monitor.alarm_at)
    assert monitor.alarm
    assert 0 < at < 100
    monitor.update(random_logits(3000, 5, seed=7))
    assert monitor.evidence < monitor.peak
    assert monitor.alarm
    assert monitor.alarm_at == at
    monitor.reset()
    assert not monitor.alarm
    for name, value in monitor.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True, msg=name)


@kinds
def test_state_dicts_continue_a_stream(options):
    whole, first = DriftMonitor(calibrated(**options)), DriftMonitor(calibrated(**options))
    expected = whole.update(stream())
    first.update(stream()[:110])
    second = DriftMonitor(ConformalTest(**options))  # not calibrated: everything comes from the file
    second.load_state_dict(saved(first.state_dict()))
    torch.testing.assert_close(second.update(stream()[110:]), expected[110:], rtol=1e-9, atol=1e-9)
    assert torch.equal(pickle.loads(pickle.dumps(whole)).evidence, whole.evidence)


@pytest.mark.slow
def test_it_compiles_in_one_graph():
    monitor, eager = DriftMonitor(calibrated()), DriftMonitor(calibrated())
    torch.compiler.reset()
    compiled = torch.compile(monitor.update, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(stream()), eager.update(stream()))
    torch.testing.assert_close(monitor.evidence, eager.evidence)
    torch.compiler.reset()


def test_the_begin_is_that_of_the_alarm():
    """A short drift, then many in-distribution samples, of which later ones must not move the begin."""
    whole, split = DriftMonitor(calibrated(rows=2000)), DriftMonitor(calibrated(rows=2000))
    logits = torch.cat([random_logits(300, 5, seed=4), 0.1 * random_logits(40, 5), random_logits(2000, 5, seed=5)])
    logits[300:340:2] = math.nan  # also the one after the alarm
    whole.update(logits)
    for batch in logits.split(50):
        split.update(batch)
    assert 300 < whole.alarm_at <= 340
    assert abs(whole.began - 300) <= 20
    assert whole.change == split.change


def test_made_in_inference_mode_it_goes_on_outside():
    with torch.inference_mode():
        test = ConformalTest()
    test.update(random_logits(50, 5))
    with torch.inference_mode():
        monitor = DriftMonitor(test)
    monitor.update(stream())
    assert monitor.seen == 299
