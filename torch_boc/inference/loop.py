"""The loop of a predictor: batches in, tables out."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from .._optional import require
from ..data.parquet import Column
from ..functional.checks import are_probabilities
from ..nn import find_logits
from ..nn.screening import SampleColumns
from .batches import Batch, BatchReader
from .device import FittingPieces, Landing, Prefetch, Samples, device_of, evaluating, land
from .order import Numbered


def check_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    """Return `dtype` if it is one for autocast or None, or raise."""
    if dtype not in (None, torch.bfloat16, torch.float16):
        raise ValueError(f"expected dtype as torch.bfloat16, torch.float16 or None, got {dtype}")
    return dtype


def progress_bar(shown: bool, total: int | None, start: int = 0) -> AbstractContextManager[Any]:
    """A tqdm bar that counts samples, in a terminal or a notebook; None if it is not to be shown."""
    if not shown:
        return nullcontext()
    tqdm = require("tqdm", "auto", purpose="the progress bar needs", otherwise="progress=False").auto.tqdm
    quiet = False if "ipykernel" in sys.modules else None  # None: tqdm shows it in a terminal only
    bar: AbstractContextManager[Any] = tqdm(total=total, initial=start, unit=" samples", disable=quiet)
    return bar


class TableLoop:
    """Runs a model over numbered batches and makes a table of each.

    Args:
        model: the classifier, on the device where it is to run.
        probe: what makes the columns from logits.
        dtype: the dtype of autocast, or None.
        compile: whether to run the model through `torch.compile`.
        progress: whether to show a progress bar.
        id: the name of the column of ids, or None.

    Attributes:
        columns: the names of the columns after `index`, the id and `target`.
        trials: the number of coin flips of the p-value.
        test: the predictor's own copy of the test, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        probe: SampleColumns,
        *,
        dtype: torch.dtype | None,
        compile: bool,
        progress: bool,
        id: str | None,
    ) -> None:
        self.model, self.device = model, device_of(model)
        self.dtype, self.progress, self.id = dtype, progress, id
        self.columns, self.trials, self.test = probe.names, probe.trials, probe.test
        self._probe = probe
        self._probe.to(self.device)
        self._forward = torch.compile(model) if compile else model
        self._reader = BatchReader(model, id)
        self._ahead = 1 if self.device.type == "cuda" else 0
        self._are_probabilities: Tensor | bool | None = None  # about the first batch; a tensor until it is read

    def _tables(self, batches: Iterable[Numbered], total: int | None, start: int = 0) -> Iterator[dict[str, Column]]:
        """The tables of the samples after the first `start`. On CUDA, the next batch starts before a table is read."""
        landing: deque[Landing] = deque()
        with evaluating(self.model), progress_bar(self.progress, total, start) as bar:
            for table in self._launch(self._samples(batches, start)):
                landing.append(table)
                if len(landing) > self._ahead:
                    yield self._arrive(landing, bar)
            while landing:
                yield self._arrive(landing, bar)

    def _arrive(self, landing: deque[Landing], bar: Any) -> dict[str, Column]:
        columns = landing.popleft().wait()
        self._are_probabilities = bool(self._are_probabilities)
        if self._are_probabilities:
            raise ValueError(
                "expected logits from the model, got probabilities (every row of the first batch is non-negative and "
                "sums to 1); remove the softmax from the model, or let the model return the logarithm"
            )
        if bar is not None:
            bar.update(len(columns[self.columns[0]]))
        return columns

    def _launch(self, samples: Iterator[Samples]) -> Iterator[Landing]:
        """Start the computation of each batch; on CUDA, the copy of the next batch to the device starts after it."""
        self._are_probabilities = None
        with Prefetch(samples, self.device) as prefetch:
            run = FittingPieces(lambda piece: self._columns(prefetch.deliver(piece)))
            for some in prefetch:
                landing = land({**some.known, **run(some.batch)})
                if run.limit is None:  # else the memory is short
                    prefetch.fetch()
                yield landing

    def _samples(self, batches: Iterable[Numbered], start: int) -> Iterator[Samples]:
        """The samples after the first `start`, which are read and left out."""
        seen = 0
        for index, batch in batches:
            skipped = min(max(start - seen, 0), batch.size)
            seen += batch.size
            if skipped:
                batch = batch.piece(skipped, batch.size)
                index = None if index is None else index[skipped:]
            if batch.size:
                yield Samples(self._known(index, batch), batch)
        if seen < start:
            raise ValueError(f"expected a loader with at least the {start} samples that are already done, got {seen}")

    def _known(self, index: Tensor | None, batch: Batch) -> dict[str, Column]:
        """The columns of the table that the model has no part in. An id called `index` takes the place of ours."""
        known: dict[str, Column] = {} if index is None else {"index": index}
        # Copies, because the loader may use the same memory for the next batch.
        if self.id is not None and batch.ids is not None:
            known[self.id] = batch.ids.clone() if isinstance(batch.ids, Tensor) else list(batch.ids)
        return known if batch.target is None else known | {"target": batch.target.clone()}

    def _columns(self, batch: Batch) -> dict[str, Tensor]:
        """The computation, on the device from beginning to end."""
        autocast = nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)
        with torch.inference_mode(), autocast:
            logits = find_logits(self._forward(*batch.args, **batch.kwargs))
        if logits.ndim != 2 or len(logits) != batch.size:
            raise ValueError(
                f"expected logits of shape ({batch.size}, C) for {batch.size} samples, got {tuple(logits.shape)}; "
                "a table has one row for each sample: put a module around the model that reduces the other axes"
            )
        if self._are_probabilities is None:
            self._are_probabilities = are_probabilities(logits, -1)
        # Outside of inference mode, so that users get ordinary tensors.
        return self._probe(logits)

    def _no_samples(self) -> dict[str, Column]:
        ids: dict[str, Column] = {} if self.id is None else {self.id: []}
        return {"index": torch.arange(0), **ids, **self._probe.of_nothing()}
