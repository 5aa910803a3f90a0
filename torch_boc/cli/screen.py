"""`torch-boc screen`: which samples to review at a guaranteed FPR, and which predictions to accept."""

import warnings
from collections.abc import Mapping
from typing import Any

from ..data.atomic import check_file
from ..data.errors import printable
from . import options as o
from .output import STDOUT, Terminal, check_output, list_files, print_json, sample_file, show_pairs, show_table, spinner

# The range of the FPR leaves out this share at each end.
TAIL = 0.05
FIRST = 5  # this many samples of each file are printed
DELTA = 0.05  # the probability with which the error may exceed --error, unless --delta is given
# The level of the tests whether a file is like the held-out samples, and how many of its rows they read.
SHIFT_ALPHA, SHIFT_ROWS = 0.001, 10_000
IF = "if samples are "
INVALID = "not valid"
NOT_VALID = f"{INVALID} here: these inputs do not look like the held-out set"
DECISIONS = ("review", "discovery", "accepted")  # columns that are counted


def screen(
    paths: o.Paths,
    calibration: o.HeldOutSet = None,
    alpha: o.Level = 0.05,
    delta: o.Delta = None,
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
    (or 1 - delta) over the draw of the held-out set, under the same condition. Nothing is accepted in a file that
    refutes it: far more than alpha is flagged, or a drift test of its rows in random order rejects. With --delta, the
    share of flagged samples is at most alpha with that probability as well.

    With -o it writes all rows, those with the lowest p-values of each file first: file (if there are several), index,
    columns of text and the target (if there are any), prediction, class (with --classes), confidence,
    p_in_distribution, review, discovery with --fdr, and accepted with --error. An existing file is replaced.

    Examples:
        torch-boc screen new.npz --calibration val.npz -o flagged.parquet
        torch-boc screen new.npz --calibration val.npz --error 0.01 -o queue.csv
        torch-boc screen new.npz --calibration val.npz --alpha 0.01 --fdr 0.1
        torch-boc screen a.npz b.npz --calibration val.npz --save-test test.pt
        torch-boc screen new.csv --test test.pt --delta 0.01 --json
    """
    from ..calibration import OverlapWarning, overlap_test
    from ..calibration.split_checks import overlap_message
    from ..data.files import some_rows
    from ..functional.table_columns import sample_columns
    from .calibrated_test import KIND, calibrated_test
    from .inputs import Files

    check_output(out, [*paths, calibration])
    if save is not None:
        check_file(save)
    sets: list[dict[str, Any]] = []
    with spinner("reading") as tell, sample_file(out) as write:
        files = Files(probabilities, classes, tell)
        ready = calibrated_test(files, calibration, kept, score=score, groups=groups)
        test, held, acceptance = ready.test, ready.data, None if error is None else ready.acceptance
        if error is not None and acceptance is None:
            raise ValueError(f"{ready.name}: expected held-out samples with targets for --error, got none")
        threshold = test.threshold(alpha, delta=delta)
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
            shifted = looks_shifted(test, new.logits, p)
            columns |= {**numbers, "p_in_distribution": p, "review": test.flag(new.logits, alpha, delta=delta)}
            if fdr is not None:
                columns["discovery"] = test.discoveries(new.logits, fdr)
            if acceptance is not None and error is not None:
                columns["accepted"] = acceptance.accept(new.logits, error, delta or DELTA) & (not shifted)
            columns = some_rows(columns, p.nan_to_num(-1).argsort(stable=True))
            write(columns)
            counts = {name: int(columns[name].sum()) for name in DECISIONS if name in columns}
            first = {k: x[: min(FIRST, counts["review"])] for k, x in columns.items() if k not in ("file", "review")}
            rows = zip(*(x if isinstance(x, list) else x.tolist() for x in first.values()), strict=True)
            flagged = [dict(zip(first, row, strict=True)) for row in rows]
            sets.append({"name": reader.name, "samples": len(p), "shifted": shifted, **counts, "first": flagged})
        if save is not None:
            state = None if ready.acceptance is None else ready.acceptance.state_dict()
            ready.save(save, KIND, files, test=test.state_dict(), acceptance=state)
    grouped = test.scoring.groups is not None  # a range for each of many groups would take long
    content = {
        "held_out": ready.name,
        "held_out_samples": int(test.samples.sum()),
        **test.scoring._asdict(),
        **{"alpha": alpha, "delta": delta, "fdr": fdr, "error": error},
        "threshold": threshold.score.tolist(),
        "group_samples": threshold.samples.tolist() if grouped else None,
        "expected_rate": threshold.expected_rate.tolist(),
        "rate_low": None if grouped else threshold.rate_quantile(TAIL).tolist(),
        "rate_high": None if grouped else threshold.rate_quantile(1 - TAIL).tolist(),
        "sets": sets,
        "output": out,
    }
    if acceptance is not None and error is not None:
        least, coverage, _ = acceptance.threshold(error, delta=delta or DELTA)
        content |= {"error_delta": delta or DELTA, "accepted_from": least.tolist()}
        content["accepted_held_out"] = coverage.tolist()
    if json:
        print_json(content)
        return
    show_decisions(content, ready, Terminal(stderr=out == STDOUT))
    list_files([out, save], Terminal(stderr=out == STDOUT))


def show_decisions(content: Mapping[str, Any], ready: Any, console: Terminal) -> None:
    """Print the decisions on each file, with the condition of each guarantee, or that it is not valid."""
    from ..functional.selective import required_samples
    from ..report.format import counted, join_words, percent, short_percent

    condition, error, fdr = ready.condition, content["error"], content["fdr"] or 0
    discoveries = f"discoveries: on average at most {short_percent(fdr)} are ID, if the ID ones among these samples are"
    titles = {"review": "flagged for review", "discovery": f"{discoveries} {condition.removeprefix(IF)}"}
    if error is not None:
        delta, most = content["error_delta"], short_percent(error)
        within = f" in each group by {groups}" if (groups := ready.acceptance.scoring.groups) else ""
        valid = f"accepted: error ≤ {most}{within} with {short_percent(round(1 - delta, 12))} probability, {condition}"
        samples, needed = int(ready.acceptance.samples.max()), required_samples(0, error, delta)
        if samples < needed:
            valid = f"accepted at {most} error: {needed:,} held-out samples needed, got {samples:,}"
        elif not bool((ready.acceptance.coverage(ready.acceptance, error, delta) > 0).any()):
            valid = f"accepted at {most} error: too many confident errors among the held-out samples"
    for part in content["sets"]:
        console.print(f"{part['name']}: {counted(part['samples'], 'sample')}", style="bold", soft_wrap=True)
        if error is not None:
            titles["accepted"] = f"accepted at {most} error: {NOT_VALID}" if part["shifted"] else valid
        numbers = {title: part[key] for key, title in titles.items() if key in part}
        show_pairs(((title, f"{x:,} ({percent(x / part['samples'])})") for title, x in numbers.items()), console)
        if first := part["first"]:
            console.print(f"the lowest p-values ({len(first)} of {part['review']:,} flagged):")
            show_table([[*first[0]], *([*row.values()] for row in first)], console)
    within = f" in each group by {content['groups']}"
    if content["rate_low"] is not None:
        within = f" (with 90 % probability {percent(content['rate_low'])} to {percent(content['rate_high'])})"
    most_expected = max(content["expected_rate"]) if content["groups"] else content["expected_rate"]
    rate = f"at most {percent(most_expected)}{within}, {condition}"
    shifted = [part["name"] for part in content["sets"] if part["shifted"]]
    if shifted:
        rate = NOT_VALID if len(shifted) == len(content["sets"]) else f"{rate}; {INVALID} for {join_words(shifted)}"
    against = f"{counted(content['held_out_samples'], 'sample')} of {ready.name}, score {content['score']}"
    console.print(f"expected FPR: {rate}; held-out set: {against}")


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
