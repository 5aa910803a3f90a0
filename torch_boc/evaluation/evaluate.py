"""The paper's protocol in one function: from logits to all tables of a report."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import torch

from .. import __version__
from .._optional import require
from ..calibration import calibrators
from ..data.atomic import printable
from ..data.sets import LogitSet
from ..functional.checks import check_trials
from ..report.report import Report
from ..report.results import results_of
from .detection import collect_scores, detection_tables
from .gaps import coherence_rows, gap_rows, trial_rows
from .inputs import TEST, check_names, check_positive, check_seed, check_sets, several_sets, single_set
from .leaks import leak_rows
from .overlaps import overlap_rows
from .probing import ProbedSet, probe_set
from .reliability import calibration_tables
from .samples import alarm_rows, sample_rows
from .screening import screening_tables


def evaluate(
    id: Any,
    ood: Any = None,
    *,
    calibration: Any = None,
    train: Any = None,
    trials: int = 100,
    detectors: Mapping[str, Any] | None = None,
    methods: Collection[str] | None = None,
    bins: int = 15,
    replicates: int = 1000,
    seed: int = 42,
    trial_counts: Sequence[int] = (20, 50, 100, 200),
    progress: Callable[[str], object] | None = None,
    title: str = "",
    from_probabilities: bool = False,
) -> Report:
    """Calibration, out-of-distribution detection and the coherence gap of a classifier, from its logits.

    Args:
        id: the test set, as anything that `logit_set` takes: logits, (logits, target), a mapping, or a file. Without
            targets nothing is said of calibration.
        ood: the out-of-distribution sets: one set, or a mapping from names to sets.
        calibration: held-out logits with targets, on which calibrators are fitted: one set, or a mapping from names to
            sets. The conformal test is calibrated on the first that does not look like training data, or on a random
            half of the test set if there is none.
        train: training logits with targets. If they are given, Mahalanobis on logits is one of the detectors.
        trials: the number of coin flips, k.
        detectors: further detectors by name: callables from logits (N, C) to N scores, higher = more in-distribution,
            or detectors of pytorch-ood that work on logits or were fitted on logits. For detectors that need inputs or
            features, such as ODIN and ViM, give the scores as columns of `id` and `ood`.
        methods: the calibrators to fit on each split, among temperature, isotonic and vector scaling; all by default.
            Vector scaling takes the longest if there are many classes.
        bins: the number of equal bins of confidence.
        replicates: the number of bootstrap samples for the intervals of 95 %.
        seed: the seed of the bootstrap, of the Monte Carlo trials, and of the order of samples for the conformal test.
            Nothing else is random.
        trial_counts: the numbers of coin flips to compare.
        progress: called with a few words when a step begins.
        title: what is evaluated, for the head of the report.
        from_probabilities: whether the sets hold probabilities instead of logits, which are refused otherwise. Their
            logarithms are the logits, see `logit_set`. The energy is left out, because it is always 0 after a softmax.

    Returns:
        A Report. Columns that `id` and an OOD set both have are compared as scores: higher = more in-distribution.

    >>> logits, target = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 5
    >>> report = evaluate((logits + 2 * torch.eye(5)[target], target), {"noise": logits}, replicates=50)
    >>> report.ood.set_index("score")["auroc"].round(2).loc[["msp", "energy"]].to_dict()
    {'msp': 0.68, 'energy': 0.79}
    """
    require("pandas", purpose="evaluation needs")  # an error comes before the work
    say = progress or (lambda message: None)
    trials, bins, replicates = check_positive(trials=trials, bins=bins, replicates=replicates)
    trials, trial_counts = check_trials(trials), [check_trials(count) for count in trial_counts]
    seed = check_seed(seed)
    fitted = [method.name for method in calibrators() if method.needs_fit]
    methods = fitted if methods is None else methods
    check_names(methods, fitted, "methods")
    kind = {"from_probabilities": from_probabilities}
    test, oods = single_set(id, TEST, **kind), several_sets(ood, "ood", **kind)
    splits = several_sets(calibration, "calibration", **kind)
    training = {} if train is None else {"train": single_set(train, "train", **kind)}
    check_sets(test, oods, splits, training)
    sets = []
    for data in (test, *oods.values()):
        say(f"probing {data.name}")
        sets.append(probe_set(data, trials))
    found = collect_scores(sets, training.get("train"), detectors)
    say("looking for samples in several sets")
    shared = overlap_rows(test, {"calibration": splits, "ood": oods, "train": training})
    leaks = leak_rows(sets[0], splits)
    how: dict[str, Any] = {"replicates": replicates, "seed": seed, "progress": say}
    seen = [row.set for row in shared if row.suspicious and row.kind == "calibration"]
    calibrated, curves = calibration_tables(sets[0], splits, seen=seen, methods=methods, bins=bins, **how)
    detected, roc, histograms = detection_tables(found, TEST, **how)
    trusted = {row.split: splits[row.split] for row in leaks if not row.suspicious and row.split not in seen}
    screened, thresholds, stream = screening_tables(sets, trusted, seed=seed, progress=say)
    rows: dict[str, Sequence[Any]] = {
        "calibration": calibrated,
        "ood": detected,
        "leaks": leaks,
        "overlaps": shared,
        "gaps": gap_rows(sets),
        "trials": trial_rows(sets, trial_counts, bins=bins, seed=seed, progress=say),
        "coherence": coherence_rows(sets, bins),
        "reliability": curves,
        "roc": roc,
        "histograms": histograms,
        "screening": screened,
        "thresholds": thresholds,
        "stream": stream,
        "samples": sample_rows(sets, trusted, seed=seed),
        "alarms": alarm_rows(found),
    }
    settings: dict[str, Any] = {"title": printable(str(title)), "trials": trials, "bins": bins}
    settings |= {"replicates": replicates, "seed": seed}
    settings |= _describe(sets[0], (test, *oods.values(), *splits.values(), *training.values()))
    return Report(results_of(settings, rows))


def _describe(test: ProbedSet, sets: Iterable[LogitSet]) -> dict[str, Any]:
    accuracy = float("nan") if test.correct is None else float(test.correct.double().mean())
    return {
        "classes": test.data.num_classes,
        "samples": {data.name: len(data) for data in sets},
        "accuracy": accuracy,
        "from_probabilities": test.data.from_probabilities,
        "date": date.today().isoformat(),
        "versions": {"torch_boc": __version__, "torch": str(torch.__version__)},
    }
