"""Several models side by side, with paired differences if they were given the same samples."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.tally import equal_bin
from ..report.comparison import Comparison
from ..report.report import Report, read_report
from ..report.results import frame
from .calibration import CalibratedSamples, error_difference
from .detection import Separation, paired_difference, rank_scores, separate
from .evaluate import evaluate
from .inputs import TEST, ProbedSet, check_integers, probe_set, single_set
from .intervals import bootstrap_interval, paired_interval, random_numbers, replicate, sparse_interval
from .significance import significant_sign

# The scores whose AUROC is compared.
COMPARED_SCORES = ("msp", "energy", "gen", "logit_gap", "tempered_dominance", "log_p_value", "gap", "concentration")


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
        models: by name: a `Report`, the path of a report.json, or the test set as anything that `read_logits` takes.
        ood: OOD sets of the models that are given as logits: for each name of a set, the logits by the name of the
            model. The rows of a set are taken to be the same samples for all models, in the same order.
        trials: the number of coin flips, k.
        bins: the number of equal bins of confidence.
        replicates: the number of bootstrap samples for the intervals of 95 %.
        seed: as for `evaluate`.
        progress: called with a few words when a step begins.
        from_probabilities: as for `evaluate`.

    Returns:
        A Comparison. Its `differences` are a DataFrame, which is empty if no samples are shared.

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
    bins, replicates = check_integers(1, bins=bins, replicates=replicates)
    (seed,) = check_integers(0, seed=seed)
    report_step, ood = progress or (lambda message: None), ood or {}
    given = dict(models)
    for name, x in models.items():
        if isinstance(x, str | os.PathLike) and Path(x).suffix.lower() == ".json":
            given[name] = read_report(x)
    logits = [name for name, x in given.items() if not isinstance(x, Report)]
    for name, part in ood.items():
        if not isinstance(part, Mapping):
            raise TypeError(f"{name}: expected a mapping from models to logits, got {type(part).__name__}")
        for model in part:
            if model not in logits:
                possible = ", ".join(logits) or "none"
                raise ValueError(f"{name}: expected models that are given as logits ({possible}), got {model!r}")
    reports, sets = {}, []
    for name, source in given.items():
        if isinstance(source, Report):
            reports[name] = source
            continue
        kind = {"from_probabilities": from_probabilities}
        test = single_set(source, TEST, **kind)
        oods = {key: single_set(part[name], key, **kind) for key, part in ood.items() if name in part}
        options: dict[str, Any] = {"trials": trials, "bins": bins, "replicates": replicates, "seed": seed}
        options["progress"] = lambda message, name=name: report_step(f"{name}: {message}")
        reports[name] = evaluate(test, oods, title=name, **options)
        probed = {key: probe_set(data, trials) for key, data in oods.items()}
        sets.append(Model(name, probe_set(test, trials), probed))
    rows = [(*row, 0) for other in sets[1:] for row in _differences(sets[0], other, bins, replicates, seed)]
    table = frame("differences", rows)
    both = table["ood"] == ""  # the accuracies and the errors
    table.loc[both, "sign"] = significant_sign(table[both], "difference")
    return Comparison(reports, differences=table)


def _differences(base: Model, other: Model, bins: int, replicates: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """`other` minus `base`, if both have the same targets; otherwise a warning says why there are none."""
    target, others = (x.test.data.target for x in (base, other))
    if target is None or others is None or not torch.equal(target, others):
        message = f"no paired differences of {other.name!r} from {base.name!r}: their targets are not equal, row by row"
        warnings.warn(message, UserWarning, stacklevel=3)
        return
    about, numbers = (other.name, base.name), random_numbers(seed, "models", other.name, base.name)
    coins = other.test.coins, base.test.coins
    ours, theirs = (CalibratedSamples(x.confidence, x.prediction == target, x.odds[:0]) for x in coins)
    yield *about, "accuracy", "", *accuracy_difference(ours.correct, theirs.correct, replicates, numbers)
    yield *about, "ECE", "", *model_error_difference(ours, theirs, bins, replicates, numbers)
    for ood in (name for name in base.ood if name in other.ood):
        sizes = [len(x.ood[ood].data) for x in (base, other)]
        if sizes[0] != sizes[1]:
            few = f"{base.name!r} has {sizes[0]} rows and {other.name!r} {sizes[1]}"
            warnings.warn(f"no paired differences on {ood!r}: {few}", UserWarning, stacklevel=3)
            continue
        for score in (x for x in COMPARED_SCORES if x in base.test.scores):
            pair = [separate(*(rank_scores(y.scores[score]) for y in (x.test, x.ood[ood]))) for x in (other, base)]
            yield *about, score, ood, *area_difference(*pair)


def model_error_difference(
    one: CalibratedSamples, two: CalibratedSamples, bins: int, replicates: int, numbers: Any
) -> tuple[float, float, float]:
    """The difference of two ECEs, with the interval of `error_difference`, which is wider if few rows differ.

    A row adds right - confidence to its bin. Two models differ in it if they add different numbers, or to other bins.
    """
    value, low, high = error_difference(one, two, bins, replicates, numbers)
    ours, theirs = (x.correct.double() - x.confidence for x in (one, two))
    same_bin = equal_bin(one.confidence, bins) == equal_bin(two.confidence, bins)
    changes = torch.where(same_bin, (ours - theirs).abs(), ours.abs() + theirs.abs()) / 2
    return value, *sparse_interval((low, high), value, changes, len(changes), most=2.0)


def area_difference(one: Separation, two: Separation) -> tuple[float, float, float]:
    """The difference of two AUROCs, with DeLong's interval, which is wider if few rows differ.

    As in `auroc_interval`, it varies no more than a share of as many pairs as have no sample in common.
    """
    value, low, high = paired_difference(one, two)
    sets = (one.id_placement - two.id_placement, one.ood_placement - two.ood_placement)
    pairs = min(map(len, sets))
    return value, *sparse_interval((low, high), value, torch.cat([x * (pairs / len(x)) for x in sets]), pairs)


def accuracy_difference(one: Tensor, two: Tensor, replicates: int, numbers: Any) -> tuple[float, float, float]:
    """The difference of the shares of right predictions, with a paired interval; (N,) which are right of each model."""
    differences = one.double() - two.double()
    kinds = differences.new_tensor([-1.0, 0.0, 1.0])
    counts = (differences.unsqueeze(1) == kinds).sum(0)
    drawn = replicate(lambda drawn: drawn @ kinds / len(differences), [counts], replicates, numbers)
    estimate, (lost, _, gained) = float(differences.mean()), counts.tolist()
    around = bootstrap_interval(estimate, *drawn, (-1.0, 1.0))
    return estimate, *paired_interval(around, gained, lost, len(differences))
