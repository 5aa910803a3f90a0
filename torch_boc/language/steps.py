"""One emitted token with what a server gave at its place, and what that says of the tokens that it did not give."""

import math
from collections.abc import Sequence
from typing import NamedTuple

# What OpenAI and vLLM write for a token that is very unlikely, because JSON has no infinity.
UNLIKELY = -9999.0


class Candidate(NamedTuple):
    """A token and its log-probability; `token` is -1 and `text` is "" if it is not known."""

    token: int
    text: str
    logprob: float
    emitted: bool


class Step(NamedTuple):
    """One emitted token: its id or -1, its bytes, its rank or NaN, all that is given at its place, and the cap."""

    token: int
    data: bytes
    rank: float
    given: list[Candidate]
    cap: float


class Emitted(NamedTuple):
    """The emitted token as the server gives it; `logprob` is None if it does not."""

    token: int
    text: str
    logprob: float | None
    data: bytes
    rank: float | None = None


def step_of(emitted: Emitted, others: Sequence[Candidate], *, whole: bool = True) -> Step:
    """A step from the emitted token and the others that the server gave.

    Args:
        emitted: the emitted token.
        others: the other tokens.
        whole: whether no likelier token can be missing among them.
    """
    known = emitted.logprob is not None and emitted.logprob > UNLIKELY
    own = [Candidate(emitted.token, emitted.text, emitted.logprob or 0.0, True)] if known else []
    given = [*own, *(x._replace(logprob=x.logprob if x.logprob > UNLIKELY else -math.inf) for x in others)]
    cap = min([x.logprob for x in given[len(own) :]], default=0.0) if whole else 0.0
    rank = _rank(emitted, given, cap)
    if known and whole and emitted.rank is not None and emitted.rank <= len(given):
        cap = min(cap, given[0].logprob)  # the emitted token is one of the likeliest
    return Step(emitted.token, emitted.data, rank, given, cap)


def _rank(emitted: Emitted, given: Sequence[Candidate], cap: float) -> float:
    """The rank that the server gives, or the one among the given tokens if no other can be likelier."""
    if emitted.rank is not None:
        return float(emitted.rank)
    own = next((x.logprob for x in given if x.emitted), None)
    left = 1.0 - sum(math.exp(x.logprob) for x in given)
    if own is None or (own < cap and math.exp(own) < left):
        return math.nan
    return 1.0 + sum(x.logprob > own for x in given)
