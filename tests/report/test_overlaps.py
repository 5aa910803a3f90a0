"""Samples of the test set in other sets: a warning, a sentence, marks, a field, and no praise for fits on them."""

import dataclasses
import json
import warnings

import pandas as pd
import pytest
import torch

from tests.data.cases import labelled, unfamiliar
from tests.report.cases import LEAK, make_results
from torch_boc.calibration import OverlapWarning
from torch_boc.evaluation import evaluate
from torch_boc.report.comparison import comparison_rows
from torch_boc.report.report import Report
from torch_boc.report.splits import SHARING
from torch_boc.report.topics import key_sentences, verdict

FAST = {"replicates": 20, "trial_counts": (20,)}


def mixed(share, samples=600):
    """A calibration split that has that share of the test set, in another order."""
    logits, target = labelled(samples)
    others, theirs = labelled(samples, seed=9)
    count = int(share * samples)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(4))
    logits, target = (
        torch.cat([logits[order[:count]], others[count:]]),
        torch.cat([target[order[:count]], theirs[count:]]),
    )
    again = torch.randperm(samples, generator=torch.Generator().manual_seed(5))
    return logits[again], target[again]


@pytest.mark.parametrize("share", [0.05, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_calibration_split_with_samples_of_the_test_set(share, dtype, tmp_path):
    logits, target = mixed(share)
    count = int(share * 600)
    message = rf"^{count} of the 600 rows of 'id' are also in the calibration split 'val': .*Fit on other samples$"
    with pytest.warns(OverlapWarning, match=message) as caught:
        report = evaluate(labelled(600), calibration={"val": (logits.to(dtype), target)}, **FAST)
    assert caught[0].filename == __file__
    assert report.verdict[0].startswith(f"{count} of the 600 rows of “id” are also in the calibration split “val”: ")
    assert report.verdict[1].startswith(
        "Nothing was fitted on other samples, and BoC is not shown to beat plain confidence"
    )
    assert not any("Best calibrated" in sentence or "may be perfect" in sentence for sentence in report.verdict)
    table = json.loads(report.to_json())["tables"]["overlaps"]
    exact = count if dtype == torch.float32 else 0
    assert table == {
        "set": ["val"],
        "kind": ["calibration"],
        "samples": [600],
        "shared": [count],
        "exact": [exact],
        "share": [share],
        "suspicious": [True],
    }
    assert report.diagnostics["overlaps"] is report.results.overlaps
    source = report.to_html(tmp_path / "report.html").read_text(encoding="utf-8")
    assert source.count(f"<span class='mark'>{SHARING}</span>") == 4  # three methods, and the split
    assert report.to_markdown().count(f"*{SHARING}*") == 4


def test_an_out_of_distribution_set_with_samples_of_the_test_set():
    logits, target = labelled(600)
    others = torch.cat([unfamiliar(500), logits[:100]])
    with pytest.warns(
        OverlapWarning, match="100 of the 600 rows of 'id' are also in the out-of-distribution set 'far'"
    ):
        report = evaluate((logits, target), {"near": unfamiliar(seed=3), "far": others}, **FAST)
    assert "rows of “id” are also in the out-of-distribution set “far”: a sample cannot be in both" in report.verdict[0]
    assert report.results.overlaps["suspicious"].tolist() == [False, True]
    text = report.to_markdown()
    assert "against far, with 95 % intervals; 100 samples are in both sets" in text
    assert "against near, with 95 % intervals*" in text


def test_a_training_set_with_samples_of_the_test_set():
    with pytest.warns(OverlapWarning, match="600 of the 600 rows of 'id' are also in the training set: accuracy"):
        report = evaluate(labelled(600), unfamiliar(), train=labelled(600), **FAST)
    assert report.results.overlaps["kind"].tolist() == ["ood", "train"]


def test_sets_that_share_nothing_are_not_accused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = evaluate(
            labelled(600), unfamiliar(), calibration=labelled(400, seed=9), train=labelled(500, seed=8), **FAST
        )
    assert report.results.overlaps["shared"].tolist() == [0, 0, 0]
    assert not any("also in" in sentence for sentence in report.verdict)


def test_coarse_logits_coincide_and_are_not_accused():
    sets = [(10 * torch.eye(5)[labelled(300, seed=seed)[0].argmax(1)], labelled(300, seed=seed)[1]) for seed in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverlapWarning)
        report = evaluate(sets[0], calibration=sets[1], methods=["isotonic"], **FAST)
    assert report.results.overlaps["shared"].tolist()[0] > 200


def with_shared(results, *sets):
    table = results.overlaps.copy()
    rows = table["set"].isin(sets)
    table.loc[rows, ["shared", "exact"]] = 1234
    table.loc[rows, "suspicious"] = True
    return dataclasses.replace(results, overlaps=table)


def test_what_was_fitted_on_samples_of_the_test_set_is_no_rival():
    results = make_results(("held out", "half of it"))
    better = results.calibration["split"] == "half of it"
    results.calibration.loc[better, ["ece", "ece_low", "ece_high"]] = [0.0001, 0.0, 0.0002]
    assert "fitted on “half of it”" in verdict(results)[0]
    sharing = with_shared(results, "half of it")
    first, second = verdict(sharing)[:2]
    assert first.startswith("1,234 of the 10,000 rows of “test” are also in the calibration split “half of it”")
    assert second.startswith("Best calibrated is isotonic fitted on “held out”")
    assert "half of it" not in second
    assert first in key_sentences(sharing)
    source = Report(sharing)._repr_html_()
    assert "<td class=best>0.0093" in source
    assert "<td class=best>0.0001" not in source
    columns = {cell.text: give(sharing) for cell, give in comparison_rows() if not cell.mark}
    assert columns["calibrated on"].text == "held out"


def test_if_nothing_else_was_fitted_that_is_said():
    results = with_shared(make_results(("held out",)), "held out")
    assert verdict(results)[1].startswith(
        "Nothing was fitted on other samples, and BoC is not shown to beat plain confidence"
    )
    columns = {cell.text: give(results) for cell, give in comparison_rows() if not cell.mark}
    assert columns["calibrated on"] == ("held out", "", False, SHARING)


def test_a_split_may_have_both_faults():
    results = with_shared(make_results(), LEAK)
    text = Report(results).to_markdown()
    assert text.count(f"*{SHARING}*") == 4
    assert "looks like training data: accuracy" in text
    assert "| training samples *" + SHARING + "* | 5,000 | 1,234 |" in text


def test_without_other_sets_there_is_an_empty_table():
    report = evaluate(labelled(100), **FAST)
    assert report.results.overlaps.empty
    pd.testing.assert_index_equal(report.results.overlaps.columns, make_results().overlaps.columns)
