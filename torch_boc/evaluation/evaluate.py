"""The paper's protocol in one function: from logits to all tables of a report."""

import warnings
from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import Any

import torch

from .. import __version__
from .._optional import require
from ..calibration import CALIBRATORS, MatrixScaling, VectorScaling, leak_test, overlap_test
from ..calibration.split_checks import many_repeated
from ..data.errors import printable
from ..data.logit_set import ColumnSet, LogitSet
from ..functional.checks import check_trials
from ..functional.coins import bag_of_coins
from ..functional.registry import scores
from ..report.report import Report
from ..report.results import Results, frame
from ..report.story import set_faults
from .calibration import calibration_tables
from .decisions import acceptance_rows, choose_held_out, class_tables, find_violations, review_rows, screening_tables
from .detection import collect_scores, detection_tables
from .gaps import gap_tables
from .inputs import MAX_ROWS, AnySet, ProbedSet, check_integers, labelled, probe_set, read_sets
from .significance import LEVEL, conclude

# With fewer products than this in a step of matrix scaling, several threads cost more than they save.
MANY_PRODUCTS = 2**30


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
    progress: Callable[[str], object] | None = None,
    title: str = "",
    from_probabilities: bool = False,
    max_rows: int = MAX_ROWS,
) -> Report:
    """Calibration, out-of-distribution detection and the coherence gap of a classifier, from its logits.

    Args:
        id: the test set: logits, (logits, target), a mapping, or what `LogitReader` reads: a file, or Parquet files in
            a folder, under a pattern or at a URI. Without targets calibration is not evaluated. Tables may hold the
            columns that `BoCPredictor` writes instead of logits; the report names what it leaves out then.
        ood: the out-of-distribution sets: one set, or a mapping from names to sets.
        calibration: held-out logits with targets, on which calibrators are fitted: one set, or a mapping from names to
            sets. The conformal test and acceptance are calibrated on the first that is neither easier nor harder than
            the test set and shares no samples with it, or on a random half of the test set if there is none.
        train: training logits with targets. If they are given, Mahalanobis on logits is one of the detectors.
        trials: the number of coin flips, k.
        detectors: further detectors by name: callables from logits (N, C) to N scores, higher = more in-distribution,
            or detectors of pytorch-ood that work on logits or were fitted on logits. For detectors that need inputs or
            features, such as ODIN and ViM, give the scores as columns of `id` and `ood`.
        methods: the calibrators to fit on each split, among temperature, isotonic, vector and matrix
            scaling; by default all but matrix scaling, which is the slowest and rarely the best.
        bins: the number of equal bins of confidence.
        replicates: the number of bootstrap samples for the 95 % intervals.
        seed: the seed of the bootstrap, of the order of samples for the conformal test, and
            of the rows that `max_rows` chooses. Nothing else is random.
        progress: called with a few words when a step begins.
        title: what is evaluated, for the head of the report.
        from_probabilities: whether the sets hold probabilities instead of logits; otherwise they are refused. Their
            logarithms are the logits, see `read_logits`. The energy is left out: it is always 0 after a softmax.
        max_rows: from a file, folder or URI with more rows, a uniform sample of this size is drawn. The report
            says so, and its numbers and intervals are those of these rows. For sums over all rows there are `BoCMetric`
            and `torch_boc.ray.summarize`.

    Returns:
        A Report. Columns that `id` and an OOD set both have are compared as scores: higher = more in-distribution.

    >>> logits, target = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 5
    >>> report = evaluate((logits + 2 * torch.eye(5)[target], target), {"noise": logits}, replicates=50)
    >>> report.ood.set_index("score")["auroc"].round(2).loc[["msp", "energy"]].to_dict()
    {'msp': 0.68, 'energy': 0.79}
    """
    require("pandas", purpose="evaluation needs")  # an error comes before the work
    report_step = progress or (lambda message: None)
    bins, replicates, max_rows = check_integers(1, bins=bins, replicates=replicates, max_rows=max_rows)
    trials = check_trials(trials)
    (seed,) = check_integers(0, seed=seed)
    names = [method.name for method in CALIBRATORS if method.needs_fit]
    methods = [name for name in names if name != MatrixScaling.name] if methods is None else methods
    unknown = [methods] if isinstance(methods, str) else [name for name in methods if name not in names]
    if unknown:
        raise ValueError(f"expected methods as a list of names among {', '.join(names)}, got {unknown[0]!r}")
    kind: dict[str, Any] = {"from_probabilities": from_probabilities, "max_rows": max_rows, "seed": seed}
    test, oods, splits, training = read_sets(id, ood, calibration, train, **kind)
    bare = [data.name for data in (test, *oods.values()) if isinstance(data, ColumnSet)]
    if bare and (train is not None or detectors):
        raise ValueError(f"{bare[0]}: expected logits for detectors and Mahalanobis, got the columns of a predictor")
    everything = test, *oods.values(), *splits.values(), *training.values()
    sets = []
    for data in (test, *oods.values()):
        report_step(f"probing {data.name}")
        sets.append(probe_set(data, trials))
    threads = torch.get_num_threads()
    # For small sets, waiting of threads for each other takes most of the time.
    torch.set_num_threads(threads if max(map(len, everything)) * test.num_classes**2 >= MANY_PRODUCTS else 1)
    try:
        scored = collect_scores(sets, training.get("train"), detectors)
        report_step("looking for samples in several sets")
        shared = _overlap_rows(test, {"calibration": splits, "ood": oods, "train": training})
        leaks = _leak_rows(sets[0], splits)
        repeated = {x.name: many_repeated(x.logits, x.target) for x in everything if isinstance(x, LogitSet)}
        sampling: dict[str, Any] = {"replicates": replicates, "seed": seed, "progress": report_step}
        distrusted = {row["set"] for row in shared if row["suspicious"] and row["kind"] == "calibration"}
        distrusted |= {row["split"] for row in leaks if row["suspicious"]}
        calibrated, judged = calibration_tables(sets[0], splits, methods=methods, bins=bins, **sampling)
        held_out = choose_held_out(test, {name: data for name, data in splits.items() if name not in distrusted}, seed)
        scaled = judged.get((held_out.name, VectorScaling.name))
        tables: dict[str, Any] = {
            "leaks": leaks,
            "overlaps": shared,
            **calibrated,
            **detection_tables(scored, **sampling),
            **gap_tables(sets, bins),
            **screening_tables(sets, held_out, seed=seed, progress=report_step),
            "acceptance": acceptance_rows(sets[0], held_out),
            "review": review_rows(sets),
            **class_tables(sets[0], None if scaled is None else scaled.confidence),
        }
    finally:
        torch.set_num_threads(threads)
    frames = {name: frame(name, rows) for name, rows in tables.items()}
    settings: dict[str, Any] = {
        "title": printable(str(title)),
        "trials": trials,
        "bins": bins,
        "replicates": replicates,
        "seed": seed,
        "level": LEVEL,
        "classes": test.num_classes,
        "class_names": None if test.classes is None else [printable(str(name)) for name in test.classes],
        "samples": {data.name: len(data) for data in everything},
        "repeated": {name: count for name, count in repeated.items() if count},
        "violations": find_violations(held_out, frames),
        "accuracy": float("nan"),
        "from_probabilities": test.from_probabilities,
        "date": date.today().isoformat(),
        "versions": {"torch_boc": __version__, "torch": str(torch.__version__)},
    }
    if test.target is not None:
        for name, target in (("accuracy", test.target), ("shifted_accuracy", test.target - 1)):
            settings[name] = float((sets[0].coins.prediction == target).double().mean())
    drawn = {data.name: data.total for data in everything if data.total is not None}
    settings |= {"sampled": drawn} if drawn else {}
    if bare:
        left_out = ["the search for samples in several sets"]
        missing = [score.symbol for name, score in scores.items() if any(name not in data.scores for data in sets)]
        left_out += [f"the scores {', '.join(missing)}"] if missing else []
        if test.target is not None and test.name in bare:
            no_loss = sets[0].nll is None or bool(sets[0].nll.isnan().any())
            left_out += [*(["the NLL"] if no_loss else []), "fitted calibrators"]
        settings |= {"from_columns": True, "left_out": left_out}
    results = Results(settings | conclude(frames, distrusted), frames)
    for category, fault in set_faults(results):
        warnings.warn(fault.rstrip("."), category, stacklevel=2)
    return Report(results)


def _overlap_rows(test: AnySet, groups: Mapping[str, Mapping[str, AnySet]]) -> list[dict[str, Any]]:
    """Rows of the table `overlaps`."""
    rows = []
    for kind, sets in groups.items():
        for name, data in sets.items():
            if isinstance(test, LogitSet) and isinstance(data, LogitSet):
                overlap = overlap_test(test.logits, data.logits, test.target, data.target)
                rows.append({"set": name, "kind": kind, "samples": len(data)} | overlap._asdict())
    return rows


def _leak_rows(test: ProbedSet, splits: Mapping[str, AnySet]) -> list[dict[str, Any]]:
    """Rows of the table `leaks`."""
    if test.correct is None:
        return []
    rows = []
    for split, data in splits.items():
        logits, target = labelled(data)
        right = int((bag_of_coins(logits).prediction == target).sum())
        leak = leak_test(right, len(data), int(test.correct.sum()), len(test.data))
        rows.append({"split": split, "samples": len(data)} | leak._asdict())
    return rows
