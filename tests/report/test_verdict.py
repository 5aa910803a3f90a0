"""Each sentence of the verdict, driven by crafted numbers: it claims no more than its intervals allow."""

import dataclasses
import math

import pytest

from tests.report.cases import LEAK, NAN, compared, make_results
from torch_boc.report.topics import tell

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
            half = 0.0003 if column.startswith("versus") else 0.004
            frame.loc[rows, [f"{column}_low", f"{column}_high"]] = [value - half, value + half]
    return dataclasses.replace(results, **{table: compared(frame) if "ece" in values else frame})


def calibrated(method, ece, **more):
    return "calibration", f"method == '{method}'", {"ece": ece, **more}


def score(name, auroc, ood="svhn", versus=None):
    versus = auroc - 0.8907 if versus is None else versus
    return "ood", f"score == '{name}' and ood == '{ood}'", {"auroc": auroc, "versus_msp": versus}


def caught(name, fpr95, ood="svhn"):
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
SHARED = ("overlaps", "set == 'svhn'", {"shared": 1234, "suspicious": True})
STRUCTURED = ("calibration", "method == 'structured scaling'", {"fold_nll": 0.29})
NINE = ("screening", "test == 'conformal'", {"flagged": NAN, "held_out_samples": 9})
NOTHING = ("acceptance", "error == 0.01", {"accepted": 0.0, "wrong": NAN, "threshold": math.inf})
COUNTED_FROM_1 = ("settings", "", {"accuracy": 0.008, "shifted_accuracy": 0.917})
# What the results are made of, the changes, words of one sentence, and words that no sentence has.
CASES = [
    (((),), [], "Nothing was fitted on other samples, and dominance q̄ is not shown to be", "training data"),
    (((),), [calibrated("BoC", 0.01)], "It is repaired by dominance q̄ (BoC): off by 1.0 points (0.6 to 1.4)", ""),
    ((HELD_OUT,), [ALL_WORSE, calibrated("isotonic", 0.0093)], "It is repaired by isotonic fitted", "as good"),
    (((LEAK,),), [ALL_WORSE, calibrated("isotonic", 0.0093)], "though that split is easier than the test set: off", ""),
    ((HELD_OUT,), [ALL_WORSE, calibrated("isotonic", 0.05)], "No method is shown to be better than", "be perfect"),
    ((HELD_OUT,), [ALL_WORSE, calibrated("MSP", 0.0532, ece_low=0.0)], "makes 0.5 points, so that it may be perf", ""),
    ((HELD_OUT,), [("gaps", "kind == 'id'", {"confidence": 0.86})], "(4.9 to 5.7), too modest.", "too sure"),
    ((HELD_OUT,), [("gaps", "kind == 'id'", {"confidence": 0.92})], "too sure in some places and too modest in o", ""),
    (((LEAK,),), [WARM], "What is fitted there does not hold for other samples.", "more sure"),
    (((), (), False), [], "“test” has no targets, so nothing is said of calibration.", "used as a confidence"),
    (((), (), False), [], "No out-of-distribution set was given, so nothing is said of detection.", "stream"),
    ((), [("settings", "", {"samples": {"test": 60, "svhn": 9_999}})], "intervals too narrow: “test” has 60.", ""),
    ((), [COUNTED_FROM_1], "Labels may be counted from 1, or the classes may be in another order. With each", ""),
    ((), [("settings", "", {"accuracy": 0.095})], "is right 91.7 % of the time: off by", "labels"),
    ((), [SHARED], "1,234 of the 10,000 rows of “test” are also in", ""),
    ((), [caught("odin", 0.4)], "svhn” confidence catches 27.9 % at 5 % false alarms (AUROC 0.8907 (0.8867 to", ""),
    ((), [caught("mahalanobis", 0.4)], "0.8947)) and Mahalanobis catches 60.0 %.", "GEN catches"),
    ((), [("ood", UPRIGHT, {"auroc": 0.4}), score("energy", 0.503)], "than chance (corrected for 11", "catches"),
    (((), THREE), [caught("energy", 0.1, "b")], "On “b” confidence catches 27.9 % at 5 %", "energy catches"),
    (((), THREE), [("ood", f"ood != 'a' and {UPRIGHT}", {"auroc": 0.5})], "On “b” and “c” no score is shown to", ""),
    ((), [("ood", "auroc > 0", {"auroc": NAN, "versus_msp": NAN})], "forces most of the coherence gap", "backwards"),
    ((), [score("structural_score", 0.99)], "does not rank backwards here (AUROC 0.9900 on “svhn”)", "ranks backwards"),
    ((), [score("structural_score", 0.497)], "rank forwards or backwards here (AUROC 0.4970", "ranks backwards"),
    (((), ("svhn", "far")), [score("structural_score", 0.7, "far")], "(AUROC 0.7000 on “far”) (corrected for 2", ""),
    ((), [gained(0.01)], "by +0.0100 (+0.0097 to +0.0103), so the geometry of the logits adds something to", ""),
    ((), [gained(-0.01)], "so the geometry misleads.", ""),
    ((), [gained(0.0002)], "so it is not shown to add anything to confidence: at most 0.0005.", ""),
    ((), [score("gap", 0.95)], "so it is not shown to add anything to confidence: at most 0.0004.", "adds something"),
    (((), ("a", "b")), [gained(0.01, "a"), gained(-0.01, "b")], "on “a” and the geometry misleads on “b” (corr", ""),
    ((), [UNSURE, ("gaps", "gap > 0", {"r2": NAN})], "from that of confidence by +0.0001, so there are too few", "()"),
    (((), THREE), [], "forces most of the coherence gap Δ: 95.4 % on 4 sets.", ""),
    ((), [("gaps", "set == 'svhn'", {"forced_gap": 0.05})], "gap Δ: 95.4 % on “test” (R² 0.996) and 35.8 %", ""),
    ((), [("gaps", "gap > 0", {"gap": 0.0})], "ranks backwards", "coherence gap"),
    ((), [("settings", "", {"classes": 2})], "Δ is 0 for every input", "used as a confidence"),
    ((), [calibrated("BoC", 0.0536)], "is calibrated about as well as confidence itself: off by 5.4 points", ""),
    ((), [calibrated("BoC", 0.02)], "q̄ itself is too high: it is 99.7 % on average, and 91.7 % are right.", ""),
    ((), [calibrated("BoC", 0.02), ("gaps", "kind == 'id'", {"dominance": 0.92})], "better calibrated, b", "too high"),
    ((), [], "69.8 % (69.4 to 70.2 %) may go out unseen: with a chance of 95 % at most 1 % of these are", ""),
    ((), [NOTHING], "Nothing may go out unseen at 1 % error: too few of 5,000 held-out samples", "% may go"),
    ((), [], "the least sure 15 %, the rest is right 98.2 % of the time, and 77.7 % of the errors a", ""),
    (((), ("svhn",), False), [], "If a person sees the least sure 15 %, 77.7 % of “svhn” are caught.", "errors"),
    ((), [flagged("kind == 'ood'", chance=0.06)], "“svhn” are not shown to be flagged more often than familiar", ""),
    ((), [power(0.10, 0.106, 0.11)], "it keeps its promise, but 89.4 % of “svhn” pass.", ""),
    ((), [power(0.49, 0.52, 0.55)], "conformal test of GEN flags", "keeps its promise"),
    ((), [NINE], "With 9 held-out samples nothing can be flagged at 5 % false alarms", ""),
    ((("val",),), [flagged(ENERGY_ID, chance=1e-5)], "(p = 4.0e−05). The held-out samples “val” are not like it.", ""),
    ((("val",),), [flagged(ENERGY_ID, chance=0.02)], "flags", "is not kept"),  # of 4 comparisons
    ((), [flagged(ENERGY_ID, chance=1e-5)], "flags", "is not kept"),  # two halves are alike
    (((), THREE), [], "and 27.0 % on 3 sets; it keeps its promise, but 73.0 % on 3 sets pass.", ""),
    (((), THREE), [], "Alarm in 3 of 3 streams that turn unfamiliar, 31 samples later", ""),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "changes", "said", "unsaid"), CASES)
def test_sentences(arguments, changes, said, unsaid):
    results = make_results(*arguments)
    for table, where, values in changes:
        results = changed(results, table, where, **values)
    sentences = tell(results).verdict
    assert sum(said in sentence for sentence in sentences) == 1, sentences
    assert not unsaid or not any(unsaid in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (lambda sample: -1.0, "No alarm within the 200 samples after “svhn” begins"),
        (lambda sample: 5.0 if sample >= 20 else 0.0, "A false alarm at sample 20, before “svhn” begins"),
        (lambda sample: math.log(100) if sample == 301 else 0.0, "Alarm 1 sample after “svhn” begins"),
    ],
)
def test_the_alarm_of_a_stream(evidence, words):
    results = make_results()
    table = results.stream.assign(evidence=results.stream["sample"].map(evidence))
    assert any(words in text for text in tell(dataclasses.replace(results, stream=table)).verdict)


@pytest.mark.parametrize(
    ("arguments", "changes", "finding", "first"),
    [
        ((HELD_OUT,), [], "Too sure by 5 points; one number repairs it", "Divide the logits by 1.52 before the"),
        ((HELD_OUT,), [STRUCTURED], "Too sure by 5 points; structured scaling fitted on", "Calibrate by structured sc"),
        ((HELD_OUT,), [calibrated("MSP", 0.0532, ece_low=0.0)], "Its confidence is honest, as far as 10,000", ""),
        (((),), [("gaps", "kind == 'id'", {"confidence": 0.92})], "Off by 5 points, too sure", "Repair the conf"),
        ((HELD_OUT,), [ALL_WORSE], "Too sure by 5 points", "Let the surest 69.8 % go out unseen: at most 1 % are wr"),
        ((HELD_OUT,), [ALL_WORSE, NOTHING], "Too sure by 5 points", "Let a person see the least sure 15 %."),
        (((), (), False), [], "Confidence is not checked, because there are no targets", "Watch"),
        ((), [COUNTED_FROM_1], "The labels do not seem to fit the logits", "Check the order of the classes"),
    ],
)
def test_the_title_is_the_finding_and_the_first_step_follows(arguments, changes, finding, first):
    results = make_results(*arguments)
    for table, where, values in changes:
        results = changed(results, table, where, **values)
    story = tell(results)
    assert story.finding.startswith(finding)
    assert story.actions[0][0].startswith(first)
    if "structured scaling" in story.finding:  # what is advised is drawn
        assert "structured scaling, held out: ECE" in story.figures["reliability"]


def test_without_numbers_of_screening():

    results = make_results()
    empty = {name: getattr(results, name).iloc[:0] for name in ("screening", "thresholds", "stream", "review")}
    bare = tell(dataclasses.replace(results, **empty))
    assert "stream" not in bare.figures
    assert not any("flag" in sentence for sentence in bare.verdict)
