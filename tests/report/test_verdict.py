"""Each sentence of the verdict, driven by crafted numbers: it claims no more than its intervals allow."""

import math

import pytest

from tests.report.cases import LEAK, NAN, compared, concluded, make_results
from torch_boc.report.results import Results
from torch_boc.report.story import make_narrative

HELD_OUT, THREE = ("held out",), ("a", "b", "c")


def changed(results, table, where, **values):
    """The results with some cells of a table replaced; an interval moves with its value."""
    if table == "settings":
        return Results({**results.settings, **values}, results.tables)
    frame = getattr(results, table).copy()
    rows = frame.eval(where)
    assert rows.any(), where
    for column, value in values.items():
        frame.loc[rows, column] = value
        if f"{column}_low" in frame and f"{column}_low" not in values:
            half = 0.0003 if column.startswith("versus") else 0.004
            frame.loc[rows, [f"{column}_low", f"{column}_high"]] = [value - half, value + half]
    return concluded(results.settings, {**results.tables, table: compared(frame) if "ece" in values else frame})


def calibrated(method, ece, **more):
    return "calibration", f"method == '{method}'", {"ece": ece, **more}


def score(name, auroc, ood="svhn", versus=None):
    versus = auroc - 0.8907 if versus is None else versus
    return "ood", f"score == '{name}' and ood == '{ood}'", {"auroc": auroc, "versus_msp": versus}


def detected(name, fpr95, ood="svhn"):
    return "ood", f"score == '{name}' and ood == '{ood}'", {"fpr95": fpr95}


def gained(value, name="svhn"):
    return score("dominance", 0.8907 + value, name)


def flagged(where, **values):
    return "screening", f"{where} and alpha == 0.05", values


def power(low, share, high):
    where = "kind == 'ood' and score == 'gen'"
    return flagged(where, flagged=share, flagged_low=low, flagged_high=high)


ALL_WORSE = ("calibration", "split != ''", {"ece": 0.07})
ENERGY_ID = "kind == 'id' and score == 'energy'"
UPRIGHT = "score != 'structural_score'"
UNSURE = ("ood", "score == 'dominance'", {"versus_msp_low": NAN, "versus_msp_high": NAN})
WARM = ("calibration", "method == 'temperature'", {"temperature": 1.3})
EXACT = ("calibration", "split == 'held out' and method == 'vector scaling'", {"ece_low": 0.0})
NO_VECTOR = ("calibration", "method == 'vector scaling'", {"ece": 0.06})
NOTHING = ("acceptance", "error == 0.01", {"accepted": 0.0, "wrong": NAN, "threshold": math.inf})
COUNTED_FROM_1 = ("settings", "", {"accuracy": 0.008, "shifted_accuracy": 0.917})
HARDER = ("leaks", "split == 'held out'", {"accuracy": 0.1, "suspicious": True})
WRONG = ("acceptance", "error == 0.01", {"wrong": 0.022, "wrong_low": 0.016, "wrong_high": 0.029})
REJECTED = flagged("test == 'paper' and kind == 'id'", flagged=0.03)
REPEATED = ("settings", "", {"repeated": {"test": 1500}})
FEW_HELD_OUT = flagged("kind == 'id'", flagged=0.103, flagged_low=0.095, rate_low=0.001, rate_high=0.12)
FEW_HELD_OUT[2]["held_out_samples"] = 30
GUARANTEE = "error ≤ 1 % with 95 % probability, if samples are exchangeable with the held-out set"


def violation(*names):
    return "settings", "", {"violations": list(names)}


def delay(**values):
    return "delays", "streams > 0", values


# What the results are made of, the changes, words of one sentence, and words that no sentence has.
CASES = [
    (((),), [], "No calibrator was fitted on held-out samples.", "training data"),
    (((),), [calibrated("BoC", 0.01)], "No calibrator was fitted on held-out samples.", "ominance q̄ (BoC)"),
    ((HELD_OUT,), [ALL_WORSE, calibrated("isotonic", 0.0093)], "Isotonic fitted on “held out” improves it: ECE", ""),
    ((HELD_OUT,), [], "Vector scaling fitted on “held out” improves it: ECE 1.1 %", "corrects"),
    ((HELD_OUT,), [EXACT], "Vector scaling fitted on “held out” corrects it: ECE 1.1 %", "improves"),
    (((LEAK,),), [ALL_WORSE, calibrated("isotonic", 0.0093)], "No calibrator was fitted on held-out samples",
     "improves"),
    ((HELD_OUT,), [HARDER], "10.0 % there and 91.7 % on the test set (p < 0.001). The split is harder than",
     "improves"),
    ((HELD_OUT,), [ALL_WORSE, calibrated("isotonic", 0.05)], "No calibrator is shown to improve it (corrected for 3",
     "is expected of"),
    ((HELD_OUT,), [ALL_WORSE, calibrated("MSP", 0.0532, ece_low=0.0)], ", 0.5 % is expected of a calibrated m", ""),
    ((HELD_OUT,), [("gaps", "kind == 'id'", {"confidence": 0.86})], "(4.9 to 5.7 %), underconfident.", "overconf"),
    (((LEAK,),), [WARM], "Calibrators fitted there do not transfer.", "raises the confidence"),
    (((), (), False), [], "“test” has no targets: calibration is not evaluated.", "used as a confidence"),
    ((), [("settings", "", {"accuracy": 0.11})], "accuracy 91.7 %: ECE", "guessing"),
    ((("val",),), [REPEATED], f"can be accepted: {GUARANTEE}. Here", "different samples"),
    ((), [FEW_HELD_OUT], "With 30 held-out samples the FPR is 0.1 % to 12.0 % in 95 % of draws, if s", ""),
    ((), [], "conformal test of GEN flags", "of draws"),
    ((), [detected("odin", 0.4)], "svhn” confidence detects 27.9 % at 5 % FPR (AUROC 0.8907 (0.8867 to", ""),
    ((), [detected("mahalanobis", 0.4)], "0.8947)) and Mahalanobis detects 60.0 %.", "GEN detects"),
    ((), [("ood", UPRIGHT, {"auroc": 0.4}), score("energy", 0.503)], "than chance (corrected for 11", "detects"),
    (((), THREE), [detected("energy", 0.1, "b")], "On “b” confidence detects 27.9 % at 5 %", "energy detects"),
    (((), THREE), [("ood", f"ood != 'a' and {UPRIGHT}", {"auroc": 0.5})], "On “b” and “c” no score is shown to", ""),
    ((), [("ood", "auroc > 0", {"auroc": NAN, "versus_msp": NAN})], "forces most of the coherence gap", "backwards"),
    ((), [gained(0.01)], "by +0.0100 (+0.0097 to +0.0103): the geometry of the logits adds to confidence.", ""),
    ((), [gained(-0.01)], ": it ranks worse than confidence.", ""),
    ((), [gained(0.004)], ": it adds nothing of practical size to confidence.", "geometry"),
    ((), [gained(-0.004)], ": it adds nothing of practical size to confidence.", "ranks worse"),
    ((), [score("gap", 0.95)], ": it adds nothing of practical size to confidence.", "geometry"),
    (((), ("a", "b")), [gained(0.01, "a"), gained(-0.01, "b")], "on “a” and it ranks worse than confidence on “b”",
     ""),
    ((), [UNSURE, ("gaps", "gap > 0", {"r2": NAN})], "from confidence's by +0.0001: the samples are too", "()"),
    (((), THREE), [], "forces most of the coherence gap Δ: 95.4 % on 4 sets.", ""),
    ((), [("gaps", "set == 'svhn'", {"forced_gap": 0.05})], "gap Δ: 95.4 % on “test” (R² 0.996) and 35.8 %", ""),
    ((), [], f"69.8 % (69.4 to 70.2 %) of predictions can be accepted: {GUARANTEE}. Here 0.6 % (", "not valid"),
    ((("val",),), [WRONG, violation("error")], "“test” does not look like the held-out samples “val”: asked for",
     "can be"),
    ((), [WRONG, violation("error")], "because it fails for up to 5 % of held-out sets: asked for 1 % error, it",
     "look"),
    ((), [], "the least confident 15 % leaves an accuracy of 98.2 % and finds 77.7 % of the errors a", ""),
    (((), ("svhn",), False), [], "Reviewing the least confident 15 % finds 77.7 % of “svhn”.", "errors"),
    ((), [flagged("kind == 'ood'", chance=0.06)], "“svhn” is not shown to be flagged more often than ID sam", ""),
    ((), [power(0.10, 0.106, 0.11)], "; 89.4 % of “svhn” passes undetected.", ""),
    ((), [power(0.49, 0.52, 0.55)], "conformal test of GEN flags", "undetected"),
    ((("val",),), [flagged(ENERGY_ID, chance=1e-5), violation("flagged")], "than chance explains (p < 0.001).",
     "can be"),
    (((), THREE), [], "and 27.0 % on 3 sets; 73.0 % on 3 sets pass undetected.", ""),
    ((), [], "Median detection delay for “svhn”: 14 samples (90 % within 19).", "no alarm"),
    ((), [delay(delay=1.0, early=1)], "for “svhn”: 1 sample (90 % within 19); 1 false alarm in 25 streams of 300 ID",
     ""),
    ((), [delay(delay=math.inf, delay_most=math.inf, missed=20)], "“svhn” is not detected; no alarm in 20 of 25",
     "delay"),
]  # fmt: skip
# The same of the sentences that are in the fold with the paper's numbers.
ASIDE = [
    ((), [score("structural_score", 0.99)], "does not rank backwards here (AUROC 0.9900 on “svhn”)", "ranks backwards"),
    ((), [score("structural_score", 0.497)], "rank forwards or backwards here (AUROC 0.4970", "ranks backwards"),
    (((), ("svhn", "far")), [score("structural_score", 0.7, "far")], "(AUROC 0.7000 on “far”) (corrected for 2", ""),
    ((), [("gaps", "gap > 0", {"gap": 0.0})], "ranks backwards", "coherence gap Δ"),
    ((), [], "rejects 12.8 % of “test” at the 5 % level: its level does not hold", ""),
    ((), [REJECTED], "rejects 3.0 % of “test” at the 5 % level.", "not hold"),
    ((), [("settings", "", {"classes": 2})], "rejects 12.8 % of “test” at the 5 % level.", "not hold"),
    ((), [calibrated("BoC", 0.0536)], "is not shown to be better or worse calibrated than confidence itself", ""),
    ((), [calibrated("BoC", 0.02)], "is better calibrated than confidence itself: ECE 2.0 %", ""),
]


def told(arguments, changes):
    results = make_results(*arguments)
    for table, where, values in changes:
        results = changed(results, table, where, **values)
    return make_narrative(results)


@pytest.mark.parametrize(("arguments", "changes", "said", "unsaid"), CASES)
def test_sentences(arguments, changes, said, unsaid):
    sentences = told(arguments, changes).verdict
    assert sum(said in sentence for sentence in sentences) == 1, sentences
    assert not unsaid or not any(unsaid in sentence for sentence in sentences)


@pytest.mark.parametrize(("arguments", "changes", "said", "unsaid"), ASIDE)
def test_sentences_of_the_paper_are_in_its_fold(arguments, changes, said, unsaid):
    story = told(arguments, changes)
    (sentences,) = (section.aside for section in story.sections if section.aside)
    assert sum(said in sentence for sentence in sentences) == 1, sentences
    assert not unsaid or not any(unsaid in sentence for sentence in sentences)
    assert not any("paper" in sentence for sentence in story.verdict)


@pytest.mark.parametrize(
    ("arguments", "changes", "finding", "tile", "first"),
    [
        ((HELD_OUT,), [], "Overconfident: ECE 5.3 %; vector scaling improves it to 1.1 %", "69.8 %",
         "Calibrate with v"),
        ((HELD_OUT,), [EXACT], "Overconfident: ECE 5.3 %; vector scaling corrects it", "69.8 %",
         "Calibrate with vec"),
        ((HELD_OUT,), [NO_VECTOR], "Overconfident: ECE 5.3 %; isotonic", "69.8 %",
         "Calibrate with isotonic fitted"),
        ((HELD_OUT,), [calibrated("MSP", 0.0532, ece_low=0.0)], "No miscalibration detected with 10,000", "69.8 %",
         ""),
        (((),), [("gaps", "kind == 'id'", {"confidence": 0.92})], "Overconfident in some ranges", "69.8 %",
         "Fit a calib"),
        (((LEAK,),), [], "Overconfident: ECE 5.3 %", "69.8 %", "Fit a calibrator on held-out samples"),
        ((HELD_OUT,), [ALL_WORSE], "Overconfident: ECE 5.3 %", "69.8 %",
         f"Automate the 69.8 % most confident predictions: {GUARANTEE}."),
        ((HELD_OUT,), [ALL_WORSE, NOTHING], "Overconfident", "none", "Review the least confident 15 %."),
        ((HELD_OUT,), [ALL_WORSE, WRONG, violation("error")], "Overconfident", "not valid",
         "Collect held-out samples"),
        (((), (), False), [], "Calibration not evaluated: no targets", None, "Monitor for drift."),
        ((), [COUNTED_FROM_1], "The labels do not match the logits", "69.8 %", "Check the order of the classes"),
        ((), [("settings", "", {"samples": {"test": 12}})], "12 test samples: too few to evaluate", None,
         "Collect at least 30"),
    ],
)  # fmt: skip
def test_finding_tile_and_first_action(arguments, changes, finding, tile, first):
    story = told(arguments, changes)
    assert story.finding.startswith(finding)
    assert story.actions[0][0].startswith(first)
    assert [number.text for number in story.numbers if number.key == "coverage"] == ([] if tile is None else [tile])
    if "vector scaling" in story.finding:  # what is advised is drawn
        assert "vector scaling, held out: ECE" in story.figures["reliability"]


def test_what_is_screened_with_the_numbers_of_a_report():
    """The test set where its halves were compared, and uncalibrated logits where calibration is advised, too."""
    for splits, held_out, raw in (((), "test.npz", ""), (HELD_OUT, "val.npz", " (by uncalibrated logits)")):
        (automate,) = (action for action in told((splits,), []).actions if action[0].startswith("Automate"))
        assert automate[0] == f"Automate the 69.8 % most confident predictions{raw}: {GUARANTEE}."
        assert automate[1] == f"torch-boc screen new.npz --calibration {held_out} --error 0.01 -o queue.csv"


def test_without_numbers_of_screening():
    results = make_results()
    empty = {name: getattr(results, name).iloc[:0] for name in ("screening", "stream", "delays", "review")}
    bare = make_narrative(concluded(results.settings, {**results.tables, **empty}))
    assert "stream" not in bare.figures
    assert not any("flag" in sentence for sentence in bare.verdict)
