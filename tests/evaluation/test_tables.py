"""Reports on files: those of their rows, of random rows, and of the columns that a predictor keeps."""

import json

import pytest

from tests.data.cases import labelled
from tests.data.tables import column_table, logit_table, write_parts
from torch_boc.cli import main
from torch_boc.evaluation import evaluate


@pytest.fixture(scope="module")
def sets():
    return {"id": labelled(400), "far": labelled(300, seed=1, signal=0.5), "val": labelled(200, seed=2)}


@pytest.fixture
def folder(tmp_path, sets):
    for name, (logits, target) in sets.items():
        write_parts(tmp_path / "logits" / name, logit_table(logits, None if name == "far" else target))
        write_parts(tmp_path / "columns" / name, column_table(logits, None if name == "far" else target))
    return tmp_path


HOW = {"replicates": 10, "methods": ["temperature"]}
EXACT = {"calibration": ["ece", "accuracy"], "gaps": ["gap", "r2", "p_value"]}
EXACT["acceptance"] = ["threshold", "accepted", "wrong"]


def test_a_folder_is_its_rows(folder, sets):
    expected = evaluate(sets["id"], {"far": sets["far"][0]}, calibration={"val": sets["val"]}, **HOW).results
    paths = {name: folder / "logits" / name for name in sets}
    found = evaluate(paths["id"], {"far": paths["far"]}, calibration={"val": paths["val"]}, **HOW).results
    assert found.settings == expected.settings
    for table in ("calibration", "ood", "gaps", "screening", "stream", "overlaps", "acceptance"):
        assert getattr(found, table).equals(getattr(expected, table))


@pytest.mark.parametrize("calibrated", [False, True])
def test_columns_give_what_logits_give_and_name_the_rest(folder, sets, calibrated):
    how = HOW | ({"calibration": {"val": sets["val"]}} if calibrated else {})
    whole = evaluate(folder / "logits" / "id", {"far": folder / "logits" / "far"}, **how).results
    report = evaluate(folder / "columns" / "id", {"far": folder / "columns" / "far"}, **how)
    found = report.results
    for table, names in EXACT.items():
        expected = getattr(whole, table)
        expected = expected[expected["split"] == ""] if table == "calibration" else expected
        assert getattr(found, table)[names].to_numpy() == pytest.approx(
            expected[names].to_numpy(), rel=1e-9, nan_ok=True
        )
    scores, expected = (x.ood.set_index("score")["auroc"] for x in (found, whole))
    assert set(expected.index) - set(scores.index) == {"entropy", "gen", "logit_gap_top", "tempered_dominance"}
    assert (scores - expected).dropna().abs().max() < 1e-9
    both = found.screening.merge(whole.screening, on=["test", "score", "alpha", "set"])
    assert (both["flagged_x"] == both["flagged_y"]).all()
    assert len(both) == len(found.screening) > 0
    assert found.calibration["nll"].isna().all()
    assert found.settings["left_out"][-2:] == ["the NLL", "fitted calibrators"]
    assert "not logits, so these parts are left out" in report.to_markdown()


def test_random_rows_are_said_to_be_random(folder):
    paths = folder / "logits" / "id", {"far": folder / "columns" / "far"}
    report = evaluate(*paths, max_rows=100, seed=3, **HOW)
    settings = report.results.settings
    assert (settings["samples"], settings["sampled"]) == ({"id": 100, "far": 100}, {"id": 400, "far": 300})
    assert "100 of the 400 rows of “id” and 100 of the 300 rows of “far”" in report.to_markdown()
    assert report.results.gaps.equals(evaluate(*paths, max_rows=100, seed=3, **HOW).results.gaps)
    assert not report.results.gaps.equals(evaluate(*paths, max_rows=100, seed=4, **HOW).results.gaps)
    # The interval is that of fewer rows.
    wide, narrow = (x.ood["auroc_high"] - x.ood["auroc_low"] for x in (report, evaluate(*paths, **HOW)))
    assert float(wide.mean()) > 1.3 * float(narrow.mean())


def test_the_command(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    args = ["report", "columns/id", "--ood", "far=logits/far/part-*.parquet", "--max-rows", "200"]
    with pytest.raises(SystemExit) as stop:
        main([*args, "--json"])
    out, err = capsys.readouterr()
    assert (stop.value.code or 0, err) == (0, "")
    assert json.loads(out)["settings"]["sampled"] == {"id": 400, "far": 300}


def test_detectors_and_calibrators_need_logits(folder, sets):
    for name, options in (
        ("id", {"train": sets["val"]}),
        ("val", {"calibration": {"val": folder / "columns" / "val"}}),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected logits"):
            evaluate(folder / "columns" / "id", **options, **HOW)


def test_a_run_that_has_not_finished_is_said_aloud(folder):
    (folder / "columns" / "id.run").mkdir()
    with pytest.warns(UserWarning, match="the report is on a part of the samples"):
        evaluate(folder / "columns" / "id", **HOW)
