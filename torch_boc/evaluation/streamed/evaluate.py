"""The paper's protocol on tables of any size, from sums and counts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import torch

from ... import __version__
from ..._optional import require
from ...calibration import Calibrator, calibrators
from ...data.probabilities import REMEDY
from ...data.selection import check_class_names
from ...data.sets import LogitSet
from ...functional.checks import check_classes, check_trials, probabilities_message
from ...functional.registry import scores
from ...report.report import Report
from ...report.results import results_of
from ...report.tables import GapRow, LeakRow
from ...storage.files import printable
from ..detection import LOST
from ..gaps import trial_rows
from ..inputs import TEST, check_names, check_positive, check_seed, several_sets
from ..leaks import find_leaks
from ..reliability import fitted_methods
from .blocks import Reader
from .calibration import calibration_rows
from .detection import Errors, detection_rows
from .places import RESOLUTION
from .progress import Telling, telling
from .sampled import sampled_set
from .screening import screening_rows
from .sets import as_tables, several_tables
from .state import Plan, SetState


def evaluate_tables(
    id: Any,
    ood: Any = None,
    *,
    calibration: Any = None,
    trials: int = 100,
    methods: Collection[str] | None = None,
    bins: int = 15,
    replicates: int = 1000,
    seed: int = 42,
    trial_counts: Sequence[int] = (20, 50, 100, 200),
    progress: bool | Callable[[str], object] = True,
    title: str = "",
    from_probabilities: bool = False,
    classes: Sequence[str] | None = None,
    num_classes: int | None = None,
) -> Report:
    """`evaluate` for tables of any size: Parquet files, or Ray data sets, with logits or with a predictor's columns.

    The tables are read once, some rows at a time, and only sums and counts are kept. They take about 100 MB for each
    set, whatever the number of rows. For a Ray data set they are computed where its blocks are. What follows from sums
    is what `evaluate` gives: calibration, reliability, means, coherence. Three things differ:

    - Scores are counted in places, which separate numbers that differ by more than 1/1024 of their value. For MSP, q̄,
      −Δ, p-values and the entropy, the numbers are logarithms, so that scores that would round to 1 are told apart. All
      scores of a place count as ties. The largest errors that this can make, over all sets and scores, are in
      `report.results.settings["binning"]` and on the page.
    - What needs single rows is computed from a random sample of 65,536 rows of each set: the effect of the number of
      trials, the stream of the drift monitor, and the variances of the differences from MSP.
    - Overlaps of sets, detectors and Mahalanobis are left out, because they need all logits at once; so are further
      columns of scores, and the single samples of the page to explore.

    Tables of columns, as `BoCPredictor` and `torch_boc.ray.predict` write them, have no logits. What needs the logits
    is left out, and the report names it: the NLL, fitted calibrators, and the scores that are not in the columns.

    Args:
        id: the test set: a Parquet file, a folder of them, a pattern such as "out/part-*.parquet", a URI such as
            "s3://bucket/folder" that Arrow can read, a list of these, or a Ray data set. The columns are those of
            `read_logits`, or `prediction`, `confidence`, `gap` and `concentration` with further ones of the predictor.
        ood: the out-of-distribution sets: one set, or a mapping from names to sets.
        calibration: held-out logits with targets that fit in memory, as for `evaluate`.
        trials: the number of coin flips, k.
        methods: the calibrators to fit on each split; all by default.
        bins: the number of equal bins of confidence.
        replicates: the number of bootstrap samples for the intervals of 95 %.
        seed: of the bootstrap, of the random sample and of the halves of the test set.
        trial_counts: the numbers of coin flips to compare.
        progress: whether to show a progress bar, in a terminal or a notebook; or a function that is called with a few
            words.
        title: what is evaluated, for the head of the report.
        from_probabilities: whether the tables hold probabilities instead of logits.
        classes: the names of the classes, if the columns have these names.
        num_classes: the number of classes, for tables of columns from which it does not follow.

    Returns:
        A Report.

    >>> import pathlib, tempfile, torch_boc
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> predictor = torch_boc.BoCPredictor(torch.nn.Linear(5, 3), progress=False)
    >>> _ = predictor.to_parquet(torch.randn(200, 5), folder / "a.parquet")
    >>> report = evaluate_tables(folder, replicates=10, progress=False)
    >>> report.results.settings["samples"]
    {'id': 200}
    """
    require("pandas", purpose="evaluation needs")  # an error comes before the work
    trials, bins, replicates = check_positive(trials=trials, bins=bins, replicates=replicates)
    trials, trial_counts = check_trials(trials), [check_trials(count) for count in trial_counts]
    seed, methods = check_seed(seed), _check_methods(methods)
    named = None if classes is None else tuple(check_class_names(classes))
    known = None if num_classes is None else check_classes(num_classes)
    tables = [as_tables(id, TEST), *several_tables(ood, "ood")]
    splits = several_sets(calibration, "calibration", from_probabilities=from_probabilities)
    _check_names([x.name for x in tables], splits)
    reader = Reader(trials, named, from_probabilities, known)
    with telling(progress, sum(x.rows or 0 for x in tables)) as tell:
        judged = _fitted({} if tables[0].from_columns() else splits, methods, tell)
        plans = [Plan(x.name, trials, bins, seed, () if i else judged) for i, x in enumerate(tables)]
        readers = [reader, *[replace(reader, targets=False)] * (len(tables) - 1)]
        states = [x.collect(plan, read, tell) for x, plan, read in zip(tables, plans, readers, strict=True)]
        _check_kinds(states, splits, from_probabilities)
        how: dict[str, Any] = {"replicates": replicates, "seed": seed}
        names = _common_scores(states, from_probabilities)
        leaks = _leaks(states[0], splits)
        calibrated, curves = calibration_rows(states[0], **how)
        detected = detection_rows(states, names, progress=tell.say, **how)
        trusted = {row.split: splits[row.split] for row in leaks if not row.suspicious}
        screened = screening_rows(states, names, trusted, seed=seed, progress=tell.say)
        samples = [sampled_set(state) for state in states]
        flipped = trial_rows(samples, trial_counts, bins=bins, seed=seed, progress=tell.say)
    rows: dict[str, Sequence[Any]] = {
        "calibration": calibrated,
        "ood": detected.ood,
        "leaks": leaks,
        "overlaps": [],
        "gaps": _gap_rows(states),
        "trials": flipped,
        "coherence": [row for state in states if state.moments for row in state.moments.coherence(state.plan.name)],
        "reliability": curves,
        "roc": detected.roc,
        "histograms": detected.histograms,
        **screened._asdict(),
    }
    settings: dict[str, Any] = {"title": printable(str(title)), "trials": trials, "bins": bins, **how}
    settings |= _describe(states, splits, names, detected.errors, from_probabilities)
    return Report(results_of(settings, rows))


def _check_methods(methods: Collection[str] | None) -> Collection[str]:
    fitted = [method.name for method in calibrators() if method.needs_fit]
    methods = fitted if methods is None else methods
    check_names(methods, fitted, "methods")
    return methods


def _check_names(names: Sequence[str], splits: Mapping[str, LogitSet]) -> None:
    every = [*names, *splits]
    for i, name in enumerate(every):
        if name in every[:i]:
            raise ValueError(f"expected a different name for each set, got {name!r} twice; rename one")
    for name, data in splits.items():
        if data.target is None:
            raise ValueError(f"{name}: expected logits with targets, got none; give (logits, target)")


def _fitted(
    splits: Mapping[str, LogitSet], methods: Collection[str], tell: Telling
) -> tuple[tuple[str, Calibrator], ...]:
    """The calibrators, which can be pickled then."""
    found = tuple(fitted_methods(splits, methods, tell.say))
    for _, method in found:
        method.progress = None
    return found


def _check_kinds(states: Sequence[SetState], splits: Mapping[str, LogitSet], from_probabilities: bool) -> None:
    """Raise if sets have other classes than the test set, or probabilities where logits are expected."""
    for state in states:
        if state.shares and not from_probabilities:
            raise ValueError(f"{state.plan.name}: {probabilities_message('every row', REMEDY)}")
    for name, data in splits.items():
        if data.from_probabilities != from_probabilities:
            raise ValueError(f"{name}: expected all sets as logits or all as probabilities, got both")
    test = states[0].num_classes
    found = [(state.plan.name, state.num_classes) for state in states[1:]]
    for name, classes in [*found, *((name, data.num_classes) for name, data in splits.items())]:
        if classes != test:
            raise ValueError(
                f"expected the same number of classes in every set, got {test} in {TEST!r} and {classes} in {name!r}"
            )


def _common_scores(states: Sequence[SetState], from_probabilities: bool) -> list[str]:
    """The scores that all sets have."""
    lost = LOST if from_probabilities else ()
    return [name for name in scores if name not in lost and all(name in state.scores for state in states)]


def _leaks(test: SetState, splits: Mapping[str, LogitSet]) -> list[LeakRow]:
    if not test.judged:
        return []
    right = round(test.judged[0].accuracy() * test.samples)
    return find_leaks(right, test.samples, splits, stacklevel=4)


def _gap_rows(states: Sequence[SetState]) -> list[GapRow]:
    kinds = ["id", *["ood"] * (len(states) - 1)]
    return [
        GapRow(set=state.plan.name, kind=kind, **state.moments.means())
        for state, kind in zip(states, kinds, strict=True)
        if state.moments is not None
    ]


def _describe(
    states: Sequence[SetState],
    splits: Mapping[str, LogitSet],
    names: Sequence[str],
    errors: Errors,
    from_probabilities: bool,
) -> dict[str, Any]:
    test, from_columns = states[0], any(state.from_columns for state in states)
    sizes = {state.plan.name: state.samples for state in states} | {name: len(data) for name, data in splits.items()}
    return {
        "classes": test.num_classes,
        "samples": sizes,
        "accuracy": test.judged[0].accuracy() if test.judged else float("nan"),
        "from_probabilities": from_probabilities,
        "date": date.today().isoformat(),
        "versions": {"torch_boc": __version__, "torch": str(torch.__version__)},
        "binning": {"resolution": RESOLUTION, **errors._asdict()},
        "sampled": {state.plan.name: len(state.sample.order) for state in states},
        "from_columns": from_columns,
        "left_out": _left_out(states, names, from_columns, bool(splits)),
    }


def _left_out(states: Sequence[SetState], names: Sequence[str], from_columns: bool, fitted: bool) -> list[str]:
    """What a report on tables cannot have, in words."""
    needs = ["the search for samples in several sets", "single samples to explore"]
    if not from_columns:
        return needs
    missing = [scores[name].symbol for name in scores if name not in names]
    if missing:
        needs.append(f"the scores {', '.join(missing)}")
    if states[0].labelled:
        needs.append("the NLL")
        needs.append("calibrators that are fitted" if fitted else "fitted calibrators")
    return needs
