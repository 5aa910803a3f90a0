"""`torch-boc screen`: which samples should a person look at, at a false-alarm rate that holds?"""

import warnings
from typing import Any

from ..data.atomic import check_file, printable
from . import options as o
from .output import STDOUT, Terminal, check_output, list_files, print_json, sample_file, show_pairs, show_table, working

# The range of the false-alarm rate leaves out this share at each end.
TAIL = 0.05
FIRST = 5  # so many samples of each file are printed
SURE = 0.95  # the chance with which an error is kept
DECISIONS = ("review", "discovery", "accepted")  # columns that are counted


def screen(
    paths: o.Paths,
    calibration: o.HeldOut = None,
    alpha: o.Level = 0.05,
    confidence: o.Confidence = None,
    fdr: o.Fdr = None,
    error: o.Error = None,
    score: o.Score = None,
    temperature: o.Temperature = None,
    groups: o.Groups = None,
    out: o.Table = None,
    save: o.SaveTest = None,
    kept: o.KeptTest = None,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    json: o.Json = False,
) -> None:
    """Flags the samples that a person should look at, and says which predictions may go out without a person.

    The p-value of a sample is the rank of its score among held-out samples, so that at most the share alpha of
    familiar samples is flagged on average, whatever the network is. The paper's test, which does not hold its level, is
    printed beside it. Rows with NaN are flagged.

    With --error 0.01, and held-out targets, "accepted" are the predictions that may go out unseen: at most 1 % of them
    are wrong, with a chance of 95 % (or --confidence) over the held-out samples. Drift voids this promise.

    With -o it writes all rows, the most suspicious of each file first: file (if there are several), index, columns of
    text and the target (if there are any), prediction, class (with --classes), confidence, p_in_distribution, review,
    discovery with --fdr, and accepted with --error. An older file of that name is replaced.

    Examples:
        torch-boc screen new.npz --calibration val.npz -o flagged.parquet
        torch-boc screen new.npz --calibration val.npz --error 0.01 -o queue.csv
        torch-boc screen new.npz --calibration val.npz --alpha 0.01 --fdr 0.1
        torch-boc screen a.npz b.npz --calibration val.npz --save-test test.pt
        torch-boc screen new.csv --test test.pt --confidence 0.99 --json
    """
    from ..calibration import OverlapWarning, overlap_test
    from ..calibration.leaks import overlap_message
    from ..data.files import some_rows
    from ..functional.columns import sample_columns
    from ..report.words import percent
    from .conformal import KIND, ready_test
    from .inputs import Files

    check_output(out, [*paths, calibration])
    if save is not None:
        check_file(save)
    found: list[dict[str, Any]] = []
    with working("reading") as tell, sample_file(out) as write:
        files = Files(probabilities, classes, tell)
        ready = ready_test(files, calibration, kept, score=score, temperature=temperature, groups=groups)
        test, held = ready.test, ready.data
        accept, sure = (None if error is None else ready.accept), confidence or SURE
        if error is not None and accept is None:
            raise ValueError(f"{ready.name}: expected held-out samples with targets for --error, got none")
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
            numbers = sample_columns(new.logits, columns=["prediction", "confidence", "p_value"])
            paper = numbers.pop("p_value") <= alpha
            columns: dict[str, Any] = {"file": [reader.name] * len(paper)} if len(readers) > 1 else {}
            columns |= {"index": new.row_numbers, **{name: new.notes[name] for name in shared}}
            if reader.classes:
                columns["class"] = [reader.classes[i] for i in numbers["prediction"].tolist()]
            p, review = (
                test(new.logits),
                test.flag(new.logits, alpha, delta=None if confidence is None else 1 - confidence),
            )
            columns |= {**numbers, "p_in_distribution": p, "review": review}
            if fdr is not None:
                columns["discovery"] = test.discoveries(new.logits, fdr)
            if error is not None and accept is not None:
                columns["accepted"] = accept.accept(new.logits, error, 1 - sure)
            columns = some_rows(columns, p.nan_to_num(-1).argsort(stable=True))
            write(columns)
            counts = {name: int(columns[name].sum()) for name in DECISIONS if name in columns}
            first = {k: x[: min(FIRST, counts["review"])] for k, x in columns.items() if k not in ("file", "review")}
            rows = zip(*(x if isinstance(x, list) else x.tolist() for x in first.values()), strict=True)
            flagged = {"first": [dict(zip(first, row, strict=True)) for row in rows]}
            found.append({"name": reader.name, "samples": len(p), **counts, "paper": int(paper.sum()), **flagged})
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
        least, coverage, _ = accept.threshold(error, delta=1 - sure)
        content |= {"error_confidence": sure, "accepted_from": least.tolist(), "accepted_held_out": coverage.tolist()}
    if json:
        print_json(content)
        return
    console = Terminal(stderr=out == STDOUT)
    titles = {"review": "flagged for review", "discovery": f"discoveries at FDR {percent(fdr or 0)}"}
    titles["accepted"] = f"go out unseen, with a chance of {percent(sure)} at most {percent(error or 0)} wrong"
    titles["paper"] = "the paper's test would flag"
    for part in found:
        console.print(f"{part['name']}: {part['samples']:,} samples", style="bold", soft_wrap=True)
        counted = {title: part[key] for key, title in titles.items() if key in part}
        show_pairs(((title, f"{x:,} ({percent(x / part['samples'])})") for title, x in counted.items()), console)
        if first := part["first"]:
            console.print(f"the first of the {part['review']:,} to look at:")
            show_table([[*first[0]], *([*row.values()] for row in first)], console)
    within = f" in each group by {test.scoring.groups}"
    if not grouped:
        within = f" (with a chance of 90 %: {percent(content['rate_low'])} to {percent(content['rate_high'])})"
    rate = f"at most {percent(float(threshold.expected_rate.max()))}{within}"
    against = f"{content['held_out_samples']:,} held-out samples of {ready.name} by {test.scoring.score}"
    console.print(f"expected false alarms: {rate}, against {against}")
    list_files([out, save], console)
