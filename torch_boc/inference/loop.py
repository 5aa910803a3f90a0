"""The loop of a predictor: batches in, tables out."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..data.parquet import Column
from ..functional.checks import are_probabilities
from ..nn import ConformalTest, find_logits
from ..nn.screening import SampleColumns
from .batches import Batch, BatchReader
from .device import Landing, device_of, evaluating, land
from .fitting import FittingPieces
from .order import Numbered
from .part_files import PartFiles
from .passing import mark_samples
from .progress import progress_bar
from .supply import Samples, Supply

MARKS = "marks"  # an internal column of the tables, which is not written to the file


def check_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    """Return `dtype` if it is one for autocast or None, or raise."""
    if dtype not in (None, torch.bfloat16, torch.float16):
        raise ValueError(f"expected dtype as torch.bfloat16, torch.float16 or None, got {dtype}")
    return dtype


class TableLoop:
    """Runs a model over numbered batches and makes a table of each.

    Args:
        model: the classifier, on the device where it is to run.
        probe: what makes the columns from logits.
        dtype: the dtype of autocast, or None.
        compile: whether to run the model through `torch.compile`.
        progress: whether to show a progress bar.
        id: the name of the column of ids, or None.
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
        self._probe = probe
        self._probe.to(self.device)
        self._forward = torch.compile(model) if compile else model
        self._reader = BatchReader(model, id)
        self._ahead = 1 if self.device.type == "cuda" else 0
        self._are_probabilities: Tensor | bool | None = None  # about the first batch; a tensor until it is read

    @property
    def trials(self) -> int:
        """The number of coin flips of the p-value."""
        return self._probe.trials

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns after `index`, the id and `target`."""
        return self._probe.names

    @property
    def test(self) -> ConformalTest | None:
        """The predictor's own copy of the test."""
        return self._probe.test

    def _tables(self, samples: Iterator[Samples], total: int | None, start: int = 0) -> Iterator[dict[str, Column]]:
        """The tables of samples. On CUDA, the next batch starts before a table is read."""
        landing: deque[Landing] = deque()
        with evaluating(self.model), progress_bar(self.progress, total, start) as bar:
            for table in self._launch(samples):
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
        with Supply(samples, self.device) as supply:
            run = FittingPieces(lambda piece: self._columns(supply.deliver(piece)))
            for some in supply:
                landing = land({**some.known, **run(some.batch)})
                if run.limit is None:  # else the memory is short
                    supply.fetch()
                yield landing

    def _read(
        self, batches: Iterable[Numbered], *, marked: bool = False, file: PartFiles | None = None
    ) -> Iterator[Samples]:
        """The samples after those that are done in `file`, which are compared.

        If they are `marked`, they are hashed before the model runs, because it may change its inputs in place.
        """
        seen, start = 0, 0 if file is None else file.rows
        for index, batch in batches:
            skipped = min(max(start - seen, 0), batch.size)
            seen += batch.size
            marks = mark_samples(batch) if marked else None
            if skipped:
                batch = batch.piece(skipped, batch.size)
                index = None if index is None else index[skipped:]
                if file is not None and marks is not None:
                    file.pass_over(marks[:skipped].cpu())
                    marks = marks[skipped:]
            if batch.size:
                yield Samples(self._known(index, batch) | ({} if marks is None else {MARKS: marks}), batch)
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

    def _marks(self, batches: Iterable[Numbered], total: int | None) -> Iterator[Tensor]:
        """The marks of all samples, batch by batch. The model does not run."""
        with progress_bar(self.progress, total) as bar:
            for _, batch in batches:
                marks = mark_samples(batch)
                yield marks.cpu()
                if bar is not None:
                    bar.update(len(marks))

    def _no_samples(self) -> dict[str, Column]:
        ids: dict[str, Column] = {} if self.id is None else {self.id: []}
        return {"index": torch.arange(0), **ids, **self._probe.of_nothing()}
