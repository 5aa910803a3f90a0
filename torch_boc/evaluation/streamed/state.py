"""What an evaluation keeps of a set of any size: sums and counts, which add up over the parts of the set."""

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ...calibration import Calibrator
from ...data.probabilities import SUM_TOLERANCE
from ...functional.bins import count
from ...functional.checks import are_probabilities
from ...functional.evidence import Evidence, gather, log_loss
from ...report.choices import TESTED_LEVELS
from ..judged import JointTally, Judged, JudgedTally, tally_both, tally_judged
from .moments import Moments, add_moments, take_moments
from .places import PLACES, known_scores, place_score, score_numbers
from .sample import RowSample, row_draws

# The rows of the random sample: what needs single rows is computed from these.
SAMPLE_ROWS = 2**16
# The columns of the sample before those of the scores.
SAMPLED = ("odds", "loss", "concentration", "free_gap", "correct", "half")
HALVES = 2


@dataclass(frozen=True)
class Plan:
    """What is computed of each set. It can be pickled.

    Attributes:
        name: the name of the set.
        trials: the number of coin flips.
        bins: the number of bins of confidence.
        seed: of the random sample, and of the halves.
        methods: the calibrators to judge, with the names of the splits that they were fitted on.
        sample_rows: the largest number of rows in the random sample.
    """

    name: str
    trials: int = 100
    bins: int = 15
    seed: int = 42
    methods: tuple[tuple[str, Calibrator], ...] = ()
    sample_rows: int = SAMPLE_ROWS


class Block(NamedTuple):
    """Some rows of a set.

    Attributes:
        evidence: of the rows, with their targets if there are any.
        logits: (n, C); None if the table has columns instead.
        rows: (n,), a number for each row, which decides where chance puts it.
    """

    evidence: Evidence
    logits: Tensor | None
    rows: Tensor


@dataclass
class SetState:
    """The sums and counts of a set. `add` takes rows, and `merge` the state of other rows of the same set.

    Attributes:
        plan: what is computed.
        num_classes: the number of classes; 0 before the first rows.
        labelled: whether there are targets; None before the first rows.
        from_columns: whether the rows were columns instead of logits.
        moments: means of the coins.
        scores: the names of the scores that are known.
        places: the number of rows in each place of each score.
        held_out: the same for the first of two random halves.
        rejected: (2 halves, levels), how many rows the paper's test rejects.
        sizes: (2,), the number of rows in each half.
        judged: the sums of each calibrator.
        both: the sums of each pair of calibrators.
        sample: the columns `SAMPLED` and the numbers of the scores, for a random sample of the rows.
        shares: whether all rows of logits so far are not negative and sum to 1, as probabilities do.
    """

    plan: Plan
    num_classes: int = 0
    labelled: bool | None = None
    from_columns: bool = False
    moments: Moments | None = None
    scores: tuple[str, ...] = ()
    places: dict[str, Tensor] = field(default_factory=dict)
    held_out: dict[str, Tensor] = field(default_factory=dict)
    rejected: Tensor = field(default_factory=lambda: torch.zeros(HALVES, len(TESTED_LEVELS), dtype=torch.int64))
    sizes: Tensor = field(default_factory=lambda: torch.zeros(HALVES, dtype=torch.int64))
    judged: list[JudgedTally] = field(default_factory=list)
    both: dict[tuple[int, int], JointTally] = field(default_factory=dict)
    sample: RowSample = field(default_factory=lambda: RowSample(SAMPLE_ROWS))
    shares: bool = True

    def __post_init__(self) -> None:
        self.sample = RowSample(self.plan.sample_rows)

    @property
    def samples(self) -> int:
        """The number of rows."""
        return int(self.sizes.sum())

    def add(self, block: Block) -> None:
        """Add some rows."""
        evidence = block.evidence._replace(trials=self.plan.trials)
        if not len(block.rows):
            return
        self._agree(evidence, block.logits is None)
        if self.shares:
            self.shares = block.logits is not None and bool(are_probabilities(block.logits, 1, slack=SUM_TOLERANCE))
        numbers = score_numbers(evidence, self.scores)
        log_p = numbers["log_p_value"]
        draws = row_draws(self.plan.seed, block.rows)
        first = draws[1] < 0.5
        moments = take_moments(evidence.coins, log_p, self.plan.bins)
        self.moments = moments if self.moments is None else add_moments(self.moments, moments)
        self._count(numbers, first)
        for half, kept in enumerate((first, ~first)):
            self.sizes[half] += kept.sum()
            self.rejected[half] += torch.stack([(log_p[kept] <= math.log(alpha)).sum() for alpha in TESTED_LEVELS])
        self._sample(evidence, numbers, draws, first)
        if evidence.target is not None and self.plan.methods:
            self._judge(block)

    def merge(self, other: Self) -> Self:
        """Add the rows of another state of the same set."""
        if other.moments is None:
            return self
        if self.moments is None:
            self.num_classes, self.labelled, self.scores = other.num_classes, other.labelled, other.scores
            self.moments = other.moments
        else:
            self._check(other.num_classes, bool(other.labelled), other.from_columns, other.scores)
            self.moments = add_moments(self.moments, other.moments)
        self.from_columns, self.shares = other.from_columns, self.shares and other.shares
        for mine, theirs in ((self.places, other.places), (self.held_out, other.held_out)):
            for name, counts in theirs.items():
                mine[name] = mine[name] + counts if name in mine else counts
        self.rejected, self.sizes = self.rejected + other.rejected, self.sizes + other.sizes
        self._add_judged(other.judged, other.both)
        self.sample.merge(other.sample)
        return self

    def _agree(self, evidence: Evidence, from_columns: bool) -> None:
        """Remember what the first rows are, and raise if later ones are not."""
        labelled = evidence.target is not None
        if self.moments is None:
            self.num_classes, self.labelled, self.from_columns = evidence.num_classes, labelled, from_columns
            self.scores = known_scores(evidence)
        self._check(evidence.num_classes, labelled, from_columns, known_scores(evidence))

    def _check(self, classes: int, labelled: bool, from_columns: bool, scores: tuple[str, ...]) -> None:
        if classes != self.num_classes:
            raise ValueError(f"expected {self.num_classes} classes in all rows, as in the first, got {classes}")
        if labelled != self.labelled:
            raise ValueError("expected targets in all tables of a set or in none, got some with and some without")
        if from_columns != self.from_columns or scores != self.scores:
            raise ValueError("expected the same columns in all tables of a set, got others in some of them")

    def _count(self, numbers: dict[str, Tensor], first: Tensor) -> None:
        for name, number in numbers.items():
            place = place_score(name, number)
            # One pass counts both halves.
            halves = count(place + (~first) * PLACES, torch.ones_like(place), HALVES * PLACES).view(HALVES, PLACES)
            for counts, new in ((self.places, halves.sum(0)), (self.held_out, halves[0])):
                counts[name] = counts[name] + new if name in counts else new

    def _sample(self, evidence: Evidence, numbers: dict[str, Tensor], draws: Tensor, first: Tensor) -> None:
        coins = evidence.coins
        right = torch.full_like(coins.odds, math.nan) if evidence.target is None else _correct(evidence).double()
        columns = [coins.odds, coins.loss, coins.concentration, coins.free_gap, right, (~first).double()]
        self.sample.add(draws[0] + draws[1] * 2.0**-23, torch.stack([*columns, *numbers.values()]))

    def _judge(self, block: Block) -> None:
        """Add what the calibrators make of labelled rows."""
        judged = [_apply(method, block) for _, method in self.plan.methods]
        bins = self.plan.bins
        pairs = combinations(range(len(judged)), 2)
        both = {(i, j): tally_both(judged[i], judged[j], bins) for i, j in pairs}
        self._add_judged([tally_judged(x, bins) for x in judged], both)

    def _add_judged(self, judged: list[JudgedTally], both: dict[tuple[int, int], JointTally]) -> None:
        if not self.judged:
            self.judged, self.both = judged, both
            return
        pairs = zip(self.judged, judged, strict=False)
        self.judged = [JudgedTally(x.cells + y.cells, x.nll + y.nll) for x, y in pairs] if judged else self.judged
        for key, new in both.items():
            self.both[key] = JointTally(self.both[key].cells + new.cells, new.bins)


def _correct(evidence: Evidence) -> Tensor:
    assert evidence.target is not None
    return evidence.coins.prediction == evidence.target


def _apply(method: Calibrator, block: Block) -> Judged:
    """The confidence of a method. If it gives no logits, the loss is that of the raw logits."""
    evidence = block.evidence
    assert evidence.target is not None
    assert evidence.distance is not None
    nll = log_loss(evidence.coins.odds, evidence.distance)
    confidence = method.confidence_of(evidence.coins)
    if confidence is not None:
        return Judged(confidence, _correct(evidence), nll)
    assert block.logits is not None
    result = method.calibrate(block.logits)
    if result.logits is not None:
        calibrated = gather(result.logits, evidence.target)
        assert calibrated.distance is not None
        nll = log_loss(calibrated.coins.odds, calibrated.distance)
    return Judged(result.confidence.double(), result.prediction == evidence.target, nll)
