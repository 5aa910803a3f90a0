"""Several models side by side, with paired differences if they were given the same samples."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.sets import LogitSet
from ..functional.registry import scores
from ..report.choices import COMPARED_SCORES
from ..report.comparison import Comparison
from ..report.reading import read_report
from ..report.report import Report
from ..report.results import frame
from ..report.tables import DifferenceRow
from .bootstrap import bootstrap_interval, random_numbers, replicate
from .detection import LOST, auroc_difference
from .ece import error_difference
from .evaluate import evaluate
from .exact import paired_interval
from .inputs import TEST, check_positive, check_seed, labelled, single_set
from .judged import Judged
from .probing import ProbedSet, probe_set
from .separation import Separation, rank_scores, separate


class Model(NamedTuple):
    """The probed test set of a model, and its probed OOD sets."""

    name: str
    test: ProbedSet
    ood: dict[str, ProbedSet]


def compare(
    models: Mapping[str, Any],
    ood: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    trials: int = 100,
    bins: int = 15,
    replicates: int = 1000,
    seed: int = 42,
    progress: Callable[[str], object] | None = None,
    from_probabilities: bool = False,
) -> Comparison:
    """Compare two or more models, on their reports or on their logits.

    Models that are given as logits are evaluated. If their targets are equal, row by row, they are taken to have seen
    the same samples. Then the comparison has the differences from the first such model, with paired intervals of
    95 %: of the accuracy, of the ECE, and of the AUROC of each score on each OOD set that both have. Paired intervals
    are much narrower than those of two reports that know nothing of each other.

    Args:
        models: by name: a `Report`, the path of a report.json, or the test set as anything that `logit_set` takes.
        ood: OOD sets of the models that are given as logits: for each name of a set, the logits by the name of the
            model. The rows of a set are taken to be the same samples for all models, in the same order.
        trials: the number of coin flips, k.
        bins: the number of equal bins of confidence.
        replicates: the number of bootstrap samples for the intervals of 95 %.
        seed: as for `evaluate`.
        progress: called with a few words when a step begins.
        from_probabilities: as for `evaluate`.

    Returns:
        A Comparison. Its `differences` are a DataFrame of `DifferenceRow`, which is empty if no samples are shared.

    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.arange(300) % 3
    >>> one = torch.randn(300, 3, generator=generator) + 2 * torch.eye(3)[target]
    >>> comparison = compare({"one": (one, target), "two": (one + torch.eye(3)[target], target)}, replicates=50)
    >>> print(comparison.differences[["model", "than", "what", "difference"]].head(1).round(3).to_string(index=False))
    model than     what  difference
      two  one accuracy       0.133
    """
    if len(models) < 2:
        raise ValueError(f"expected at least two models to compare, got {len(models)}")
    bins, replicates, seed = *check_positive(bins=bins, replicates=replicates), check_seed(seed)
    say, given = progress or (lambda message: None), {name: _given(x) for name, x in models.items()}
    logits = [name for name, x in given.items() if not isinstance(x, Report)]
    _check_ood(ood or {}, models, logits)
    reports, sets = {}, []
    for name, source in given.items():
        if isinstance(source, Report):
            reports[name] = source
            continue
        kind = {"from_probabilities": from_probabilities}
        test = single_set(source, TEST, **kind)
        oods = {key: single_set(part[name], key, **kind) for key, part in (ood or {}).items() if name in part}
        how: dict[str, Any] = {"trials": trials, "bins": bins, "replicates": replicates, "seed": seed}
        reports[name] = evaluate(test, oods, progress=partial(_tell, say, name), title=name, **how)
        sets.append(_probed(name, test, oods, trials))
    rows = [row for other in sets[1:] for row in _differences(sets[0], other, bins, replicates, seed)]
    return Comparison(reports, differences=frame(DifferenceRow, rows))


def _given(source: Any) -> Any:
    """The report in a JSON file; anything else as it is."""
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".json":
        return read_report(source)
    return source


def _check_ood(ood: Mapping[str, Any], models: Mapping[str, Any], logits: list[str]) -> None:
    """Raise unless each OOD set is a mapping from names of models that are given as logits."""
    for name, part in ood.items():
        if not isinstance(part, Mapping):
            raise TypeError(f"{name}: expected a mapping from models to logits, got {type(part).__name__}")
        for model in part:
            if model not in models:
                raise ValueError(f"{name}: expected models among {', '.join(models)}, got {model!r}")
            if model not in logits:
                raise ValueError(f"{name}: expected logits of models that are given as logits, got some for {model!r}")


def _probed(name: str, test: LogitSet, oods: Mapping[str, LogitSet], trials: int) -> Model:
    return Model(name, probe_set(test, trials), {key: probe_set(data, trials) for key, data in oods.items()})


def _tell(say: Callable[[str], object], name: str, message: str) -> None:
    say(f"{name}: {message}")


def _differences(base: Model, other: Model, bins: int, replicates: int, seed: int) -> Iterator[DifferenceRow]:
    """`other` minus `base`, if both have the same targets; otherwise a warning."""
    reason = _strangers(base, other)
    if reason:
        message = f"no paired differences of {other.name!r} from {base.name!r}: {reason}"
        warnings.warn(message, UserWarning, stacklevel=3)
        return
    about, numbers = (other.name, base.name), random_numbers(seed, "models", other.name, base.name)
    yield DifferenceRow(*about, "accuracy", "", *accuracy_difference(other.test, base.test, replicates, numbers))
    one, two = (_judged(x.test) for x in (other, base))
    yield DifferenceRow(*about, "ECE", "", *error_difference(one, two, bins, replicates, numbers))
    yield from chain.from_iterable(_separations(base, other, name) for name in base.ood if name in other.ood)


def _strangers(base: Model, other: Model) -> str:
    """Why the models are not taken to have seen the same samples; empty if they are."""
    lacking = [repr(x.name) for x in (base, other) if x.test.data.target is None]
    if lacking:
        return f"{' and '.join(lacking)} {'have' if len(lacking) > 1 else 'has'} no targets"
    same = torch.equal(*(labelled(x.test.data)[1] for x in (base, other)))
    return "" if same else "their targets are not equal, row by row"


def _judged(data: ProbedSet) -> Judged:
    assert data.correct is not None
    return Judged(data.coins.confidence, data.correct, data.coins.confidence[:0])


def accuracy_difference(one: ProbedSet, two: ProbedSet, replicates: int, numbers: Any) -> tuple[float, float, float]:
    """The difference of the shares of right predictions, with a paired interval."""
    assert one.correct is not None
    assert two.correct is not None
    differences = one.correct.double() - two.correct.double()
    kinds = differences.new_tensor([-1.0, 0.0, 1.0])
    counts = (differences.unsqueeze(1) == kinds).sum(0)

    def mean(drawn: Tensor) -> Tensor:
        return drawn @ kinds / len(differences)

    estimate, (lost, _, gained) = float(differences.mean()), counts.tolist()
    drawn = bootstrap_interval(estimate, *replicate(mean, [counts], replicates, numbers), (-1.0, 1.0))
    return estimate, *paired_interval(drawn, gained, lost, len(differences))


def _separations(base: Model, other: Model, ood: str) -> Iterator[DifferenceRow]:
    """The differences of the AUROC of each score on one OOD set, by DeLong's method."""
    sizes = [len(x.ood[ood].data) for x in (base, other)]
    if sizes[0] != sizes[1]:
        message = f"no paired differences on {ood!r}: {base.name!r} has {sizes[0]} rows and {other.name!r} {sizes[1]}"
        warnings.warn(message, UserWarning, stacklevel=4)
        return
    lost = LOST if base.test.data.from_probabilities else ()
    for score in (x for x in COMPARED_SCORES if x in scores and x not in lost):
        pair = [_separation(x, ood, score) for x in (other, base)]
        yield DifferenceRow(other.name, base.name, score, ood, *auroc_difference(*pair))


def _separation(model: Model, ood: str, score: str) -> Separation:
    return separate(*(rank_scores(x.scores[score]) for x in (model.test, model.ood[ood])))
