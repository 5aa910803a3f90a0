"""What a report says and does not say in many situations: from logits through `evaluate` to its sentences."""

import re
import warnings
from functools import partial

import pytest
import torch

from torch_boc.evaluation import LogitSet, evaluate

CONDITION = "with 95 % probability, if samples are exchangeable with the held-out set"
# What no report says: words that are not the field's, plurals of one, numbers that are none, nothing as a result.
NEVER = re.compile(
    r"unseen|familiar|too sure|modest|points off|[Oo]ff by|promise|caught|catch|go(es)? out|data set|[Rr]epair|least su"
    r"|surest|however long|a person|honest|[Dd]ivide|\bnan\b|\binf\b|∞|confident 0 %|all 100|confident 100|"
    r"\b0\.0 % (\([^)]*\) )?of predictions can|(?<![,.\d])1 (samples|errors|times|streams|alarms|rows of)\b"
)


def draw(n, *, classes=4, strength=3.0, scale=1.0, noise=0.0, seed=2, targets=True, mix=None):
    """Calibrated logits, if `scale` is 1 and no label is replaced by noise; `mix` are the odds of the classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = strength * torch.randn(n, classes, generator=generator)
    logits = logits if mix is None else logits + torch.tensor(mix).log()
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    other = torch.randint(classes, (n,), generator=generator)
    target = torch.where(torch.rand(n, generator=generator) < noise, other, target)
    return LogitSet(logits * scale, target if targets else None)


def held_out(n=1000, **how):
    return draw(n, seed=9, **how)


def far(n=500, strength=0.3, **how):
    return draw(n, strength=strength, seed=5, targets=False, **how)


def errors(n, wrong, strength=6.0, classes=4, seed=2):
    """All correct but for so many."""
    logits = draw(n, strength=strength, classes=classes, seed=seed).logits
    return LogitSet(logits, (logits.argmax(1) + (torch.arange(n) < wrong)) % classes)


def constant(n, share, winner=0):
    """One answer, whatever the input; `share` of the targets are of class 0."""
    return LogitSet(4.0 * torch.eye(3)[winner].repeat(n, 1), (torch.arange(n) >= share * n).long())


def relabelled(data, change):
    return LogitSet(data.logits, change(data.target))


def merged(*parts):
    return LogitSet(torch.cat([x.logits for x in parts]), torch.cat([x.target for x in parts]))


def half_and_half(n=2000):
    return merged(draw(n // 2, scale=3.0, strength=2.0), draw(n // 2, scale=0.4, strength=6.0, seed=1))


OVER, UNDER, GOOD = partial(draw, scale=2.5), partial(draw, scale=0.4), partial(draw, strength=8.0)
ACCURATE, VAL = errors(3000, 9), errors(2000, 6, seed=3)
SAFE = draw(3000, strength=12.0)
FEW_CONFIDENT_ERRORS, CONFIDENT_ERRORS = (
    merged(draw(2000 - n, strength=20.0), relabelled(draw(n, strength=20.0, seed=1), lambda y: (y + 1) % 4))
    for n in (100, 200)
)
SORTED = merged(*(LogitSet(x.logits[x.target == i], x.target[x.target == i]) for x in [draw(1500)] for i in range(4)))
MASKED = LogitSet(torch.cat([draw(1000).logits, torch.full((1000, 1), -torch.inf)], 1), draw(1000).target)
ONE_HOT = torch.eye(4)[errors(1000, 80).logits.argmax(1)], errors(1000, 80).target
COPIES = merged(*[errors(300, 0, seed=3)] * 4)
WITHOUT_HELD_OUT = "torch-boc monitor new.npz --calibration test.npz --state stream.pt"
LOW_CLASS = relabelled(draw(6000), lambda y: torch.where((y == 0) & (torch.arange(6000) % 4 == 0), 1, y))
NOT_VALID = "“id” does not look like the held-out samples “val”"
# The name, the test set, OOD sets, splits and options of `evaluate`, what is said, and what is not.
SITUATIONS = [
    ("calibrated", draw(1000), {}, {}, {}, ["No miscalibration detected with 1,000 samples"], ["Calibrate with",
     "corrects"]),
    ("calibrated, held out", draw(1000), {}, {"val": held_out()}, {}, ["No miscalibration"], ["Calibrate with"]),
    ("overconfident", OVER(1000), {}, {}, {}, ["Overconfident: ECE", "Fit a calibrator on held-out samples"],
     ["Calibrate with"]),
    ("overconfident, held out", OVER(1000), {}, {"val": held_out(scale=2.5)}, {},
     ["Calibrate with vector scaling fitted on “val”."], ["Fit a"]),
    ("underconfident", UNDER(1000), {}, {}, {}, ["Underconfident: ECE"], ["verconfident:"]),
    ("underconfident, held out", UNDER(1000), {}, {"val": held_out(scale=0.4)}, {},
     ["Calibrate with vector scaling"], []),
    ("both", half_and_half(), {}, {}, {}, ["verconfident in some ranges and underconfident in others"], []),
    ("no methods", OVER(1000), {}, {"val": held_out(scale=2.5)}, {"methods": []}, ["No calibrator was fitted"],
     ["Calibrate with"]),
    ("only a temperature", OVER(1000), {}, {"val": held_out(scale=2.5)}, {"methods": ["temperature"]},
     ["Calibrate with temperature"], []),
    ("easier split", OVER(1000), {}, {"fit": errors(1000, 0, seed=3)}, {}, ["Do not fit on “fit”",
     "easier than the test set: training"], ["Calibrate with", "fitted on “fit” "]),
    ("harder split", OVER(1000), {}, {"fit": held_out(noise=1.0)}, {}, ["Do not fit on “fit”",
     "harder than the test set: other labels"], ["Calibrate with"]),
    ("harder mix", errors(1000, 110), {}, {"fit": errors(1000, 900, seed=3)}, {},
     ["accuracy is 10.0 % there and 89.0 %"], ["Calibrate with"]),
    ("easier split and a good one", OVER(1000), {}, {"fit": errors(1000, 0, seed=3), "val": held_out(scale=2.5)}, {},
     ["Do not fit on “fit”", "vector scaling fitted on “val”."], []),
    ("two good splits", OVER(1000), {}, {"a": held_out(scale=2.5), "b": draw(900, scale=2.5, seed=7)}, {},
     ["fitted on “a”."], ["Do not"]),
    ("split of the test set", OVER(1000), {}, {"val": OVER(1000)}, {},
     ["1,000 of the 1,000 rows of “id” are also in"], ["Calibrate with"]),
    ("split of ten", OVER(1000), {}, {"val": held_out(10, scale=2.5)}, {}, ["299 held-out samples needed, got 10",
     "19 held-out samples are needed"], ["Automate"]),
    ("split of 200", GOOD(1000), {}, {"val": held_out(200, strength=8.0)}, {},
     ["No prediction can be accepted at 1 % error: 299 held-out samples needed, got 200."], ["Automate"]),
    ("split of one", draw(1000), {}, {"val": held_out(1)}, {}, ["299 held-out samples needed, got 1."], []),
    ("all correct", errors(1000, 0), {}, {}, {}, ["No prediction is wrong."], ["labels do not"]),
    ("all correct, held out", errors(1000, 0), {}, {"val": errors(1000, 0, seed=3)}, {}, [f"error ≤ 1 % {CONDITION}"],
     ["not valid"]),
    ("all correct, forty", errors(40, 0), {}, {}, {}, ["“id” has 40"], ["too few to evaluate"]),
    ("one error", errors(1000, 1), {}, {}, {}, ["1 error: ", " 1 time."], []),
    ("two errors", errors(1000, 2), {}, {}, {}, ["2 errors: "], []),
    ("all wrong", errors(1000, 1000), {}, {}, {}, ["The labels do not match the logits",
     "Check the order of the classes"], ["Automate", "Calibrate with"]),
    ("labels from 1", relabelled(errors(1000, 0, classes=5), lambda y: (y + 1).clamp_max(4)), {}, {}, {},
     ["counted from 1", "With each label lower by one, it is "], ["Automate"]),
    ("classes in another order", relabelled(errors(1000, 0), lambda y: 3 - y), {}, {}, {},
     ["labels do not match"],
     ["Automate"]),
    ("labels of chance", draw(1000, noise=1.0), {}, {}, {},
     ["Accuracy no better than guessing", "Check the labels and the training"],
     ["labels do not match", "Automate", "Fit a", "Monitor"]),
    ("labels of chance, held out", draw(1000, noise=1.0), {}, {"val": held_out(noise=1.0)}, {},
     ["no better than guessing", "Check the labels"], ["Calibrate with", "Automate", "Monitor"]),
    ("two classes", draw(1000, classes=2), {}, {}, {}, ["Δ is 0 for every input"], ["level does not hold"]),
    ("two classes, overconfident", OVER(1000, classes=2), {}, {"val": held_out(scale=2.5, classes=2)}, {},
     ["Calibrate with"], ["level does not hold"]),
    ("a hundred classes", draw(1500, classes=100), {}, {}, {}, ["100 classes"], []),
    ("constant, majority", constant(1000, 0.9), {}, {}, {}, ["Every prediction is class 0, the majority class"],
     ["least confident", "most confident", "Automate"]),
    ("constant, minority", constant(1000, 0.2, 0), {}, {}, {}, ["class 0; the majority class is class 1"],
     ["Automate"]),
    ("equal logits", LogitSet(torch.zeros(1000, 4), draw(1000).target), {}, {}, {}, ["Every prediction is class 0"],
     ["Automate"]),
    ("constant without targets", LogitSet(4 * torch.eye(3)[0].repeat(500, 1)), {"far": far(classes=3)}, {}, {},
     ["no targets"], []),
    ("saturated", LogitSet(1e4 * errors(1000, 50).logits, errors(1000, 50).target), {}, {}, {},
     ["Overconfident: ECE 5.0 %"], []),
    ("one sample", draw(1), {}, {}, {}, ["1 test sample: too few to evaluate",
     "Nothing can be said with 1 test sample"], ["ECE"]),
    ("two samples", draw(2), {}, {}, {}, ["2 test samples: too few"], ["ECE"]),
    ("ten samples, OOD", draw(10), {"far": far(10)}, {}, {}, ["10 test samples: too few"], ["AUROC", "flags"]),
    ("29 samples", draw(29), {}, {"val": held_out()}, {}, ["29 test samples: too few", "Collect at least 30"],
     ["Calibrate with", "ECE"]),
    ("30 samples", draw(30), {}, {}, {}, ["“id” has 30"], ["too few to evaluate"]),
    ("99 samples", draw(99), {}, {}, {}, ["intervals too narrow: “id” has 99"], []),
    ("100 samples", draw(100), {}, {}, {}, ["with 100 samples"], ["too narrow"]),
    ("one sample without targets", draw(1, targets=False), {}, {}, {}, ["1 test sample: too few"], []),
    ("no targets", draw(1000, targets=False), {}, {}, {}, ["Calibration not evaluated: no targets"], ["ccuracy",
     "ECE", "errors"]),
    ("no targets, OOD", draw(1000, targets=False), {"far": far()}, {}, {}, ["to review finds", "“far”"],
     ["accepted at"]),
    ("no targets, held out", draw(1000, targets=False), {"far": far()}, {"val": held_out()}, {}, ["of “id” and"],
     ["not valid"]),
    ("accurate", ACCURATE, {}, {"val": VAL}, {}, [f"predictions (by uncalibrated logits): error ≤ 1 % {CONDITION}."],
     ["not valid", "needed, got"]),
    ("all can be accepted", SAFE, {}, {"val": draw(3000, strength=12.0, seed=3)}, {"methods": []}, ["Automate "],
     ["not valid"]),
    ("confident errors", CONFIDENT_ERRORS, {}, {}, {}, ["too many confident errors among the 1,000 held-out samples"],
     ["Automate"]),
    ("errors of another kind", FEW_CONFIDENT_ERRORS, {}, {"val": held_out(2000, strength=9.0)}, {}, [NOT_VALID,
     "not valid coverage at ≤ 1 % error"], ["Automate", "of predictions can be accepted", "Monitor"]),
    ("held out more confident", draw(1000), {}, {"val": held_out(scale=3.0)}, {},
     ["The FPR is not valid here, because " + NOT_VALID, "Collect held-out samples like"], ["Automate", "Monitor"]),
    ("held out less confident", draw(2000, scale=3.0), {}, {"val": held_out(2000)}, {}, [NOT_VALID], ["Automate",
     "of predictions can be accepted"]),
    ("held out less confident, OOD", draw(2000, scale=3.0), {"far": far()}, {"val": held_out(2000)}, {},
     ["bound on false alarms is not valid", "alarms before the first OOD"], ["false alarm in", "ever raising"]),
    ("far OOD", draw(1000), {"far": far()}, {"val": held_out()}, {}, ["GEN detects",
     "Median detection delay for “far”", "ever raising a false alarm is at most 1 %, if samples are exch"],
     ["better than chance"]),
    ("OOD like the test set", draw(1000), {"same": draw(500, seed=7)}, {"val": held_out()}, {},
     ["“same” no score is shown", "“same” is not shown to be flagged more"], ["delay for “same”: 1"]),
    ("confident OOD", draw(1000), {"far": far(strength=9.0)}, {"val": held_out()}, {}, ["of “far” passes undetected"],
     []),
    ("two OOD sets", draw(1000), {"a": far(), "b": far(400)}, {}, {}, ["delay for “a”", "delay for “b”"], []),
    ("three OOD sets", draw(1000), {x: far() for x in "abc"}, {}, {}, ["Median detection delay on 3 of 3 OOD sets"],
     ["“a”: "]),
    ("seven OOD sets", draw(600), {x: far(100 + ord(x)) for x in "abcdefg"}, {}, {}, ["on 7 of 7 OOD sets"], []),
    ("one OOD sample", draw(1000), {"far": far(1)}, {}, {}, ["“far” has 1"], []),
    ("ten OOD samples", draw(1000), {"far": far(10)}, {}, {}, ["“far” has 10"], []),
    ("OOD of the test set", draw(1000), {"far": LogitSet(draw(1000).logits)}, {}, {},
     ["are also in the out-of-distribution set"], []),
    ("no OOD", draw(1000), {}, {}, {}, ["No OOD set was given"], ["delay"]),
    ("constant OOD", draw(1000), {"far": LogitSet(torch.zeros(300, 4))}, {}, {}, ["delay for “far”"], []),
    ("probabilities", (draw(1000).logits.softmax(1), draw(1000).target), {}, {}, {"from_probabilities": True},
     ["No miscalibration"], ["energy"]),
    ("probabilities of 0", ONE_HOT, {}, {}, {"from_probabilities": True}, ["Overconfident: ECE 8.0 %"], []),
    ("half precision", LogitSet(draw(1000).logits.half(), draw(1000).target), {}, {}, {}, ["No miscalibration"], []),
    ("a masked class", MASKED, {}, {}, {}, ["5 classes"], []),
    ("rare classes", draw(1000, mix=[97.0, 1.0, 1.0, 1.0]), {}, {}, {}, ["ccuracy"], ["Every prediction"]),
    ("each row four times", LogitSet(draw(300).logits.repeat(4, 1), draw(300).target.repeat(4)), {}, {}, {},
     ["900 of the 1,200 rows of “id” repeat an earlier row: if they are the same samples, intervals are too narrow"],
     []),
    ("held-out rows four times", errors(1000, 0), {}, {"val": errors(400, 0, seed=3)}, {}, [f"error ≤ 1 % {CONDITION}"],
     ["repeated rows", "repeat an earlier"]),
    ("held-out copies", errors(1000, 0), {"far": far()}, {"val": COPIES}, {},
     ["900 of the 1,200 rows of “val” repeat", f"error ≤ 1 % {CONDITION} and its repeated rows are different samples",
      "false alarm ≤ 1 %, if samples are exchangeable with the held-out set and its repeated rows are different"], []),
    ("held-out copies, refuted", GOOD(1000), {"far": far()}, {"val": merged(*[held_out(250, strength=8.0)] * 4)}, {},
     ["750 of the 1,000 rows of “val” repeat", NOT_VALID], ["Automate", "Monitor"]),
    ("a tenth repeated", LogitSet(*(torch.cat([x, x[:100]]) for x in (draw(1000).logits, draw(1000).target))), {}, {},
     {}, ["1,100 samples"], ["repeat an earlier"]),
    ("a class with lower precision", LOW_CLASS, {}, {}, {}, ["Miscalibrated by class: "], []),
    ("classes calibrated", draw(3000), {}, {}, {}, [], ["Miscalibrated by class"]),
    ("leaking split, OOD", OVER(1000), {"far": far()}, {"val": OVER(1000)}, {}, ["are also in the calibration split",
     "Fit a calibrator on held-out samples"], ["fitted on “val”."]),
    ("harder split, OOD", draw(1000), {"far": far()}, {"val": held_out(noise=0.5)}, {}, ["Do not fit on “val”",
     "harder than the test set"], ["samples “val”"]),
    ("all wrong, held out", errors(1000, 1000), {}, {"val": held_out()}, {}, ["The labels do not match the logits",
     "Check the order"], ["Automate", "Calibrate with"]),
    ("all wrong in both", errors(1000, 1000), {}, {"val": errors(1000, 1000, seed=3)}, {}, ["Check the order"],
     ["Automate", "Calibrate with"]),
    ("constant in both", constant(1000, 0.9), {}, {"val": constant(900, 0.9)}, {}, ["Check the training of the model"],
     ["Automate", "Calibrate with"]),
    ("more classes than samples", draw(60, classes=200, strength=6.0), {}, {"val": held_out(90, classes=200)}, {},
     ["200 classes", "299 held-out samples needed, got 30"], ["Automate", "Miscalibrated by class"]),
    ("held out 30", OVER(1000), {"far": far()}, {"val": held_out(30, scale=2.5)}, {},
     ["299 held-out samples needed, got 30", "“val” has 30"], ["Automate", "of predictions can be accepted"]),
    ("held out 298", errors(1000, 0), {}, {"val": errors(298, 0, seed=3)}, {}, ["299 held-out samples needed, got 298"],
     ["Automate"]),
    ("held out 299", errors(1000, 0), {}, {"val": errors(299, 0, seed=3)}, {}, [f"error ≤ 1 % {CONDITION}",
     "Automate all predictions"], ["needed"]),
    ("two classes, OOD", draw(1000, classes=2), {"far": far(classes=2)}, {"val": held_out(classes=2)}, {},
     ["Δ is 0 for every input"], ["level does not hold"]),
    ("no held out, calibrated", draw(1000, strength=9.0), {}, {}, {}, [WITHOUT_HELD_OUT], ["val.npz"]),
    ("calibrate and automate", OVER(3000, strength=8.0), {}, {"val": held_out(3000, strength=8.0, scale=2.5)}, {},
     ["Calibrate with vector scaling", "predictions (by uncalibrated logits): error ≤ 1 %"], ["not valid"]),
    ("sorted by class", SORTED, {"far": far()}, {}, {}, ["Median detection delay"], ["not valid"]),
    ("training samples in the test set", draw(1000), {}, {}, {"train": draw(1000)}, ["are also in the training set"],
     []),
]  # fmt: skip


def told(report):
    """All that a reader sees first, and what is in the fold."""
    story = report.story
    parts = [
        story.finding,
        *(f"{x.text} {x.label} {x.note}" for x in story.numbers),
        *map(" ".join, story.actions),
        *story.verdict,
    ]
    return "\n".join(parts), "\n".join(said for section in story.sections for said in section.aside)


@pytest.mark.parametrize(
    ("test", "ood", "splits", "options", "said", "unsaid"), [x[1:] for x in SITUATIONS], ids=[x[0] for x in SITUATIONS]
)
def test_what_is_said(test, ood, splits, options, said, unsaid):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the report says it
        report = evaluate(test, ood, calibration=splits, replicates=40, **options)
    visible, aside = told(report)
    assert [words for words in said if words not in visible] == [], visible
    assert [words for words in unsaid if words in visible + aside] == [], visible
    assert NEVER.findall(visible + aside) == []
    assert "paper" not in visible
    for line in visible.splitlines():
        assert "error ≤" not in line or CONDITION in line
        assert "alse alarm" not in line or "exchangeable" in line or "not valid" in line or "streams of" in line
    if report.results.settings["violations"]:
        assert "not valid" in visible
        assert not any(text.startswith("Automate") for text, _ in report.story.actions)


def test_each_situation_is_another():
    assert len({name for name, *_ in SITUATIONS}) == len(SITUATIONS) >= 90
