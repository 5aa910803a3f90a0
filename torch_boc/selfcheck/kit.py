"""The ten checks, one after the other."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch

from ..storage.files import check_file
from . import agreement, backoff, cards, distributed, peaks, repeats, speed, splitting, waiting
from .machine import describe_machine
from .outcomes import Check, Outcome
from .results import Results

FILE = "torch_boc-selfcheck.json"  # what the commands call the file of results, unless told otherwise
CHECKS: dict[str, Check] = {
    one.name: one
    for one in (
        agreement.results,
        cards.untouched,
        waiting.no_waiting,
        waiting.graphs,
        repeats.repeats,
        peaks.peak,
        speed.speed,
        splitting.split,
        distributed.two_processes,
        backoff.back_off,
    )
}


def run(
    device: torch.device | str | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    tell: Callable[[str], object] | None = None,
) -> Results:
    """Check on this machine that torch_boc computes what it should, and how fast.

    A check that fails does not stop the others. On a CPU the checks that need a GPU are skipped.

    Args:
        device: a CUDA device or the CPU; by default the current CUDA device, or the CPU where there is none.
        out: a JSON file for the results. It is written after every check, so that it is there even if the process dies.
        only: the names of some checks; by default all of them.
        tell: is called with a line before each check.
    """
    place = check_device(device)
    names = check_names(only)
    path = None if out is None else check_file(out)
    results = Results(str(place), describe_machine(), ())
    with torch.cuda.device(place) if place.type == "cuda" else nullcontext():
        for number, name in enumerate(names, 1):
            if tell is not None:
                tell(f"{number} of {len(names)}: {name}")
            results = results._replace(outcomes=(*results.outcomes, _perform(CHECKS[name], place, results)))
            if path is not None:
                results.save(path)
    return results


def check_device(device: torch.device | str | None) -> torch.device:
    """The device with its number, or an error if the checks cannot run there."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(device)
    if place.type not in ("cuda", "cpu"):
        raise ValueError(f"expected a CUDA device or the CPU, got {place}")
    if place.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"expected a device of this machine, got {place}, but torch finds no GPU: choose cpu")
    index = torch.cuda.current_device() if place.index is None else place.index
    if index >= torch.cuda.device_count():
        raise ValueError(f"expected a card below {torch.cuda.device_count()}, got {place}")
    return torch.device("cuda", index)


def check_names(only: Sequence[str] | None) -> list[str]:
    """The names of the checks to run, or an error if one is unknown."""
    names = list(CHECKS if only is None else dict.fromkeys(only))
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ValueError(f"expected checks among {', '.join(CHECKS)}, got {', '.join(unknown)}")
    return names


def _perform(one: Check, device: torch.device, before: Results) -> Outcome:
    """The outcome of a check, or a skip if an earlier failure has left the GPU in a state that fails every call."""
    if device.type == "cuda" and before.failed and not _answers(device):
        cause = before.failed[-1].name
        reason = f"the GPU no longer answers this process after the failure of {cause!r}; run this check alone"
        return one.skip(reason)
    return one(device)


def _answers(device: torch.device) -> bool:
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return False
    return True
