"""`torch-boc screen`: which samples should a person look at, at a false-alarm rate that holds?"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

from ..data.atomic import check_file, replacing
from . import options as o
from .output import check_output, list_files, print_json, put, sample_file, show_table, terminal, working

# The range of the false-alarm rate leaves out this share at each end.
TAIL = 0.05
FIRST = 5  # so many samples of each file are printed
SURE = 0.95  # the chance with which an error is kept


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
    trials: o.Trials = 100,
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
    import torch

    from ..data.files import some_rows
    from ..functional.checks import check_share
    from ..functional.columns import sample_columns
    from ..functional.conformal import adjusted_p_values
    from .conformal import ready_test
    from .inputs import Files

    asked = {"alpha": alpha, "confidence": confidence, "fdr": fdr, "error": error}
    for name, share in asked.items():
        if share is not None:
            check_share(f"--{name}", share)
    check_output(out, [*paths, calibration])
    if save is not None:
        check_file(save)
    found: list[dict[str, Any]] = []
    with working("reading") as tell, sample_file(out) as write:
        files = Files(probabilities, classes, tell)
        ready = ready_test(files, calibration, kept, score=score, temperature=temperature, groups=groups)
        accept, promise = (None if error is None else ready.accepting()), (error or 0, confidence or SURE)
        readers = [ready.open(files, path) for path in paths]
        shared = [name for name in readers[0].notes if all(name in reader.notes for reader in readers)]
        for reader in readers:
            tell(f"testing {reader.name}")
            new = reader.whole()
            ready.warn_of_samples(reader.name, new)
            columns: dict[str, Any] = {"file": [reader.name] * len(new.row_numbers)} if len(readers) > 1 else {}
            columns |= {"index": new.row_numbers, **{name: new.notes[name] for name in shared}}
            numbers = sample_columns(new.logits, trials=trials, columns=["prediction", "confidence", "p_value"])
            paper = numbers.pop("p_value") <= alpha
            if reader.classes:
                columns["class"] = [reader.classes[i] for i in numbers["prediction"].tolist()]
            p, review = ready.test(new.logits), ready.test.flag(new.logits, alpha, confidence=confidence)
            columns |= {**numbers, "p_in_distribution": p, "review": review}
            counts: dict[str, Any] = {"name": reader.name, "samples": len(p), "review": int(review.sum())}
            if fdr is not None:
                columns["discovery"] = adjusted_p_values(p) <= fdr
                counts["discoveries"] = int(columns["discovery"].sum())
            if accept is not None:
                columns["accepted"] = accept.accept(new.logits, *promise)
                counts["accepted"] = int(columns["accepted"].sum())
            columns = some_rows(columns, p.nan_to_num(-1).argsort(stable=True))
            write(columns)
            first = some_rows(columns, torch.arange(min(FIRST, counts["review"])))
            rows = zip(*(x if isinstance(x, list) else x.tolist() for x in first.values()), strict=True)
            flagged = [dict(zip(first, row, strict=True)) for row in rows]
            found.append({**counts, "paper": int(paper.sum()), "first": flagged})
        if save is not None:
            with replacing(save) as temporary:
                torch.save(ready.packed(accept), temporary)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `flag` has said it
        threshold = ready.test.threshold(alpha, confidence=confidence)
        accepted = None if accept is None else accept.threshold(promise[0], confidence=promise[1])
    grouped = ready.test.scoring.groups is not None  # a range for each of many groups would take long
    content = {
        "held_out": ready.name,
        "held_out_samples": int(ready.test.samples.sum()),
        **ready.test.scoring._asdict(),
        **asked,
        "threshold": threshold.score.tolist(),
        "group_samples": threshold.samples.tolist() if grouped else None,
        "expected_rate": threshold.expected_rate.tolist(),
        "rate_low": None if grouped else threshold.rate_quantile(TAIL).tolist(),
        "rate_high": None if grouped else threshold.rate_quantile(1 - TAIL).tolist(),
        "error_confidence": None if accepted is None else promise[1],
        "accepted_from": None if accepted is None else accepted.score.tolist(),
        "accepted_held_out": None if accepted is None else accepted.coverage.tolist(),
        "sets": found,
        "output": out,
    }
    if json:
        print_json(content)
        return
    console = terminal(out)
    for title, text in _lines(content):
        put(console, f"{title:<30} {text}" if text else title, "" if text else "bold", soft_wrap=True)
    for part in found:
        if part["first"]:
            put(console, f"\n{part['name']}: the first of the {part['review']:,} to look at", "bold")
            shown = [[k for k in part["first"][0] if k not in ("file", "review")]]
            show_table([*shown, *([_short(row[k]) for k in shown[0]] for row in part["first"])], console)
    list_files([out, save], console)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lines(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of a short table: titles and values."""
    from ..report.words import percent, short_percent

    yield f"Tested against {content['held_out_samples']:,} held-out samples of {content['held_out']}", ""
    tempered = f" at temperature {content['temperature']:g}" if content["temperature"] != 1 else ""
    yield "score", f"{content['score']}{tempered}"
    sure = f", kept with a chance of {percent(content['confidence'])}" if content["confidence"] else ""
    yield "level", f"{short_percent(content['alpha'])}{sure}"
    if content["groups"]:
        sizes = [size for size in content["group_samples"] if size]
        within = f"{len(sizes)} with held-out samples, {min(sizes):,} to {max(sizes):,} in each"
        yield f"groups by {content['groups']}", within
        yield "expected false alarms", f"at most {percent(max(content['expected_rate']))} in each group"
    else:
        chance = f"with a chance of 90 %: {percent(content['rate_low'])} to {percent(content['rate_high'])}"
        yield "flagged if the score is below", f"{content['threshold']:.4g}"
        yield "expected false alarms", f"at most {percent(content['expected_rate'])} ({chance})"
        yield "smallest p-value possible", f"{1 / (content['held_out_samples'] + 1):.2g}"
    for part in content["sets"]:
        total = part["samples"]
        counted = [x for x in ("review", "discoveries", "accepted", "paper") if x in part]
        shares = {x: f"{part[x]:,} ({percent(part[x] / total)})" for x in counted}
        yield f"\n{part['name']}: {total:,} samples", ""
        yield "flagged for review", shares["review"]
        if content["fdr"] is not None:
            # No p-value is below 1 / (n + 1), so that a discovery takes several samples at once.
            largest = max(content["group_samples"] or [content["held_out_samples"]])
            needed = math.ceil(total / (content["fdr"] * (largest + 1)))
            few = needed > 1 and not part["discoveries"]
            more = f"; it takes {needed:,} or more at once, with so few held-out samples" if few else ""
            yield f"discoveries at FDR {percent(content['fdr'])}", f"{shares['discoveries']}{more}"
        if content["error"] is not None:
            most, kept = short_percent(content["error"]), short_percent(content["error_confidence"])
            yield "go out unseen", f"{shares['accepted']}, of which at most {most} are wrong, with a chance of {kept}"
        yield "the paper's test would flag", shares["paper"]
