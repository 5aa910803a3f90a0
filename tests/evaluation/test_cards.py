"""The first page on several networks: each number on it is the one that follows from the logits."""

import re
from html import unescape

import pytest
import torch

from torch_boc import Acceptance, ConformalTest, DriftMonitor, zoo
from torch_boc.evaluation import evaluate
from torch_boc.functional import boc_summary
from torch_boc.report.comparison import Comparison, cards

NAMES = ("minilm-clinc150", "resnet20-cifar10")
FAST = {"replicates": 10, "methods": ["temperature"]}


def share(mask):
    return f"{100 * mask.double().mean():.1f} %"


def recomputed(entry):
    """What each card says of a network, by the classes that a user would call."""
    test, splits = entry.test_and_splits()
    held_out, (ood,) = next(iter(splits.values())), entry.ood.values()
    correct = (test.logits.argmax(-1) == test.target).double()
    screen = ConformalTest().calibrate(held_out.logits)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(42))
    delays = []
    for seed in range(42, 67):
        generator = torch.Generator().manual_seed(seed)
        others = torch.randperm(len(ood), generator=generator)[:200]
        known = order if seed == 42 else order[torch.randperm(len(test), generator=generator)]
        monitor = DriftMonitor(screen, 0.01, seed=seed)
        monitor.update(torch.cat([test.logits[known[:300]], ood.logits[others]]))
        delays.append(int(monitor.alarm_at) - 300)
    return {
        "ece": f"{100 * boc_summary(test.logits, test.target)['ece']:.1f} %",
        "accuracy": share(correct),
        "flagged": [share(screen.flag(x.logits, 0.05)) for x in (test, ood)],
        "alarm": sorted(x for x in delays if x > 0)[(sum(x > 0 for x in delays) - 1) // 2],
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
    coverage, calibration, detection, drift = cards(comparison.reports)
    models = [expected[name] for name in NAMES]

    def ends(values, unit=" %"):
        values = sorted(values, key=lambda text: float(text.removesuffix(unit)))
        return f"{values[0]} to {values[-1]}"

    assert coverage[1].startswith(f"{ends(x['accepted'] for x in models)} of predictions can be accepted: error ≤ 1 %")
    assert drawn(coverage[2]) == {name: expected[name]["accepted"] for name in NAMES}
    errors = re.sub(", .* after calibration of 1 of 2 models", "", calibration[1])
    assert errors == f"ECE {ends(x['ece'] for x in models)}."
    assert {k: x.split(",")[0] for k, x in drawn(calibration[2]).items()} == {k: x["ece"] for k, x in expected.items()}
    assert drawn(detection[2]) == {name: ", ".join(expected[name]["flagged"]) for name in NAMES}
    rates = [ends(x["flagged"][i] for x in models) for i in (0, 1)]
    assert f"the measured FPR is {rates[0]}, and {rates[1]} of OOD samples are det" in detection[1]
    assert drawn(drift[2]) == {name: str(expected[name]["alarm"]) for name in NAMES}
    delays = ends((str(x["alarm"]) for x in models), "")
    assert drift[1].startswith(f"Median detection delay {delays} samples; probability of ever")


def test_the_table_has_the_same_numbers(found):
    comparison, expected = found
    for name, accuracy, _, accepted, detected, delay in comparison.glance().rows:
        model = expected[name.text]
        assert (accuracy.text, detected.text) == (model["accuracy"], model["flagged"][1])
        assert (accepted.text, delay.text) == (model["accepted"], f"{model['alarm']} samples")
        share = comparison.reports[name.text].summary()["accepted"]
        assert f"{100 * share:.1f} %" == model["accepted"]


def test_the_second_row_is_read_aloud(found):
    comparison, expected = found
    (name, model) = list(expected.items())[1]
    text = comparison.reading()
    assert text.startswith(
        f"Reading row 2, {name}: {model['accuracy']} of its predictions are correct. Its calibration"
    )
    assert f"{model['accepted']} of predictions can be automated: error ≤ 1 % with 95 % prob" in text
    assert f"{model['flagged'][1]} of OOD samples are detected by the conformal test of GEN" in text
    assert f"Drift is detected after {model['alarm']} samples (median)" in text
