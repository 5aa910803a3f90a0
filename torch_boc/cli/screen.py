"""`torch-boc screen`: which samples should a person look at, at a false-alarm rate that holds?"""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.atomic import check_file, replacing
from .options import (
    ENDINGS,
    Calibration,
    Classes,
    Groups,
    JsonObject,
    KeptTest,
    Probabilities,
    Samples,
    ScoreName,
    Temperature,
    Trials,
)
from .output import check_output, list_files, print_json, put, sample_file, working
from .output import screen as terminal

# The range of the false-alarm rate leaves out this share at each end.
TAIL = 0.05


def screen(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help=f"New logits: {ENDINGS}.")],
    calibration: Calibration = None,
    alpha: Annotated[float, typer.Option("--alpha", metavar="A", help="Share of familiar samples to flag.")] = 0.05,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", metavar="C", help="Keep that share with this chance, such as 0.99."),
    ] = None,
    fdr: Annotated[
        float | None, typer.Option("--fdr", metavar="F", help="Find samples, of which this share may be familiar.")
    ] = None,
    score: ScoreName = None,
    temperature: Temperature = None,
    groups: Groups = None,
    out: Samples = None,
    save: Annotated[
        Path | None, typer.Option("--save-test", metavar="PATH", help="Keep the calibrated test in this file (.pt).")
    ] = None,
    kept: KeptTest = None,
    probabilities: Probabilities = False,
    classes: Classes = None,
    trials: Trials = 100,
    json: JsonObject = False,
) -> None:
    """Flags the samples that a person should look at, at a false-alarm rate that holds.

    The p-value of a sample is the rank of its score among held-out samples, so that at most the share alpha of
    familiar samples is flagged on average, whatever the network is. The paper's test, which does not hold its level, is
    printed beside it.

    With -o it writes all rows in their order: file (if there are several), index, target (if there is one),
    prediction, confidence, p_in_distribution, review, and discovery with --fdr. An older file of that name is replaced.

    Examples:
        torch-boc screen new.npz --calibration val.npz -o flagged.parquet
        torch-boc screen new.npz --calibration val.npz --alpha 0.01 --fdr 0.1
        torch-boc screen a.npz b.npz --calibration val.npz --save-test test.pt
        torch-boc screen new.csv --test test.pt --confidence 0.99 --json
    """
    import torch

    from ..functional.checks import check_share
    from ..functional.columns import sample_columns
    from ..functional.conformal import adjusted_p_values
    from .conformal import ready_test
    from .inputs import FileReader

    asked = {"alpha": alpha, "confidence": confidence, "fdr": fdr}
    for name, share in asked.items():
        if share is not None:
            check_share(f"--{name}", share)
    check_output(out, [*paths, calibration])
    if save is not None:
        check_file(save)
    found: list[dict[str, Any]] = []
    with working("reading") as tell:
        files = FileReader(probabilities, classes, tell)
        ready = ready_test(files, calibration, kept, score=score, temperature=temperature, groups=groups)
        sets = [ready.read(files, path) for path in paths]
        labelled = all(data.target is not None for data in sets)
        with sample_file(out) as write:
            for data in sets:
                tell(f"testing {data.name}")
                ready.warn_of_samples(data)
                names = {"file": [data.name] * len(data)} if len(sets) > 1 else {}
                target = {"target": data.target} if labelled and data.target is not None else {}
                columns = sample_columns(data.logits, trials=trials, columns=["prediction", "confidence", "p_value"])
                paper = columns.pop("p_value") <= alpha
                columns["p_in_distribution"] = p = ready.test(data.logits)
                columns["review"] = ready.test.flag(data.logits, alpha, confidence=confidence)
                counts = {"name": data.name, "samples": len(data), "review": int(columns["review"].sum())}
                if fdr is not None:
                    columns["discovery"] = adjusted_p_values(p) <= fdr
                    counts["discoveries"] = int(columns["discovery"].sum())
                found.append({**counts, "paper": int(paper.sum())})
                write({**names, "index": torch.arange(len(data)), **target, **columns})
        if save is not None:
            with replacing(save) as temporary:
                torch.save(ready.packed(), temporary)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `flag` has said it
        threshold = ready.test.threshold(alpha, confidence=confidence)
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
        "sets": found,
        "output": None if out is None else str(out),
    }
    if json:
        print_json(content)
        return
    console = terminal()
    for title, text in _lines(content):
        put(console, f"{title:<30} {text}" if text else title, "" if text else "bold", soft_wrap=True)
    list_files([x for x in (out, save) if x is not None], console)


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
        shares = {
            x: f"{part[x]:,} ({percent(part[x] / total)})" for x in ("review", "discoveries", "paper") if x in part
        }
        yield f"\n{part['name']}: {total:,} samples", ""
        yield "flagged for review", shares["review"]
        if content["fdr"] is not None:
            # No p-value is below 1 / (n + 1), so that a discovery takes several samples at once.
            largest = max(content["group_samples"] or [content["held_out_samples"]])
            needed = math.ceil(total / (content["fdr"] * (largest + 1)))
            few = needed > 1 and not part["discoveries"]
            more = f"; it takes {needed:,} or more at once, with so few held-out samples" if few else ""
            yield f"discoveries at FDR {percent(content['fdr'])}", f"{shares['discoveries']}{more}"
        yield "the paper's test would flag", shares["paper"]
