"""The paper's protocol as one function: from logits to every table of the report."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import torch

from .._optional import require
from ..calibration import calibrators
from ..data.sets import LogitSet
from ..functional.checks import check_trials
from ..report.report import Report
from ..report.results import results_of
from ..storage.files import printable
from .detection import collect_scores, detection_tables
from .gaps import coherence_rows, gap_rows, trial_rows
from .inputs import TEST, check_names, check_positive, check_seed, check_sets, several_sets, single_set
from .overlaps import overlap_rows
from .probing import ProbedSet, probe_set
from .reliability import calibration_tables, leak_rows


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
            targets there is no calibration.
        ood: out-of-distribution sets: one, or a mapping from names to such.
        calibration: held-out logits with targets to fit calibrators on: one set, or a mapping from names to such.
        train: training logits with targets; with them Mahalanobis on logits is among the detectors.
        trials: the number of coin flips, k.
        detectors: further detectors by name: callables from logits (N, C) to N scores, higher = more in-distribution,
            or detectors of pytorch-ood that work on logits, or were fitted on them. Scores of those that need inputs or
            features, such as ODIN and ViM, come as columns of `id` and `ood`.
        methods: the calibrators to fit on each split, among temperature, isotonic and vector scaling; all by default.
            The last takes the longest where there are many classes.
        bins: equal bins of confidence.
        replicates: of the bootstrap, for intervals of 95 %.
        seed: of the bootstrap and of Monte Carlo trials; the result depends on nothing else that is random.
        trial_counts: numbers of coin flips to compare.
        progress: told in a few words what begins.
        title: what was evaluated, for the head of the report.
        from_probabilities: whether the sets hold probabilities in the place of logits, which are refused otherwise.
            Their logarithms are taken, see `logit_set`; the energy is left out, for the softmax has taken it away.

    Returns:
        A Report. Columns that `id` and an OOD set have in common are compared as scores: higher = more in-distribution.

    >>> logits, target = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 5
    >>> report = evaluate((logits + 2 * torch.eye(5)[target], target), {"noise": logits}, replicates=50)
    >>> report.ood[["ood", "score", "auroc"]].round(2).head(2).to_dict("list")
    {'ood': ['noise', 'noise'], 'score': ['msp', 'energy'], 'auroc': [0.68, 0.79]}
    """
    require("pandas", purpose="evaluation needs")  # or an error before the work
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
    }
    settings: dict[str, Any] = {"title": printable(str(title)), "trials": trials, "bins": bins}
    settings |= {"replicates": replicates, "seed": seed}
    settings |= _describe(sets[0], (test, *oods.values(), *splits.values(), *training.values()))
    return Report(results_of(settings, rows))


def _describe(test: ProbedSet, sets: Iterable[LogitSet]) -> dict[str, Any]:
    from .. import __version__

    accuracy = float("nan") if test.correct is None else float(test.correct.double().mean())
    return {
        "classes": test.data.num_classes,
        "samples": {data.name: len(data) for data in sets},
        "accuracy": accuracy,
        "from_probabilities": test.data.from_probabilities,
        "date": date.today().isoformat(),
        "versions": {"torch_boc": __version__, "torch": str(torch.__version__)},
    }
