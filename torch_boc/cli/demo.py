"""`torch-boc demo`: reports on logits that come with the package."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import working
from .options import Json, Out
from .output import choose_folder, print_comparison, print_report, save_report

if TYPE_CHECKING:
    from ..evaluation import Comparison, Report
    from ..zoo import Entry

TITLE = "Bag of coins: real logits of {count} models, side by side"


def demo(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The whole report on one model, such as resnet20-cifar10.")
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Reports on real logits of several models, side by side. With NAME, the whole report on one model.

    The calibrators are fitted on samples that the network has not seen (the first half of the test set, if there are no
    others), and, where there are any, on samples that it was trained on, as in the paper, which shows their effect.
    """
    folder = choose_folder(out, json=json, files=_files(name))
    with working("loading libraries") as tell, warnings.catch_warnings():
        from .. import zoo
        from ..calibration import LeakWarning

        warnings.simplefilter("ignore", LeakWarning)  # one split has training samples on purpose
        if name is None:
            comparison = compare([zoo.load(entry) for entry in zoo.names()], tell)
            paths = save_report(comparison, folder, tell)
        else:
            entry = zoo.load(name)
            report = evaluate_entry(entry, tell)
            paths = save_report(report, folder, tell)
    if name is None:
        print_comparison(comparison, paths, title=TITLE.format(count=len(comparison.reports)), json=json)
    else:
        print_report(report, paths, title=provenance(entry.card), json=json)


def _files(name: str | None) -> list[str]:
    """The files that may be written into the folder."""
    from ..report.comparison import comparison_files
    from ..report.report import FILES
    from ..zoo import names

    return comparison_files(names()) if name is None else list(FILES)


def compare(entries: list["Entry"], progress: Callable[[str], None]) -> "Comparison":
    """The reports on all entries."""
    from ..evaluation import Comparison

    reports = {}
    for place, entry in enumerate(entries, start=1):
        where = f"{entry.name} ({place} of {len(entries)})"
        reports[entry.name] = evaluate_entry(entry, partial(_tell_where, progress, where))
    return Comparison(reports)


def _tell_where(progress: Callable[[str], None], where: str, message: str) -> None:
    progress(f"{where}: {message}")


def evaluate_entry(entry: "Entry", progress: Callable[[str], None]) -> "Report":
    """The report on an entry, with calibrators fitted on all of its splits."""
    from ..evaluation import evaluate

    test, splits = entry.test_and_splits()
    title = f"{entry.card['model']}: {entry.card['data']}"
    return evaluate(test, entry.ood, calibration=splits, progress=progress, title=title)


def provenance(card: Mapping[str, Any]) -> list[str]:
    """What the logits are and where they come from, in two lines."""
    return [f"Bag of coins: {card['name']} ({card['data']}, {card['made_on']})", str(card["model"])]
