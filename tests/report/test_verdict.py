"""Each sentence of the verdict, driven by crafted numbers: it claims no more than its intervals allow."""

import dataclasses
import math

import pytest

from tests.report.cases import LEAK, NAN, compared, make_results
from torch_boc.report.screening import SCREENING, stream_figure
from torch_boc.report.topics import verdict

HELD_OUT, THREE = ("held out",), ("a", "b", "c")


def changed(results, table, where, **values):
    """The results with some cells of a table replaced; an interval moves with its value."""
    if table == "settings":
        return dataclasses.replace(results, settings={**results.settings, **values})
    frame = getattr(results, table).copy()
    rows = frame.eval(where)
    assert rows.any(), where
    for column, value in values.items():
        frame.loc[rows, column] = value
        if f"{column}_low" in frame and f"{column}_low" not in values:
            half = 0.0003 if column == "versus_msp" else 0.004
            frame.loc[rows, [f"{column}_low", f"{column}_high"]] = [value - half, value + half]
    return dataclasses.replace(results, **{table: compared(frame) if "ece" in values else frame})


def calibrated(method, ece, **more):
    return "calibration", f"method == '{method}'", {"ece": ece, **more}


def score(name, auroc, ood="svhn", versus=None):
    versus = auroc - 0.8907 if versus is None else versus
    return "ood", f"score == '{name}' and ood == '{ood}'", {"auroc": auroc, "versus_msp": versus}


def flagged(where, **values):
    return "screening", f"{where} and alpha == 0.05", values


def power(low, share, high):
    where = "kind == 'ood' and score == 'log_odds'"
    return flagged(where, flagged=share, flagged_low=low, flagged_high=high)


ALL_WORSE = ("calibration", "split != ''", {"ece": 0.07})
ENERGY_ID = "kind == 'id' and score == 'energy'"
UPRIGHT = "score != 'structural_score'"
UNSURE = ("ood", "score == 'gap'", {"versus_msp": 0.0, "versus_msp_low": NAN, "versus_msp_high": NAN})
WARM = ("calibration", "method == 'temperature'", {"temperature": 1.3})
SHARED = ("overlaps", "set == 'svhn'", {"shared": 1234, "suspicious": True})
NINE = ("screening", "test == 'conformal'", {"flagged": NAN, "held_out_samples": 9})
# What the results are made of, the changes, words of one sentence, and words that no sentence has.
CASES = [
    (((),), [], "No calibration set was given, and BoC is not shown to beat plain", "training data"),
    (((),), [calibrated("BoC", 0.01)], "Best calibrated is BoC: ECE 0.0100", ""),
    ((HELD_OUT,), [], "fitted on “held out” and vector scaling fitted on “held out” are not shown to be worse.", ""),
    ((HELD_OUT,), [ALL_WORSE, calibrated("isotonic", 0.0093)], "Best calibrated is isotonic fitted", "to be worse"),
    (((LEAK,),), [ALL_WORSE, calibrated("isotonic", 0.0093)], "though that split looks like training data", ""),
    ((HELD_OUT,), [ALL_WORSE, calibrated("isotonic", 0.05)], "; the lowest, 0.0500 (0.0460 to", "may be perfect"),
    ((HELD_OUT,), [ALL_WORSE, calibrated("MSP", 0.0532, ece_low=0.0)], "chance alone: MSP may be perfect.", ""),
    (((LEAK,),), [WARM], "does not hold for other samples. Do not use it.", "sharper"),
    (((), (), False), [], "“test” has no targets, so nothing is said of calibration.", "used as a confidence"),
    (((), (), False), [], "No out-of-distribution set was given, so nothing is said of detection.", "stream"),
    ((), [("settings", "", {"samples": {"test": 60, "svhn": 9_999}})], "intervals too narrow: “test” has 60.", ""),
    ((), [SHARED], "1,234 of the 10,000 rows of “test” are also in", ""),
    ((), [score("mahalanobis", 0.95)], "Mahalanobis: AUROC 0.9500 (0.9460 to 0.9540), the highest, against 0.89", ""),
    ((), [score("dominance", 0.88)], "On “svhn” use MSP: AUROC 0.8907 (0.8867 to 0.8947), the highest.", ""),
    ((), [score("odin", 0.95), score("energy", 0.948)], "no score is shown to do better than energy (corr", ""),
    ((), [score("energy", 0.8930)], "MSP is nearly as good as any other score: AUROC 0.8907. The highest, e", ""),
    ((), [("ood", UPRIGHT, {"auroc": 0.4}), score("energy", 0.503)], "than chance (corrected for 11", "“svhn” use"),
    (((), THREE), [score("energy", 0.99, "b")], "for 30 comparisons): MSP on “a” and “c”; energy on “b”.", ""),
    (((), THREE), [("ood", f"ood != 'a' and {UPRIGHT}", {"auroc": 0.5})], "On “b” and “c” no score is shown to", ""),
    ((), [("ood", "auroc > 0", {"auroc": NAN, "versus_msp": NAN})], "forces most of Δ", "backwards"),
    ((), [score("structural_score", 0.99)], "does not rank backwards here (AUROC 0.9900 on “svhn”)", "ranks backwards"),
    ((), [score("structural_score", 0.497)], "rank forwards or backwards here (AUROC 0.4970", "ranks backwards"),
    (((), ("svhn", "far")), [score("structural_score", 0.7, "far")], "(AUROC 0.7000 on “far”; corrected for 2", ""),
    ((), [score("gap", 0.89, versus=0.01)], "by +0.0100 (+0.0097 to +0.0103), so it adds something to confidence.", ""),
    ((), [score("gap", 0.89, versus=-0.01)], "so it ranks worse than confidence.", ""),
    ((), [score("gap", 0.89, versus=0.0002)], "shown to add anything to confidence as a score: at most 0.0005.", ""),
    (((), ("a", "b")), [score("gap", 0.9, "a", 0.01), score("gap", 0.88, "b", -0.01)], "it ranks worse than con", ""),
    ((), [UNSURE, ("gaps", "gap > 0", {"r2": NAN})], "AUROC of −Δ differs from that of MSP by 0.0000, so there", "()"),
    (((), THREE), [], "forces most of Δ: 95.4 % to 95.4 % (R² at least 0.994); the AUROC of −Δ", ""),
    ((), [("gaps", "set == 'svhn'", {"forced_gap": 0.05})], "part of Δ: 95.4 % on “test” (R² 0.996) and 35.8 %", ""),
    ((), [("gaps", "gap > 0", {"gap": 0.0})], "ranks backwards", "forces"),
    ((), [("settings", "", {"classes": 2})], "Δ is 0 for every input", "used as a confidence"),
    ((), [calibrated("BoC", 0.0535)], "is calibrated about as well as confidence itself: ECE 0.0535", ""),
    ((), [calibrated("BoC", 0.02)], "q̄ itself is too high: it is 0.9966 on average, and 0.9173 of the", ""),
    ((), [calibrated("BoC", 0.02), ("gaps", "kind == 'id'", {"dominance": 0.92})], "better calibrated, b", "too high"),
    ((), [power(0.049, 0.053, 0.058)], "of “svhn” no more than the level is shown to be flagged", "not flagged"),
    ((), [power(0.10, 0.106, 0.11)], "Valid is not powerful: 89.4 % of “svhn” are not flagged.", ""),
    ((), [power(0.49, 0.52, 0.55)], "conformal test of log odds flags", "powerful"),
    ((), [NINE], "With 9 held-out samples nothing can be flagged at level 5 %", ""),
    ((("val",),), [flagged(ENERGY_ID, chance=1e-5)], "(p = 4.0e−05). The held-out samples “val” are not like it.", ""),
    ((("val",),), [flagged(ENERGY_ID, chance=0.02)], "flags", "does not hold: at"),  # of 4 comparisons
    ((), [flagged(ENERGY_ID, chance=1e-5)], "flags", "does not hold: at"),  # two halves are alike
    (((), THREE), [], "and 27.0 % to 27.0 % of each of 3 OOD sets;", ""),
    (((), THREE), [], "In 3 of 3 streams that turn from “test” to an OOD set, the alarm comes 31 samples later", ""),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "changes", "said", "unsaid"), CASES)
def test_sentences(arguments, changes, said, unsaid):
    results = make_results(*arguments)
    for table, where, values in changes:
        results = changed(results, table, where, **values)
    sentences = verdict(results)
    assert sum(said in sentence for sentence in sentences) == 1, sentences
    assert not unsaid or not any(unsaid in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (lambda sample: -1.0, "there is no alarm within the 200 samples that follow"),
        (lambda sample: 5.0 if sample >= 20 else 0.0, "there is a false alarm at sample 20"),
        (lambda sample: math.log(100) if sample == 301 else 0.0, "the alarm comes 1 sample later"),
    ],
)
def test_the_alarm_of_a_stream(evidence, words):
    results = make_results()
    table = results.stream.assign(evidence=results.stream["sample"].map(evidence))
    assert any(words in text for text in verdict(dataclasses.replace(results, stream=table)))


def test_screening_without_numbers_and_what_it_was_calibrated_on():
    assert SCREENING.text(make_results(HELD_OUT)).endswith("calibrated on the 5,000 samples of “held out”.")
    results = make_results()
    empty = {name: getattr(results, name).iloc[:0] for name in ("screening", "thresholds", "stream")}
    bare = dataclasses.replace(results, **empty)
    assert SCREENING.tables(bare) == []
    assert stream_figure(bare) is None
    assert [cell(bare).text for _, cell in SCREENING.contrast()] == ["–", "–", "–"]
