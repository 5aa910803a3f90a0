"""What agrees with the paper: each claim is one question, put to the paper's numbers and to ours alike."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.paper.experiments import METHODS, Numbers, Ours, Published
from benchmarks.paper.tables import NOT_RUN
from torch_boc.report.parts import Cell, Table
from torch_boc.report.words import number, symbol

NEAR = 0.01


class Claim(NamedTuple):
    """A statement, what it depends on, whether some numbers bear it out, and which."""

    text: str
    depends: str
    holds: Callable[[Numbers], bool]
    evidence: Callable[[Numbers], str]


def _ece(numbers: Numbers, method: str) -> float:
    return numbers.calibration[method]["ece"]


def _auroc(numbers: Numbers, score: str) -> float:
    return numbers.ood[score]["auroc"]


def _fitted(numbers: Numbers) -> list[float]:
    return [_ece(numbers, method) for method in METHODS]


def _best(numbers: Numbers) -> list[str]:
    """The paper's scores, the best first."""
    known = [score for score in ("msp", "energy", "odin", "mahalanobis") if score in numbers.ood]
    return sorted(known, key=lambda score: -_auroc(numbers, score))


CLAIMS = (
    Claim(
        "s_BoC ranks backwards: its AUROC is below 0.5",
        "whether OOD samples are less confident: it grows with doubt",
        lambda x: _auroc(x, "structural_score") < 0.5,
        lambda x: number(_auroc(x, "structural_score")),
    ),
    Claim(
        f"turned round, it ranks as confidence does, to {NEAR}",
        "rounding: p* sees q̄ only as round(k q̄)",
        lambda x: abs(1 - _auroc(x, "structural_score") - _auroc(x, "msp")) <= NEAR,
        lambda x: f"{number(1 - _auroc(x, 'structural_score'))}, MSP {number(_auroc(x, 'msp'))}",
    ),
    Claim(
        "energy is the best of the paper’s scores",
        "the size of the logits, which training decides: another checkpoint, another order",
        lambda x: _best(x)[0] == "energy",
        lambda x: ", ".join(f"{symbol(score)} {number(_auroc(x, score))}" for score in _best(x)[:2]),
    ),
    Claim(
        "q̄ as a confidence is calibrated worse than MSP",
        "whether the network is overconfident, for q̄ is never below p̂",
        lambda x: _ece(x, "BoC") > _ece(x, "MSP"),
        lambda x: f"ECE {number(_ece(x, 'BoC'))}, MSP {number(_ece(x, 'MSP'))}",
    ),
    Claim(
        "every calibrator fitted on training samples is worse than MSP",
        "how much better the network knows its training samples than others",
        lambda x: min(_fitted(x)) > _ece(x, "MSP"),
        lambda x: f"ECE {number(min(_fitted(x)))} to {number(max(_fitted(x)))}, MSP {number(_ece(x, 'MSP'))}",
    ),
)


def claim_table(paper: Published, ours: Ours | None) -> Table:
    """Each claim by the paper's numbers and by ours."""
    rows = []
    for claim in CLAIMS:
        there, here = _answer(claim, paper.numbers), NOT_RUN
        agree = NOT_RUN
        if ours is not None and _answerable(claim, ours):
            here = _answer(claim, ours.numbers)
            agree = "yes" if claim.holds(paper.numbers) == claim.holds(ours.numbers) else "no"
        rows.append([Cell(claim.text), Cell(there), Cell(here), Cell(agree), Cell(claim.depends)])
    return Table(f"{paper.name}: what agrees", ["", "paper", "ours", "agree", "depends on"], rows)


def agreement(experiments: Iterable[tuple[Published, Ours | None]]) -> tuple[int, int]:
    """How many claims come out alike, of how many that were asked."""
    asked = [
        claim.holds(paper.numbers) == claim.holds(ours.numbers)
        for paper, ours in experiments
        if ours is not None
        for claim in CLAIMS
        if _answerable(claim, ours)
    ]
    return sum(asked), len(asked)


def _answerable(claim: Claim, ours: Ours) -> bool:
    return claim is not CLAIMS[-1] or ours.training_split is not None


def _answer(claim: Claim, numbers: Numbers) -> str:
    return f"{'yes' if claim.holds(numbers) else 'no'} ({claim.evidence(numbers)})"
