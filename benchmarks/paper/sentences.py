"""What the page says in words, every number and every direction of it computed."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.beyond import SPLINE
from benchmarks.paper.curves import GAP, Curve, ood_of
from benchmarks.paper.experiments import METHODS, Ours, calibration_of
from torch_boc.report.parts import Cell, Table
from torch_boc.report.words import interval_text, number, p_text, percent, symbol

NLL = "val/boc/nll"

LITTLE = 0.01
NEAR = 0.001
NAMES = {"confidence": "p̂", SPLINE: "any function of p̂", "gap": "Δ", "free_gap": "free Δ", "concentration": "ρ"}
HOW = {"alone": "alone, −", "strata": "at equal p̂, −", "model": "model, p̂ + "}


def reasons(ours: Ours) -> list[str]:
    """Why our numbers are as they are."""
    return [_confidence(ours), *_splits(ours), _ranking(ours)]


def _confidence(ours: Ours) -> str:
    test, accuracy = ours.results.gaps.iloc[0], ours.results.settings["accuracy"]
    errors = calibration_of(ours.results, None)
    sure = "overconfident" if test["confidence"] > accuracy else "underconfident"
    change = "raises" if errors["BoC"]["ece"] > errors["MSP"]["ece"] else "lowers"
    return (
        "q̄ is never below p̂, so as a confidence it can only help a network that is not sure enough. This one is "
        f"{sure} on the whole: mean p̂ {number(test['confidence'])} at an accuracy of {number(accuracy)}. Mean q̄ is "
        f"{number(test['dominance'])}, and {change} the ECE from {number(errors['MSP']['ece'])} to "
        f"{number(errors['BoC']['ece'])}."
    )


def _splits(ours: Ours) -> list[str]:
    found = []
    for results, split in ((ours.results, ours.training_split), (ours.held_out, ours.held_out_split)):
        if split is None:
            continue
        table, leak = calibration_of(results, split), results.leaks.set_index("split").loc[split]
        errors = [table[method]["ece"] for method in METHODS]
        looks = f"which is {'' if leak['suspicious'] else 'not '}easier than chance explains"
        found.append(
            f"Fitted on “{split}”, the temperature is {number(table['temperature']['temperature'], 3)} and the ECE of "
            f"the calibrators {number(min(errors))} to {number(max(errors))}, against {number(table['MSP']['ece'])} of "
            f"MSP on the same samples. Accuracy on that split is {number(leak['accuracy'])}, on test "
            f"{number(leak['test_accuracy'])} (p {p_text(leak['p_value'])}), {looks}."
        )
    return found


def _ranking(ours: Ours) -> str:
    scores = ours.detection
    gap, msp = scores["gap"], scores["msp"]
    best = max((score for score in scores if score != "structural_score"), key=lambda score: scores[score]["auroc"])
    distance = abs(gap["versus_msp"])
    again = "confidence again" if distance <= NEAR else "nearly confidence" if distance <= LITTLE else "not confidence"
    return (
        f"As a ranking −Δ is {again}: AUROC {number(gap['auroc'])} against {number(msp['auroc'])} of MSP, a "
        f"difference of {number(gap['versus_msp'], sign=True)} ({interval_text(gap, 'versus_msp', sign=True)}). "
        f"The best of all scores is {symbol(best)}, with {number(scores[best]['auroc'])}."
    )


def row_of(table: Any, how: str, what: str) -> Mapping[str, Any]:
    """One row of `beyond_confidence`."""
    row: Mapping[str, Any] = table[(table["how"] == how) & (table["what"] == what)].iloc[0]
    return row


def verdict(table: Any) -> str:
    """Whether there is anything beyond confidence, in a few words: does a model gain, or are the rivals different?"""
    model = row_of(table, "model", "concentration")
    if model["versus_confidence_low"] > 0:
        return "yes, but little" if model["versus_confidence"] < LITTLE else "yes"
    return "a trace, of no proven use" if differs(row_of(table, "strata", "concentration")) else "no"


def differs(row: Mapping[str, Any]) -> bool:
    """Whether an AUROC is not chance."""
    return bool(row["auroc_high"] < 0.5 or row["auroc_low"] > 0.5)


def answer(name: str, ood: str, table: Any) -> str:
    """The same in a sentence, with the numbers."""
    within, model = row_of(table, "strata", "concentration"), row_of(table, "model", "concentration")
    base = max((row_of(table, "model", what) for what in ("confidence", SPLINE)), key=lambda row: row["auroc"])
    at_equal = "the rivals are as concentrated in both sets, as far as can be told"
    if differs(within):
        rivals = "more evenly matched" if within["auroc"] < 0.5 else "more concentrated"
        at_equal = f"the OOD samples have the {rivals} rivals"
    gain = f"{number(model['versus_confidence'], sign=True)} ({interval_text(model, 'versus_confidence', sign=True)})"
    return (
        f"**{name} against {ood}: {verdict(table)}.** At equal confidence {at_equal} (AUROC of −ρ "
        f"{number(within['auroc'])}, {interval_text(within, 'auroc')}); on samples that it has not seen, a model of "
        f"confidence and ρ reaches an AUROC of {number(model['auroc'])} where confidence alone reaches "
        f"{number(base['auroc'])}: {gain}."
    )


def beyond_table(name: str, ood: str, table: Any) -> Table:
    """All rows of `beyond_confidence`."""
    rows = []
    for _, row in table.iterrows():
        what, baseline = NAMES[row["what"]], row["what"] in ("confidence", SPLINE)
        title = f"{HOW[row['how']]}{what}"
        if baseline:
            title = f"{HOW[row['how']].split(',')[0]}, {what}"
        difference = Cell(
            number(row["versus_confidence"], sign=True), interval_text(row, "versus_confidence", sign=True)
        )
        itself = row["versus_confidence"] == 0 and baseline
        value = Cell(number(row["auroc"]), interval_text(row, "auroc"))
        rows.append([Cell(title), value, Cell("–") if itself else difference, Cell(f"{int(row['pairs']):,}")])
    heads = ["", "AUROC", "against p̂", "pairs compared"]
    return Table(f"{name} against {ood}: beyond confidence, with 95 % intervals", heads, rows)


def training_table(curves: Mapping[str, Curve]) -> Table:
    """The first and the last epoch of each run."""
    rows = []
    for name, curve in curves.items():
        ood = ood_of(curve)
        keys = ["val/boc/accuracy", GAP, "val/boc/forced_gap"]
        keys += [f"val/boc/{ood}/{key}" for key in ("gap", "forced_gap", "msp_auroc", "gap_auroc")]
        for row in _ends(curve):
            values = [number(row.get(key, float("nan")), 3) for key in keys]
            rows.append([Cell(f"{name}, epoch {int(row['epoch']) + 1}"), *map(Cell, values)])
    heads = ["run", "accuracy", "Δ, ID", "forced", "Δ, OOD", "forced", "AUROC, MSP", "AUROC, −Δ"]
    return Table("The first and the last epoch, on samples that were held out from training", heads, rows)


def course(name: str, curve: Curve) -> str:
    """How the gap moved in training, in a sentence."""
    ood, (first, last) = ood_of(curve), (curve[0], curve[-1])
    text = f"**{name}**, {len(curve)} epochs: mean Δ on held-out samples goes {_move(first, last, GAP)}"
    key = f"val/boc/{ood}/gap"
    if key in first and key in last:
        text += f", on {ood} {_move(first, last, key)}"
    text += f"; {percent(last['val/boc/forced_gap'] / last[GAP])} of the former is forced by confidence at the end."
    return text + _overfitting(curve)


def _overfitting(curve: Curve) -> str:
    """Whether the gap fell while the likelihood got worse, in a sentence."""
    if not all(NLL in row for row in curve):
        return ""
    best, last = min(curve, key=lambda row: row[NLL]), curve[-1]
    if not (best[NLL] < last[NLL] and last[GAP] < best[GAP]):
        return ""
    return (
        f" From epoch {int(best['epoch']) + 1} on Δ falls {_move(best, last, GAP)} while the NLL rises "
        f"{_move(best, last, NLL)}: the smallest Δ does not mark the best epoch."
    )


def _move(first: Mapping[str, float], last: Mapping[str, float], key: str) -> str:
    return f"from {number(first[key], 3)} to {number(last[key], 3)}"


def _ends(curve: Curve) -> Sequence[Mapping[str, float]]:
    return curve if len(curve) == 1 else (curve[0], curve[-1])
