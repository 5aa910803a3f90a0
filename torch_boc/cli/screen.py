"""`torch-boc screen`: which samples should a person look at, at a false-alarm rate that holds?"""

import warnings
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from ..calibration import LeakWarning, OverlapWarning, leak_test, overlap_test
from ..calibration.leaks import overlap_message
from ..data.atomic import check_file
from ..data.sets import LogitSet
from ..functional.checks import check_share
from ..functional.coins import bag_of_coins
from ..functional.columns import sample_columns
from ..functional.conformal import adjusted_p_values
from .console import working
from .held_out import Ready, Wanted, check_classes, ready_test, save_test
from .inputs import ENDINGS, FileReader
from .options import Calibration, Classes, Groups, KeptTest, Probabilities, ScoreName, Temperature, Trials
from .samples import check_output, sample_file
from .screened import Screened, content_of, print_screened


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
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="A row for each sample: .parquet or .csv.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save-test", metavar="PATH", help="Keep the calibrated test in this file (.pt).")
    ] = None,
    kept: KeptTest = None,
    probabilities: Probabilities = False,
    classes: Classes = None,
    trials: Trials = 100,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Flags the samples that a person should look at, at a false-alarm rate that holds.

    The p-value of a sample is the rank of its score among held-out samples, so that at most the share alpha of
    familiar samples is flagged on average, whatever the network is. The paper's test, which does not hold its level, is
    printed beside it.

    With -o it writes all rows in their order: file (if there are several), index, target (if there is one),
    prediction, confidence, p_in_distribution, review, and discovery with --fdr. An older file of that name is replaced.
    """
    _check(paths, calibration, out, save, alpha=alpha, confidence=confidence, fdr=fdr)
    with working("reading") as tell:
        files = FileReader(probabilities, classes, tell)
        ready = ready_test(Wanted(calibration, kept, score, temperature, groups), files)
        sets = [check_classes(files.read(path), ready, path) for path in paths]
        labelled = all(data.target is not None for data in sets)
        found = []
        with sample_file(out) as write:
            for data in sets:
                tell(f"testing {data.name}")
                _warn_of_samples(ready, data)
                found.append(_test(ready, data, alpha, confidence, fdr, trials))
                write({**_known(data, several=len(sets) > 1, labelled=labelled), **found[-1].columns})
        if save is not None:
            save_test(ready, save)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `flag` has said it
        threshold = ready.test.threshold(alpha, confidence=confidence)
    content = content_of(ready, threshold, found, out=out, alpha=alpha, confidence=confidence, fdr=fdr)
    print_screened(content, [x for x in (out, save) if x is not None], json=json)


def _check(
    paths: list[Path], calibration: Path | None, out: Path | None, save: Path | None, **shares: float | None
) -> None:
    """Raise before the work if a number is out of range, or if a file cannot be written."""
    for name, share in shares.items():
        if share is not None:
            check_share(f"--{name}", share)
    if out is not None:
        check_output(out, [*paths, *([calibration] if calibration else [])])
    if save is not None:
        check_file(save)


def _known(data: LogitSet, *, several: bool, labelled: bool) -> dict[str, Tensor | list[str]]:
    """The columns that say which sample a row is."""
    names: dict[str, Tensor | list[str]] = {"file": [data.name] * len(data)} if several else {}
    target = {"target": data.target} if labelled and data.target is not None else {}
    return {**names, "index": torch.arange(len(data)), **target}


def _test(
    ready: Ready, data: LogitSet, alpha: float, confidence: float | None, fdr: float | None, trials: int
) -> Screened:
    columns = sample_columns(data.logits, trials=trials, columns=["prediction", "confidence", "p_value"])
    paper = columns.pop("p_value") <= alpha
    columns["p_in_distribution"] = p = ready.test(data.logits)
    columns["review"] = ready.test.flag(data.logits, alpha, confidence=confidence)
    if fdr is not None:
        columns["discovery"] = adjusted_p_values(p) <= fdr
    return Screened(data.name, columns, paper)


def _warn_of_samples(ready: Ready, data: LogitSet) -> None:
    """Warn if the held-out samples look like training data, or if some of them are among the new ones."""
    held = ready.data
    if held is None:
        return
    shared = overlap_test(data.logits, held.logits, data.target, held.target)
    if shared.suspicious:
        message = overlap_message("held-out", shared.shared, len(data), test=repr(data.name), other=repr(held.name))
        warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=2)
    if held.target is None or data.target is None:
        return
    right = [int(bag_of_coins(x.logits).prediction.eq(y).sum()) for x, y in ((held, held.target), (data, data.target))]
    found = leak_test(right[0], len(held), right[1], len(data))
    if found.suspicious:
        warnings.warn(
            f"accuracy {found.accuracy:.4f} on {held.name!r}, {found.test_accuracy:.4f} on {data.name!r}: if "
            f"{held.name!r} is training data, too many familiar samples are flagged; otherwise {data.name!r} is harder",
            LeakWarning,
            stacklevel=2,
        )
