"""The whole protocol: laws, edges, errors, and the published numbers of a public network."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from tests.data.cases import labelled, logit_sets, ood_logits
from tests.golden import assert_golden
from tests.report.cases import LEAK, SCORES, calibration
from torch_boc import zoo
from torch_boc.calibration import LeakWarning, OverlapWarning
from torch_boc.evaluation import LogitSet, evaluate
from torch_boc.report.results import TABLES, frame

FAST = {"replicates": 30}


def tables(report):
    return {name: getattr(report.results, name) for name in TABLES}


def assert_same(one, other, *, leave_out=(), rtol=0.0):
    for name, table in tables(one).items():
        if name not in leave_out:
            pd.testing.assert_frame_equal(table, tables(other)[name], rtol=rtol, atol=1e-12 if rtol else 0, obj=name)


def full(seed=42):
    test, ood = logit_sets()
    return evaluate(test, {"noise": ood}, calibration=labelled(400, seed=9), train=labelled(seed=8), seed=seed, **FAST)


def test_same_seed_same_result_and_no_global_random_numbers():
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one = full()
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    torch.manual_seed(4)
    assert_same(one, full())


# Rows of a new score or calibrator are not among these.
NAMED = {"score": {"", "msp", "energy", "gen", "gap", "log_odds"}, "method": {"MSP", "temperature", "vector scaling"}}


def test_golden_numbers():
    """Some rows of every table, of named scores, in four digits."""
    told = []
    for name, table in tables(full()).items():
        table = table[table["score"].isin(["", "msp", "gen", "gap", "mahalanobis"])] if "score" in table else table
        told.append(f"{name}\n{table[:: len(table) // 16 + 1].to_csv(index=False, float_format='%.4g')}")
    assert_golden(__file__, {"numbers.csv": "\n".join(told)})


def test_the_order_of_samples_does_not_matter():
    test, ood = logit_sets()
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    turned = LogitSet(test.logits[order], test.target[order])
    pair = [evaluate(x, y, **FAST) for x, y in ((test, ood), (turned, LogitSet(ood.logits.flip(0))))]
    # By the seed and the places of the samples.
    drawn = ["screening", "stream", "delays", "acceptance", "samples"]
    assert_same(*pair, leave_out=drawn, rtol=1e-6)  # the sums of a row in float32 depend on where it stands


def test_blocks_do_not_change_anything(monkeypatch):
    whole = full()
    monkeypatch.setattr("torch_boc.evaluation.inputs.BLOCK_ELEMENTS", 64)
    parts = full()
    assert_same(whole, parts, leave_out=["samples"], rtol=1e-6)
    pd.testing.assert_frame_equal(whole.results.samples, parts.results.samples, rtol=1e-4)  # float32, not averaged


def test_tables_have_their_columns_and_settings_are_told():
    said = []
    test, ood = logit_sets()
    report = evaluate(
        test,
        ood,
        calibration=labelled(100, seed=9),
        bins=10,
        progress=said.append,
        methods=["temperature", "matrix scaling"],
        **FAST,
    )
    for name, table in tables(report).items():
        assert list(table) == list(frame(name))
        assert len(table)
    settings = report.results.settings
    expected = {"trials": 100, "bins": 10, "replicates": 30, "seed": 42, "classes": 5}
    expected["samples"] = {"id": 600, "ood": 600, "calibration": 100}
    expected["accuracy"] = (test.logits.argmax(1) == test.target).double().mean().item()
    assert settings == settings | expected
    assert set(settings["versions"]) == {"torch_boc", "torch"}
    assert "probing ood" in said
    assert "calibration: temperature on calibration" in said
    assert "calibration: matrix scaling on calibration" in said


def test_repeated_rows_are_said_from_a_tenth_on():
    logits, target = labelled(200)
    for copies in (19, 40):
        rows = torch.cat([torch.arange(200), torch.arange(copies)])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", OverlapWarning)
            report = evaluate((logits[rows], target[rows]), replicates=5)
        assert len(caught) == (copies == 40)
        assert report.results.settings["repeated"] == ({"id": 40} if copies == 40 else {})
    assert str(caught[0].message).startswith(
        "40 of the 240 rows of “id” repeat an earlier row: if they are the same samples"
    )


def test_names_of_classes_and_files_reach_the_report():
    logits, target = labelled(200)
    names, files = ["ant", "bee", "cat", "dog", "eel"], [f"img/{i}.png" for i in range(200)]
    data = LogitSet(logits, target, notes={"filename": files}, classes=names, row_numbers=torch.arange(200) + 1000)
    report = evaluate(data, **FAST)
    first = report.results.samples.iloc[0]
    assert first["name"] == f"img/{first['row'] - 1000}.png"
    text = report.to_markdown()
    assert f"{first['name']} (id row {first['row']:,})" in text
    assert any(f"{one} predicted as {other}" in text for one in names for other in names)


def test_threads_are_as_before():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        evaluate(ood_logits(20), progress=lambda message: None, **FAST)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_without_targets_and_unfamiliar_data():
    report = evaluate(ood_logits(100), ood_logits(80, seed=5), calibration=labelled(60), **FAST)
    for name in ("calibration", "reliability", "leaks"):
        assert tables(report)[name].empty
        assert list(tables(report)[name]) == list(frame(name))
    assert report.ood["auroc"].notna().all()
    assert math.isnan(report.results.settings["accuracy"])
    alone = tables(evaluate(ood_logits(100), **FAST))
    assert all(alone[name].empty and list(alone[name]) == list(frame(name)) for name in ("ood", "roc", "calibration"))
    assert alone["gaps"]["set"].tolist() == ["id"]


@pytest.mark.parametrize("samples", [1, 2])
def test_as_few_samples_as_can_be(samples):
    logits, target = labelled(samples, seed=3)
    report = evaluate((logits, target), logits.flip(1), **FAST)
    assert (report.ood[["auroc", "fpr95", "aupr"]].notna()).all(axis=None)
    assert report.calibration["ece"].notna().all()


def test_two_classes_have_no_gap_and_divide_by_nothing():
    logits, target = labelled(200, 2)
    report = evaluate((logits, target), ood_logits(100, 2), calibration=labelled(100, 2, seed=4), **FAST)
    assert (report.results.gaps[["gap", "forced_gap", "free_gap"]] == 0).all(axis=None)
    assert report.results.gaps["r2"].isna().all()
    table = report.ood.set_index("score")
    assert table.loc["gap", "auroc"] == 0.5
    assert table.loc["gap", ["auroc_low", "auroc_high", "fpr95"]].tolist() == [0.5, 0.5, 1.0]
    assert table.loc["dominance", "auroc"] == pytest.approx(table.loc["msp", "auroc"])


def test_a_masked_target_has_an_infinite_likelihood_and_the_rest_stands():
    logits, target = labelled(50)
    logits[0, target[0]] = -torch.inf
    table = evaluate((logits, target), **FAST).calibration
    assert (table["nll"] == math.inf).all()
    assert table["nll_low"].isna().all()
    assert table["ece_low"].notna().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ood": {"far": ood_logits(9, 4)}}, "the same number of classes in every set, got 5 in 'id' and 4 in 'far'"),
        ({"train": ood_logits(9)}, "train: expected logits with targets, got none"),
        ({"ood": {"id": ood_logits(9)}}, "a different name for each set, got 'id' twice"),
        ({"ood": {"": ood_logits(9)}}, "ood: expected names of sets as strings, got ''"),
        ({"ood": {"a\x1b": ood_logits(9), r"a\x1b": ood_logits(9)}}, "names that differ when they are printed"),
        ({"detectors": [max]}, "expected detectors as a mapping from names to callables, got list"),
        ({"trials": 0}, "trials as a positive integer up to 1,000,000, got 0"),
        ({"bins": 1.5}, "bins as an integer of at least 1, got 1.5"),
        ({"replicates": True}, "replicates as an integer of at least 1, got True"),
        ({"seed": -1}, "seed as an integer of at least 0, got -1"),
        ({"methods": ["platt"]}, "methods as a list of names among temperature, .*, vector scaling, got 'platt'"),
    ],
)
def test_errors_name_what_came(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        evaluate(labelled(20), **arguments)
    assert "\n" not in str(error.value)


def test_rows_without_a_finite_logit_are_left_out_and_labels_of_ood_sets_are_not_checked():
    logits = ood_logits(20)
    logits[7] = -torch.inf
    with pytest.warns(UserWarning, match="ood: left out 1 of 20 rows"):
        report = evaluate(labelled(20), (logits, torch.full((20,), 17)), replicates=5)
    assert report.results.settings["samples"] == {"id": 20, "ood": 19}


def test_the_numbers_of_a_public_network():
    """ResNet-20 on CIFAR-10 against SVHN; the expected numbers are those of an independent float64 implementation."""
    entry = zoo.load("resnet20-cifar10")
    with pytest.warns(LeakWarning, match="“training samples”: accuracy is 99.8 % there and 91.7 %.*easier"):
        resnet = evaluate(entry.id, entry.ood, calibration=entry.calibration, replicates=10)
    assert resnet.results.settings["accuracy"] == pytest.approx(0.9173, abs=0.002)
    errors, areas = resnet.calibration.set_index("method"), resnet.ood.set_index("score")
    for _, method, *values in calibration((LEAK,)):
        if "scaling" not in method:
            assert errors.loc[method, ["ece", "nll", "brier"]].tolist() == pytest.approx(values[:3], abs=0.0035), method
    assert errors.loc["temperature", "temperature"] == pytest.approx(0.634, abs=0.002)  # with its prior
    assert resnet.results.leaks["suspicious"].tolist() == [True]
    for score in SCORES.keys() - {"entropy", "concentration"}:
        assert areas.loc[score, ["auroc", "fpr95"]].tolist() == pytest.approx(SCORES[score], abs=0.002), score
