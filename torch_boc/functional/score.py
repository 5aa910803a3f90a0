"""The class of a score, and functions that compute scores of logits; the scores themselves are in `registry.py`."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from .checks import check_trials, classes_last
from .evidence import Evidence, check_extras, gather


@dataclass(frozen=True)
class Score:
    """A named score; call it with logits. Higher means more in-distribution, except for the paper's own score.

    Attributes:
        name: the key in the registry.
        summary: what the score is, in one line.
        symbol: the name in tables and figures; by default `name` with spaces.
        axis: the label of its values on an axis; by default the symbol.
        number: a number that ranks the samples like the score and does not saturate; for msp it is minus the odds.
        value: the score as a rising function of that number.
        extras: the numbers that the score needs of those that `gather` computes only if they are among its `extras`.
        upside_down: True for the paper's score. It is kept as published, and higher means less in-distribution.
    """

    name: str
    summary: str
    number: Callable[[Evidence], Tensor]
    value: Callable[[Tensor], Tensor]
    symbol: str
    axis: str
    extras: tuple[str, ...] = ()
    upside_down: bool = False

    def function(self, evidence: Evidence) -> Tensor:
        """The score of each row, from the evidence."""
        return self.value(self.number(evidence))

    def __call__(self, logits: Tensor, *, dim: int = -1, trials: int = 100) -> Tensor:
        """The score of each row of `logits`, in float64, without the class axis `dim`, by default the last axis."""
        return compute_scores(logits, [self.name], dim=dim, trials=trials)[self.name]


class _Scores(Mapping[str, Score]):
    """A read-only mapping from names to scores. An old name still works, with a warning."""

    def __getitem__(self, name: str) -> Score:
        return registered[current_name(name)]

    def __contains__(self, name: object) -> bool:
        return name in registered  # only under the current name

    def __iter__(self) -> Iterator[str]:
        return iter(registered)

    def __len__(self) -> int:
        return len(registered)


registered: dict[str, Score] = {}
scores: Mapping[str, Score] = _Scores()
"""All scores by name: `scores["energy"](logits)`. Higher means more in-distribution."""
# Old names of scores and the current ones.
RENAMED = {"p_value": "log_p_value"}


def current_name(name: str) -> str:
    """The current name of a score, with a warning if `name` is an old one."""
    if name in RENAMED:
        warnings.warn(f"the score {name!r} is called {RENAMED[name]!r} now", FutureWarning, stacklevel=3)
    return RENAMED.get(name, name)


def find_score(name: str) -> Score:
    """The score with this current or old name, without a warning. The name must have been checked before."""
    return registered[RENAMED.get(name, name)]


def compute_scores(
    logits: Tensor, names: Iterable[str] | None = None, *, dim: int = -1, trials: int = 100
) -> dict[str, Tensor]:
    """Several scores from one pass over the logits.

    Args:
        logits: shape (..., C).
        names: keys of `scores`; by default all. The results have the names that are given here.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips, for the scores that are p-values.

    Returns:
        A dict in the order of `names`. Each value is float64 (float32 on MPS), without the class axis.

    >>> result = compute_scores(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), ["msp", "gap"])
    >>> {name: round(value.item(), 4) for name, value in result.items()}
    {'msp': 0.6439, 'gap': -0.2109}
    """
    found = unsaturated_scores(logits, names, dim=dim, trials=trials)
    return {name: find_score(name).value(number) for name, number in found.items()}


def unsaturated_scores(
    logits: Tensor, names: Iterable[str] | None = None, *, dim: int = -1, trials: int = 100
) -> dict[str, Tensor]:
    """Numbers that rank the samples like `compute_scores`, and still differ where the scores themselves round to 1.

    >>> logits = torch.tensor([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    >>> compute_scores(logits, ["msp"])["msp"], unsaturated_scores(logits, ["msp"])["msp"]
    (tensor([1., 1.], dtype=torch.float64), tensor([-3.8575e-22, -1.7513e-26], dtype=torch.float64))
    """
    if isinstance(names, str):
        raise TypeError(f"expected names as a list of scores, got the string {names!r}; use [{names!r}]")
    names = [_checked(name) for name in (registered if names is None else names)]
    rows, trials = classes_last(logits, dim), check_trials(trials)
    return rank(gather(rows, trials=trials, extras=need_extras(names)), names)


def rank(evidence: Evidence, names: Iterable[str]) -> dict[str, Tensor]:
    """`unsaturated_scores` from evidence, gathered with the `extras` that `need_extras` lists."""
    return {name: find_score(name).number(evidence) for name in names}


def need_extras(names: Iterable[str]) -> tuple[str, ...]:
    """What these scores need as the `extras` of `gather`."""
    return check_extras({extra for name in names for extra in find_score(name).extras})


def _checked(name: str) -> str:
    if current_name(name) not in registered:
        raise ValueError(f"expected a score among {', '.join(registered)}, got {name!r}")
    return name


def _itself(number: Tensor) -> Tensor:
    return number


def register(
    summary: str,
    *,
    symbol: str | None = None,
    axis: str | None = None,
    value: Callable[[Tensor], Tensor] = _itself,
    extras: Iterable[str] = (),
    upside_down: bool = False,
) -> Callable[[Callable[[Evidence], Tensor]], Callable[[Evidence], Tensor]]:
    """Register a function of the evidence as the `number` of a score, which gets the function's name; see `Score`."""

    def add(number: Callable[[Evidence], Tensor]) -> Callable[[Evidence], Tensor]:
        name = number.__name__
        called = symbol or name.replace("_", " ")
        needs = check_extras(extras)
        registered[name] = Score(name, summary, number, value, called, axis or called, needs, upside_down)
        return number

    return add
