"""The first page on several networks: each number on it is the one that follows from the logits."""

import re
from html import unescape

import pytest
import torch

from torch_boc import Acceptance, ConformalTest, DriftMonitor, zoo
from torch_boc.evaluation import evaluate
from torch_boc.functional import bag_of_coins, boc_summary, forced_gap
from torch_boc.report.comparison import Comparison, cards

NAMES = ("minilm-clinc150", "resnet20-cifar10")
FAST = {"replicates": 10, "methods": ["temperature"]}


def share(mask):
    return f"{100 * mask.double().mean():.1f} %"


def recomputed(entry):
    """What each card says of a network, by the classes that a user would call."""
    test, splits = entry.test_and_splits()
    held_out, (ood,) = next(iter(splits.values())), entry.ood.values()
    coins, right = bag_of_coins(test.logits), (test.logits.argmax(-1) == test.target).double()
    screen = ConformalTest().calibrate(held_out.logits)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(42))
    delays, forced = [], []
    for seed in range(42, 67):
        generator = torch.Generator().manual_seed(seed)
        others = torch.randperm(len(ood), generator=generator)[:200]
        known = order if seed == 42 else order[torch.randperm(len(test), generator=generator)]
        monitor = DriftMonitor(screen, 0.01, seed=seed)
        monitor.update(torch.cat([test.logits[known[:300]], ood.logits[others]]))
        delays.append(int(monitor.alarm_at) - 300)
    for data in (test, ood):
        each = bag_of_coins(data.logits)
        forced.append(float(forced_gap(each.odds, data.num_classes).mean() / each.gap.mean()))
    return {
        "off": f"{100 * (coins.confidence.mean() - right.mean()):+.1f}".replace("-", "−"),
        "ece": f"{100 * boc_summary(test.logits, test.target)['ece']:.1f} %",
        "accuracy": share(right),
        "flagged": [share(screen.flag(x.logits, 0.05)) for x in (test, ood)],
        "alarm": sorted(x for x in delays if x > 0)[(sum(x > 0 for x in delays) - 1) // 2],
        "forced": min(forced),
        "accepted": share(Acceptance().calibrate(held_out.logits, held_out.target).accept(test.logits, 0.01)),
    }


@pytest.fixture(scope="module")
def found():
    """The comparison of two networks, and what follows from their logits."""
    reports, expected = {}, {}
    for name in NAMES:
        entry = zoo.load(name)
        test, splits = entry.test_and_splits()
        first = next(iter(splits))
        reports[name] = evaluate(test, entry.ood, calibration={first: splits[first]}, **FAST)
        expected[name] = recomputed(entry)
    return Comparison(reports), expected


def drawn(picture):
    """What a picture says of each network."""
    (label,) = re.findall('aria-label="([^"]*)"', picture)
    return {name: re.search(f"{name}: ([^;]*?)[;.]( |$)", f"{unescape(label)} ")[1] for name in NAMES}


def test_each_number_on_a_card_is_that_of_the_logits(found):
    comparison, expected = found
    (_, honest, gaps), (_, looks, flags), (_, alarms, delays), (_, agrees, picture) = cards(comparison.reports)
    both = [expected[name] for name in NAMES]
    assert drawn(gaps) == {name: expected[name]["off"] for name in NAMES}
    assert (
        honest == f"ECE {' to '.join(x['ece'] for x in both)}."
    )  # of one of them no calibrator is shown to improve it
    assert drawn(flags) == {name: ", ".join(expected[name]["flagged"]) for name in NAMES}
    known, other = (sorted((x["flagged"][i] for x in both), key=lambda text: float(text[:-2])) for i in (0, 1))
    assert f"the measured FPR is {' to '.join(known)}, and {' to '.join(other)} of OOD samples are det" in looks
    assert drawn(delays) == {name: str(expected[name]["alarm"]) for name in NAMES}
    least, most = sorted(x["alarm"] for x in both)
    assert alarms.startswith(
        f"Median detection delay {least} to {most} samples. The probability of ever raising a false"
    )
    name = min(NAMES, key=lambda name: expected[name]["forced"])
    assert f"at least {100 * expected[name]['forced']:.1f} % of the mean coherence gap. Here {name}:" in agrees
    assert picture == comparison.reports[name].story.figures["coherence"]


def test_the_table_has_the_same_numbers(found):
    comparison, expected = found
    for name, accuracy, _, detected, accepted, alarm in comparison.glance().rows:
        own = expected[name.text]
        assert (accuracy.text, detected.text, accepted.text) == (own["accuracy"], own["flagged"][1], own["accepted"])
        assert (alarm.text, detected.small[-6:]) == (str(own["alarm"]), "by GEN")
        share = comparison.reports[name.text].summary()["accepted"]
        assert f"{100 * share:.1f} %" == own["accepted"]


def test_the_guarantee_is_that_of_all_models(found):
    """It was that of the model that came last."""
    comparison, _ = found
    reports = dict(comparison.reports)
    delays = reports[NAMES[0]].results.delays
    delays["alpha"] = 0.05
    said = cards(reports)[2][1]
    delays["alpha"] = 0.01
    assert "ever raising a false alarm is at most 5 %, if samples are exchangeable" in said
