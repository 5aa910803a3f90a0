"""Run a classifier over a loader and keep a row for each sample."""

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import sample_columns
from ..functional.checks import check_trials
from ..nn import find_logits
from ..tables import ParquetFile, require_pyarrow
from .batches import Batch, Reader
from .device import Landing, device_of, evaluating, land
from .loaders import as_loader, count_batches, count_samples, peek
from .memory import Pieces
from .parts import PartFiles, as_metadata, digest, digest_model, is_finished


class BoCPredictor:
    """Runs a classifier over a loader: one row for each sample, in input order, and never all of them in memory.

    The columns are `index` (counting samples from 0), `target` if the loader has it, and those of
    `torch_boc.functional.sample_columns`. A loader yields x, (x, target) or mappings, as tokenizers and processors make
    them; a data set or a tensor of all inputs serves as well. The model answers with logits of shape (N, C), in
    any form that `torch_boc.finding.find_logits` knows; it runs in eval and inference mode, and has its modes back
    afterwards. A batch that does not fit in memory is halved until it does.

    Args:
        model: the classifier.
        device: where to run; the model is moved there. By default, where its first parameter is.
        dtype: of autocast, `torch.bfloat16` or `torch.float16`; by default there is no autocast.
        compile: whether to run the model through `torch.compile`.
        trials: the number of coin flips of the p-value.
        progress: whether to show a progress bar, in a terminal or a notebook.
        batch_size: for data sets and tensors; a loader has its own.

    >>> predictor = BoCPredictor(torch.nn.Linear(5, 3), progress=False)
    >>> for table in predictor.predict([torch.randn(4, 5), torch.randn(2, 5)]):
    ...     print(table["index"], table["gap"].shape)
    tensor([0, 1, 2, 3]) torch.Size([4])
    tensor([4, 5]) torch.Size([2])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        compile: bool = False,
        trials: int = 100,
        progress: bool = True,
        batch_size: int = 64,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        if dtype not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"expected dtype as torch.bfloat16, torch.float16 or None, got {dtype}")
        self.model = model if device is None else model.to(device)
        self.device = device_of(model)
        self.dtype, self.trials, self.progress, self.batch_size = dtype, check_trials(trials), progress, batch_size
        self._forward = torch.compile(model) if compile else model
        self._reader = Reader(model)
        self._ahead = 1 if self.device.type == "cuda" else 0

    def predict(self, loader: Any) -> Iterator[dict[str, Tensor]]:
        """Yield a table for each batch: a dict of tensors on the CPU."""
        loader = as_loader(loader, self.batch_size)
        return self._tables(loader, count_samples(loader))

    def to_frame(self, loader: Any) -> Any:
        """A pandas DataFrame of all samples."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("frames need pandas: pip install 'torch-boc[eval]'") from error
        tables = list(self.predict(loader)) or [self._no_samples()]
        return pandas.DataFrame({name: torch.cat([x[name] for x in tables]).numpy() for name in tables[0]})

    def to_parquet(self, loader: Any, path: str | os.PathLike[str], *, resume: bool = False) -> Path:
        """Write a Parquet file of all samples, batch by batch, and return its path.

        The file appears when it is complete. With `resume`, an interrupted run leaves what it finished in the folder
        `{path}.parts`, and the next run with `resume` skips those samples without running the model; a loader that
        shuffles, another model or other settings are then an error. A run that had finished is not repeated.
        """
        require_pyarrow()
        loader = as_loader(loader, self.batch_size)
        first, batches = peek(loader)
        run = self._describe(loader, first)
        if resume and is_finished(path, run):
            return Path(path)
        with PartFiles(path, run) if resume else ParquetFile(path, as_metadata(run)) as file:
            if first is None:
                file.write(self._no_samples())
            for columns in self._tables(batches, count_samples(loader), start=file.rows):
                file.write(columns)
        return Path(path)

    def _tables(self, batches: Iterable[Any], total: int | None, start: int = 0) -> Iterator[dict[str, Tensor]]:
        """The tables of all samples but the first `start`; on CUDA each is awaited once the next has been launched."""
        landing: deque[Landing] = deque()
        with evaluating(self.model), self._bar(total, start) as bar:
            for table in self._launch(batches, start):
                landing.append(table)
                if len(landing) > self._ahead:
                    yield self._arrive(landing, bar)
            while landing:
                yield self._arrive(landing, bar)

    def _arrive(self, landing: deque[Landing], bar: Any) -> dict[str, Tensor]:
        columns = landing.popleft().wait()
        if bar is not None:
            bar.update(len(columns["index"]))
        return columns

    def _launch(self, batches: Iterable[Any], start: int) -> Iterator[Landing]:
        run, seen = Pieces(self._columns), 0
        for raw in batches:
            batch = self._reader.read(raw)
            skipped = min(max(start - seen, 0), batch.size)
            seen += batch.size
            if skipped:
                batch = batch.piece(skipped, batch.size)
            if batch.size:
                index = {"index": torch.arange(seen - batch.size, seen)}
                target = {} if batch.target is None else {"target": batch.target}
                yield land({**index, **target, **run(batch)}, self.device)
        if seen < start:
            raise ValueError(f"expected a loader with at least the {start} samples already done, got {seen}")

    def _columns(self, batch: Batch) -> dict[str, Tensor]:
        """The computation, on the device from beginning to end."""
        autocast = nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)
        with torch.inference_mode(), autocast:
            batch = batch.to(self.device)
            logits = find_logits(self._forward(*batch.args, **batch.kwargs))
        if logits.ndim != 2 or len(logits) != batch.size:
            raise ValueError(
                f"expected logits of shape ({batch.size}, C) for {batch.size} samples, got {tuple(logits.shape)}; "
                "a table has one row a sample: pool or pick along other axes in a module around the model"
            )
        return sample_columns(logits, trials=self.trials)  # outside of inference mode, for tensors without its limits

    def _no_samples(self) -> dict[str, Tensor]:
        return {"index": torch.arange(0), **sample_columns(torch.zeros(0, 2))}

    def _describe(self, loader: Any, first: Any) -> dict[str, object]:
        """What makes two runs the same."""
        run: dict[str, object] = {"samples": count_samples(loader), "trials": self.trials, "dtype": str(self.dtype)}
        if run["samples"] is None:
            run["batches"] = count_batches(loader)
        if first is not None:
            batch = self._reader.read(first).piece(0, 1)
            inputs = (x for x in (*batch.args, *batch.kwargs.values()) if isinstance(x, Tensor))
            run |= {"first sample": digest(inputs), "target": batch.target is not None}
        return run | {"model": digest_model(self.model)}

    def _bar(self, total: int | None, start: int) -> AbstractContextManager[Any]:
        if not self.progress:
            return nullcontext()
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise ImportError(
                "the progress bar needs tqdm: pip install 'torch-boc[eval]', or progress=False"
            ) from error
        quiet = False if "ipykernel" in sys.modules else None  # None: not where the output is no terminal
        bar: AbstractContextManager[Any] = tqdm(total=total, initial=start, unit=" samples", disable=quiet)
        return bar
