"""`evaluate_tables` gives what `evaluate` gives, in bounded memory, and says what it leaves out."""

import json
import re
import subprocess
import sys
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.evaluation.streamed.tables import CLASSES, column_table, logit_table, some_samples, write_parts
from torch_boc import BoCPredictor
from torch_boc.calibration import LeakWarning
from torch_boc.evaluation import LogitSet, evaluate, evaluate_tables
from torch_boc.ray.runs import Run

KNOWN, STRANGE, HELD_OUT = some_samples(1500), some_samples(1100, seed=1, signal=0.5)[0], some_samples(800, seed=2)
HOW = {"replicates": 40, "trial_counts": (20,)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    write_parts(root / "id", logit_table(*KNOWN))
    write_parts(root / "far", logit_table(STRANGE, lists=True), parts=2)
    write_parts(root / "id-columns", column_table(*KNOWN))
    write_parts(root / "far-columns", column_table(STRANGE))
    return root


@pytest.fixture(scope="module")
def whole():
    return evaluate(KNOWN, {"far": STRANGE}, calibration={"val": HELD_OUT}, **HOW)


@pytest.fixture(scope="module")
def streamed(folders):
    return evaluate_tables(
        folders / "id", {"far": folders / "far"}, calibration={"val": HELD_OUT}, progress=False, **HOW
    )


@pytest.fixture(scope="module")
def from_columns(folders):
    return evaluate_tables(
        folders / "id-columns", {"far": folders / "far-columns"}, calibration={"val": HELD_OUT}, progress=False, **HOW
    )


def test_what_follows_from_sums_is_the_same(whole, streamed):
    one, other = streamed.results, whole.results
    columns = [name for name in other.calibration if not name.startswith("nll_")]
    assert one.calibration["method"].tolist() == ["MSP", "temperature", "isotonic", "vector scaling", "BoC"]
    same(one.calibration[columns], other.calibration[columns], rtol=1e-6)
    # The interval of the NLL is normal instead of a bootstrap.
    assert one.calibration["nll_low"].tolist() == pytest.approx(other.calibration["nll_low"].tolist(), rel=0.05)
    assert one.calibration["nll_high"].tolist() == pytest.approx(other.calibration["nll_high"].tolist(), rel=0.05)
    for table in ("reliability", "leaks", "gaps", "coherence"):
        same(getattr(one, table), getattr(other, table), rtol=1e-6)
    assert one.settings["accuracy"] == pytest.approx(other.settings["accuracy"])
    assert one.settings["samples"] == other.settings["samples"]


def same(one, other, rtol):
    assert list(one) == list(other)
    assert len(one) == len(other) > 0
    for name in one:
        if one[name].dtype.kind == "f":
            np.testing.assert_allclose(one[name], other[name], rtol=rtol, atol=1e-9, err_msg=name)
        else:
            assert one[name].tolist() == other[name].tolist(), name


def test_statistics_of_scores_are_within_the_stated_errors(whole, streamed):
    one, other = (report.ood.set_index("score") for report in (streamed, whole))
    binning = streamed.results.settings["binning"]
    assert list(one.index) == list(other.index)
    assert 0 < binning["auroc"] < 0.001
    assert binning["fpr95"] < 0.02
    for name in ("auroc", "fpr95", "aupr"):
        assert (one[name] - other[name]).abs().max() <= binning[name] + 1e-9
        # Where the replicates differ, they differ by chance.
        for end in ("low", "high"):
            assert (one[f"{name}_{end}"] - other[f"{name}_{end}"]).abs().max() < 0.03
    for end in ("low", "high"):
        assert (one[f"versus_msp_{end}"] - other[f"versus_msp_{end}"]).abs().max() < 5e-3
    assert one["upside_down"].tolist() == other["upside_down"].tolist()


def test_curves_and_histograms_are_those_of_the_scores(whole, streamed):
    for score in ("msp", "energy", "structural_score", "concentration"):
        curves = [x.results.roc[x.results.roc["score"] == score] for x in (streamed, whole)]
        grid = np.linspace(0, 1, 21)
        one, other = (np.interp(grid, curve["fpr"], curve["tpr"]) for curve in curves)
        np.testing.assert_allclose(one, other, atol=0.02)
        bins = [x.results.histograms[x.results.histograms["score"] == score] for x in (streamed, whole)]
        for (_, known), (_, expected) in zip(*(x.groupby("set") for x in bins), strict=True):
            assert known["share"].sum() == pytest.approx(1)
            means = [(x["share"] * (x["bin_low"] + x["bin_high"]) / 2).sum() for x in (known, expected)]
            assert means[0] == pytest.approx(means[1], rel=0.02, abs=0.01)


def test_tests_that_hold_are_the_same_with_a_split(whole, streamed):
    one, other = streamed.results, whole.results
    same(one.screening, other.screening, rtol=1e-9)
    same(one.thresholds, other.thresholds, rtol=1e-9)
    assert len(one.stream) == len(other.stream) == 500


def test_without_a_split_the_test_is_calibrated_on_a_half(folders):
    report = evaluate_tables(folders / "id", {"far": folders / "far"}, progress=False, **HOW)
    table = report.results.screening
    row = table[(table["test"] == "conformal") & (table["set"] == "id") & (table["alpha"] == 0.05)].iloc[0]
    assert row["held_out_samples"] + row["samples"] == 1500
    assert 0 <= row["chance"] <= 1
    assert report.calibration["method"].tolist() == ["MSP", "BoC"]


def test_columns_give_the_same_but_for_what_needs_logits(streamed, from_columns):
    one, other = from_columns.results, streamed.results
    plain = other.calibration[other.calibration["method"].isin(["MSP", "BoC"])]
    assert one.calibration["method"].tolist() == ["MSP", "BoC"]
    assert one.calibration["ece"].tolist() == pytest.approx(plain["ece"].tolist(), rel=1e-6)
    assert one.calibration["nll"].isna().all()
    same(one.gaps, other.gaps, rtol=1e-6)
    scores, known = one.ood.set_index("score"), other.ood.set_index("score")
    assert set(known.index) - set(scores.index) == {"entropy", "gen", "logit_gap_top", "tempered_dominance"}
    assert (scores["auroc"] - known["auroc"].reindex(scores.index)).abs().max() < 1e-4
    assert set(one.screening["score"]) == {"", "log_odds", "energy"}


def test_a_report_from_columns_names_what_is_left_out(from_columns, tmp_path):
    assert from_columns.results.settings["from_columns"]
    (sentence,) = (x for x in from_columns.verdict if "not logits" in x)
    for word in ("entropy", "GEN", "logit gap, top N", "q̄ at T = 4", "the NLL", "calibrators"):
        assert word in sentence
    from_columns.save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "not logits" in page
    assert "counted in places" in page
    assert not re.search(r"\bnan\b", (tmp_path / "report.md").read_text(), re.IGNORECASE)
    assert json.loads((tmp_path / "report.json").read_text())["settings"]["left_out"]


def test_a_report_from_logits_leaves_out_no_more_than_overlaps(streamed):
    assert streamed.results.settings["left_out"] == [
        "the search for samples in several sets",
        "single samples to explore",
    ]
    assert not streamed.results.settings["from_columns"]
    assert not any("not logits" in x for x in streamed.verdict)


def test_sure_predictions_are_told_apart(tmp_path):
    """Their confidences round to 1 and their entropies to 0, but the numbers behind them do not."""
    generator = torch.Generator().manual_seed(0)
    for name, margin in (("id", 60.0), ("far", 50.0)):
        logits = torch.randn(200, 5, generator=generator)
        logits[:, 0] += margin
        write_parts(tmp_path / name, logit_table(logits))
    report = evaluate_tables(tmp_path / "id", {"far": tmp_path / "far"}, progress=False, **HOW)
    table = report.ood.set_index("score")
    for name in ("msp", "log_odds", "entropy", "dominance", "gap"):
        assert table.loc[name, "auroc"] > 0.99, name
        assert table.loc[name, "fpr95_high"] < 0.1, name
    assert report.results.settings["binning"]["auroc"] < 0.01


def test_targets_of_other_classes_in_an_ood_set(tmp_path):
    write_parts(tmp_path / "id", logit_table(*KNOWN))
    write_parts(tmp_path / "far", logit_table(STRANGE, torch.arange(len(STRANGE))))
    write_parts(tmp_path / "columns", column_table(STRANGE, torch.arange(len(STRANGE))))
    for name in ("far", "columns"):
        assert len(evaluate_tables(tmp_path / "id", {"far": tmp_path / name}, progress=False, **HOW).ood)


def test_without_targets_no_split_is_trusted(tmp_path):
    """It may be training data, and nothing can tell. `evaluate` does the same."""
    write_parts(tmp_path / "id", logit_table(KNOWN[0]))
    report = evaluate_tables(tmp_path / "id", calibration={"val": HELD_OUT}, progress=False, **HOW)
    assert report.results.screening["held_out"].eq("").all()
    assert evaluate(KNOWN[0], calibration={"val": HELD_OUT}, **HOW).results.screening["held_out"].eq("").all()


def test_sets_of_two_kinds_are_refused(folders):
    split = LogitSet(HELD_OUT[0].log_softmax(1), HELD_OUT[1], from_probabilities=True)
    with pytest.raises(ValueError, match="val: expected all sets as logits or all as probabilities"):
        evaluate_tables(folders / "id", calibration={"val": split}, progress=False)


def test_files_of_the_predictor(tmp_path):
    torch.manual_seed(0)
    predictor = BoCPredictor(torch.nn.Linear(6, 4), progress=False, shard=(0, 1))
    inputs, target = torch.randn(300, 6), torch.randint(4, (300,))
    predictor.to_parquet(torch.utils.data.TensorDataset(inputs, target), tmp_path / "out")
    report = evaluate_tables(tmp_path / "out", progress=False, **HOW)
    logits = predictor.model(inputs).detach()
    expected = evaluate((logits, target), **HOW)
    assert report.results.settings["classes"] == 4
    assert report.results.settings["accuracy"] == pytest.approx(expected.results.settings["accuracy"])
    assert report.results.gaps["gap"].iloc[0] == pytest.approx(expected.results.gaps["gap"].iloc[0], rel=1e-5)


def test_rows_of_a_run_that_has_not_finished_are_a_part(tmp_path):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(300, 6))
    BoCPredictor(torch.nn.Linear(6, 4), progress=False, shard=(0, 2)).to_parquet(data, tmp_path / "shards")
    with pytest.warns(UserWarning, match="on a part of the samples: expected all 300 samples in .*, got none of"):
        evaluate_tables(tmp_path / "shards", progress=False, **HOW)
    Run(tmp_path / "ray").begin({}, resume=False)
    write_parts(tmp_path / "ray", column_table(KNOWN[0]))
    with pytest.warns(UserWarning, match="on a part of the samples: expected a finished run"):
        evaluate_tables(tmp_path / "ray", progress=False, **HOW)
    Run(tmp_path / "ray").finish()
    evaluate_tables(tmp_path / "ray", progress=False, **HOW)


def test_a_sample_stands_for_the_rows(folders, monkeypatch, tmp_path):
    from torch_boc.evaluation.streamed import evaluate as module

    plan = module.Plan
    monkeypatch.setattr(module, "Plan", lambda *args: plan(*args, sample_rows=400))
    report = evaluate_tables(folders / "id", {"far": folders / "far"}, progress=False, **HOW)
    assert report.results.settings["sampled"] == {"id": 400, "far": 400}
    report.save(tmp_path)
    assert "computed from random rows: id 400, far 400" in (tmp_path / "report.html").read_text()


def test_leaks_are_named(folders):
    easy = some_samples(600, seed=5, signal=9.0)
    with pytest.warns(LeakWarning, match="looks like training data"):
        report = evaluate_tables(folders / "id", calibration={"seen": easy}, progress=False, **HOW)
    assert report.results.leaks["suspicious"].tolist() == [True]
    assert report.results.screening["held_out"].eq("").all()


def test_probabilities(tmp_path):
    logits, target = some_samples(400)
    table = logit_table(logits.softmax(1), target).rename_columns([f"prob_{i}" for i in range(CLASSES)] + ["target"])
    write_parts(tmp_path / "a", table)
    report = evaluate_tables(tmp_path / "a", from_probabilities=True, progress=False, **HOW)
    expected = evaluate((logits.softmax(1), target), from_probabilities=True, **HOW)
    assert report.calibration["ece"].tolist() == pytest.approx(expected.calibration["ece"].tolist(), rel=1e-5)
    with pytest.raises(ValueError, match="probabilities"):
        evaluate_tables(tmp_path / "a", progress=False)
    write_parts(tmp_path / "few", table.slice(0, 9))
    with pytest.raises(ValueError, match="id: expected logits or log-probabilities, got probabilities"):
        evaluate_tables(tmp_path / "few", progress=False)
    write_parts(tmp_path / "logits", logit_table(logits[:9]))
    with pytest.raises(ValueError, match="expected probabilities, not negative and of sum 1"):
        evaluate_tables(tmp_path / "logits", from_probabilities=True, progress=False)


def test_progress_is_told_in_words(folders):
    said = []
    evaluate_tables(folders / "id", {"far": folders / "far"}, progress=said.append, **HOW)
    assert "id: 1,500 of 2,600 rows" in said
    assert "far: 2,600 of 2,600 rows" in said
    assert any(x.startswith("conformal test") for x in said)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """The peak for half a million rows of 20 logits, and for 20 times as many, which are 880 MB."""
    logits, target = some_samples(500_000, classes=20)
    table = logit_table(logits, target)
    folder = tmp_path / "id"
    folder.mkdir()
    script = (
        "import sys\n"
        "from torch_boc.evaluation import evaluate_tables\n"
        "evaluate_tables(sys.argv[1], progress=False, replicates=10, trial_counts=[20])\n"
        "print(next(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    peaks = []
    for parts in (1, 20):
        for i in range(parts):
            pq.write_table(table, folder / f"{i}.parquet")
        done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 200, peaks


def test_warnings_are_none(folders):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_tables(folders / "id", {"far": folders / "far"}, progress=False, **HOW)
