"""`torch-boc screen`: which samples to review at a guaranteed FPR, and which predictions to accept."""

import warnings
from typing import Any

from ..data.atomic import check_file
from ..data.text import printable
from . import options as o
from .output import STDOUT, Terminal, check_output, list_files, print_json, sample_file, show_pairs, show_table, spinner

# The range of the FPR leaves out this share at each end.
TAIL = 0.05
FIRST = 5  # so many samples of each file are printed
DELTA = 0.05  # the probability with which the error may exceed --error
# The level of the tests whether a file is like the held-out samples, and how many of its rows they read.
SHIFT_ALPHA, SHIFT_ROWS = 0.001, 10_000
NOT_VALID = "not valid here: these inputs do not look like the held-out set"
DECISIONS = ("review", "discovery", "accepted")  # columns that are counted


def screen(
    paths: o.Paths,
    calibration: o.HeldOut = None,
    alpha: o.Level = 0.05,
    confidence: o.Confidence = None,
    fdr: o.Fdr = None,
    error: o.Error = None,
    score: o.Score = None,
    groups: o.Groups = None,
    out: o.Table = None,
    save: o.SaveTest = None,
    kept: o.KeptTest = None,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    json: o.Json = False,
) -> None:
    """Flag samples for review at a guaranteed FPR, and accept predictions at a guaranteed error.

    The p-value of a sample is the rank of its score among held-out samples. On average at most the share alpha of
    samples is flagged if they are exchangeable with the held-out set, whatever the model. Rows with NaN are flagged.

    With --error 0.01 and held-out targets, the error among "accepted" predictions is at most 1 % with 95 % probability
    (or --confidence) over the draw of the held-out set, under the same condition. Nothing is accepted in a file that
    refutes it: far more than alpha is flagged, or a drift test of its rows in random order rejects.

    With -o it writes all rows, those with the lowest p-values of each file first: file (if there are several), index,
    columns of text and the target (if there are any), prediction, class (with --classes), confidence,
    p_in_distribution, review, discovery with --fdr, and accepted with --error. An existing file is replaced.

    Examples:
        torch-boc screen new.npz --calibration val.npz -o flagged.parquet
        torch-boc screen new.npz --calibration val.npz --error 0.01 -o queue.csv
        torch-boc screen new.npz --calibration val.npz --alpha 0.01 --fdr 0.1
        torch-boc screen a.npz b.npz --calibration val.npz --save-test test.pt
        torch-boc screen new.csv --test test.pt --confidence 0.99 --json
    """
    from ..calibration import OverlapWarning, overlap_test
    from ..calibration.split_checks import many_repeated, overlap_message, repeated_message
    from ..data.files import some_rows
    from ..functional.selective import required_samples
    from ..functional.table_columns import sample_columns
    from ..report.format import CONDITION, counted, percent, short_percent
    from .calibrated_test import KIND, calibrated_test
    from .inputs import Files

    check_output(out, [*paths, calibration])
    if save is not None:
        check_file(save)
    found: list[dict[str, Any]] = []
    with spinner("reading") as tell, sample_file(out) as write:
        files = Files(probabilities, classes, tell)
        ready = calibrated_test(files, calibration, kept, score=score, groups=groups)
        test, held = ready.test, ready.data
        accept, delta = (None if error is None else ready.accept), DELTA if confidence is None else 1 - confidence
        if error is not None and accept is None:
            raise ValueError(f"{ready.name}: expected held-out samples with targets for --error, got none")
        if held is not None and (repeated := many_repeated(held.logits, held.target)):
            message = repeated_message(repeated, len(held), repr(held.name))
            warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=2)
        threshold = test.threshold(alpha, delta=None if confidence is None else 1 - confidence)
        readers = [ready.open(files, path) for path in paths]
        notes = [[*map(printable, reader.notes)] for reader in readers]  # as blocks name them
        shared = [name for name in notes[0] if all(name in names for names in notes)]
        for reader in readers:
            tell(f"testing {reader.name}")
            new = reader.whole()
            if held is not None and (same := overlap_test(new.logits, held.logits)).suspicious:
                names = {"test": repr(reader.name), "other": repr(held.name)}
                message = overlap_message("held-out", same.shared, len(new.logits), **names)
                warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=2)
            numbers = sample_columns(new.logits, columns=["prediction", "confidence"])
            columns: dict[str, Any] = {"file": [reader.name] * len(new.logits)} if len(readers) > 1 else {}
            columns |= {"index": new.row_numbers, **{name: new.notes[name] for name in shared}}
            if reader.classes:
                columns["class"] = [reader.classes[i] for i in numbers["prediction"].tolist()]
            p = test(new.logits)
            review = test.flag(new.logits, alpha, delta=None if confidence is None else delta)
            shifted = looks_shifted(test, new.logits, p)
            columns |= {**numbers, "p_in_distribution": p, "review": review}
            if fdr is not None:
                columns["discovery"] = test.discoveries(new.logits, fdr)
            if error is not None and accept is not None:
                columns["accepted"] = accept.accept(new.logits, error, delta) & (not shifted)
            columns = some_rows(columns, p.nan_to_num(-1).argsort(stable=True))
            write(columns)
            counts = {name: int(columns[name].sum()) for name in DECISIONS if name in columns}
            first = {k: x[: min(FIRST, counts["review"])] for k, x in columns.items() if k not in ("file", "review")}
            rows = zip(*(x if isinstance(x, list) else x.tolist() for x in first.values()), strict=True)
            flagged = {"first": [dict(zip(first, row, strict=True)) for row in rows]}
            found.append({"name": reader.name, "samples": len(p), "shifted": shifted, **counts, **flagged})
        if save is not None:
            accepting = None if ready.accept is None else ready.accept.state_dict()
            ready.save(save, KIND, files, test=test.state_dict(), accept=accepting)
    grouped = test.scoring.groups is not None  # a range for each of many groups would take long
    content = {
        "held_out": ready.name,
        "held_out_samples": int(test.samples.sum()),
        **test.scoring._asdict(),
        **{"alpha": alpha, "confidence": confidence, "fdr": fdr, "error": error},
        "threshold": threshold.score.tolist(),
        "group_samples": threshold.samples.tolist() if grouped else None,
        "expected_rate": threshold.expected_rate.tolist(),
        "rate_low": None if grouped else threshold.rate_quantile(TAIL).tolist(),
        "rate_high": None if grouped else threshold.rate_quantile(1 - TAIL).tolist(),
        "sets": found,
        "output": out,
    }
    if error is not None and accept is not None:
        least, coverage, _ = accept.threshold(error, delta=delta)
        content |= {
            "error_confidence": 1 - delta,
            "accepted_from": least.tolist(),
            "accepted_held_out": coverage.tolist(),
        }
    if json:
        print_json(content)
        return
    console = Terminal(stderr=out == STDOUT)
    discovered = (
        f"discoveries: on average at most {short_percent(fdr or 0)} are ID, if the ID ones among these samples are"
    )
    titles = {"review": "flagged for review", "discovery": f"{discovered} exchangeable with the held-out set"}
    sure, most = short_percent(round(1 - delta, 12)), short_percent(error or 0)
    valid = f"accepted: error ≤ {most} with {sure} probability, {CONDITION}"
    if accept is not None and error is not None and not bool((accept.coverage(accept, error, delta) > 0).any()):
        samples, needed = int(accept.samples.max()), required_samples(0, error, delta)
        valid = f"accepted at {most} error: too many confident errors among the held-out samples"
        if samples < needed:
            valid = f"accepted at {most} error: {needed:,} held-out samples needed, got {samples:,}"
    for part in found:
        console.print(f"{part['name']}: {counted(part['samples'], 'sample')}", style="bold", soft_wrap=True)
        titles["accepted"] = f"accepted at {most} error: {NOT_VALID}" if part["shifted"] else valid
        numbers = {title: part[key] for key, title in titles.items() if key in part}
        show_pairs(((title, f"{x:,} ({percent(x / part['samples'])})") for title, x in numbers.items()), console)
        if first := part["first"]:
            lowest = (
                f"the {len(first)} with the lowest p-values" if len(first) > 1 else "the one with the lowest p-value"
            )
            console.print(f"{lowest} of the {part['review']:,} flagged:")
            show_table([[*first[0]], *([*row.values()] for row in first)], console)
    within = f" in each group by {test.scoring.groups}"
    if not grouped:
        within = f" (with 90 % probability {percent(content['rate_low'])} to {percent(content['rate_high'])})"
    rate = f"at most {percent(float(threshold.expected_rate.max()))}{within}, {CONDITION}"
    against = f"{counted(content['held_out_samples'], 'sample')} of {ready.name}, score {test.scoring.score}"
    if all(part["shifted"] for part in found):
        rate = NOT_VALID
    console.print(f"expected FPR: {rate}; held-out set: {against}")
    list_files([out, save], console)


def looks_shifted(test: Any, logits: Any, p_values: Any) -> bool:
    """Whether samples in any order are refuted to be exchangeable with the held-out samples of a test.

    Far more of them are below the 5 % quantile of the held-out p-values than chance explains, or a drift monitor that
    reads them in random order raises its alarm; each at half of `SHIFT_ALPHA`.
    """
    import torch

    from ..evaluation.significance import LEVEL
    from ..functional.conformal import excess_chance, threshold_rank
    from ..nn import DriftMonitor

    held_out, rank = int(test.samples.sum()), threshold_rank(int(test.samples.sum()), LEVEL)
    if rank and test.scoring.groups is None:
        low, counted = int((p_values <= LEVEL).sum()), int(p_values.isfinite().sum())
        if excess_chance(low, counted, rank, held_out) < SHIFT_ALPHA / 2:
            return True
    rows = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))[:SHIFT_ROWS]
    monitor = DriftMonitor(test, SHIFT_ALPHA / 2)
    monitor.update(logits[rows])
    return bool(monitor.alarm)
