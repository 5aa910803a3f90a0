"""Functions that run in new processes, with a time limit."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import spawn


def in_processes(function: Callable[..., Any], count: int, *arguments: Any, seconds: float = 150.0) -> list[Any]:
    """What `function(rank, folder, *arguments)` returns in each of `count` new processes.

    Args:
        function: defined at the top of a module, so that a new process finds it. It returns tensors, numbers, texts, or
            lists and dicts of them.
        count: how many processes.
        arguments: the same for all processes.
        seconds: the time after which the processes are ended, with a TimeoutError.
    """
    with tempfile.TemporaryDirectory() as folder:
        context = spawn(_work, (folder, function, arguments), nprocs=count, join=False)
        end = time.monotonic() + seconds
        try:
            while not context.join(timeout=1.0):
                if time.monotonic() > end:
                    raise TimeoutError(f"expected an answer of {count} processes within {seconds:.0f} s, got none")
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
                process.join()
        return [torch.load(_file(folder, rank), weights_only=True) for rank in range(count)]


def _work(rank: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    torch.save(function(rank, folder, *arguments), _file(folder, rank))


def _file(folder: str, rank: int) -> Path:
    return Path(folder) / f"result-{rank}.pt"
