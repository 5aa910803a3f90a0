"""`torch-boc demo`: the report on logits that come with the package."""

import warnings
from collections.abc import Mapping
from typing import Any

from .console import working
from .options import Json, Out
from .output import choose_folder, present, save

ENTRY = "resnet20-cifar10"


def demo(
    out: Out = None,
    json: Json = False,
) -> None:
    """The whole report on real logits: a ResNet-20 on CIFAR-10 against SVHN.

    Calibration is tested on the second half of the CIFAR-10 test set. The calibrators are fitted twice: on the first
    half, and, as in the paper, on samples that the network was trained on, which shows what that does.
    """
    folder = choose_folder(out, json=json)
    with working("loading logits") as tell, warnings.catch_warnings():
        from .. import zoo
        from ..calibration import LeakWarning
        from ..evaluation import evaluate

        warnings.simplefilter("ignore", LeakWarning)  # one split leaks on purpose, as the table and the text say
        entry = zoo.load(ENTRY)
        held_out, test = entry.held_out()
        splits = {held_out.name: held_out, **entry.calibration}
        title = f"{entry.card['model']}: {entry.card['data']}"
        report = evaluate(test, entry.ood, calibration=splits, progress=tell, title=title)
        paths = save(report, folder, tell)
    present(report, paths, title=provenance(entry.card), json=json)


def provenance(card: Mapping[str, Any]) -> list[str]:
    """What the logits are and where they are from, in two lines."""
    return [f"Bag of coins: {card['name']} ({card['data']}, {card['made_on']})", str(card["model"])]
