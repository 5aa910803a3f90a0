"""Run a classifier over a loader and keep a row for each sample."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from .._optional import require, require_pyarrow
from ..functional.checks import are_probabilities
from ..nn import ConformalTest, find_logits
from ..nn.screening import SampleColumns
from ..storage.files import check_file
from .batches import Batch, BatchReader
from .device import Landing, device_of, evaluating, land
from .finished import check_finished, describe_run, is_finished
from .fitting import FittingPieces
from .hashing import digest
from .identity import warn_of
from .loaders import as_loader, count_samples, describe_loader
from .part_files import PartFiles
from .passing import mark_samples
from .progress import progress_bar
from .runs import RunFile
from .supply import Samples, Supply

MARKS = "marks"  # an internal column of the tables, which is not written to the file


class BoCPredictor:
    """Runs a classifier over a loader and makes a row for each sample, in the order of the loader.

    The columns are `index` (samples are counted from 0), `target` if the loader has it, and those of
    `torch_boc.functional.sample_columns`, all or the ones you choose. With a `test`, there are also
    `p_in_distribution`, the p-value of the test, and `review`, which is True where a person should look at the sample.
    A loader yields x, (x, target) or mappings, as tokenizers and processors make them. A data set or a tensor of all
    inputs may be given instead of a loader. The model returns logits of shape (N, C), in any form that
    `torch_boc.data.find_logits` knows; probabilities are refused. It runs in eval and inference mode, and afterwards
    its modules have their earlier modes again. If a batch does not fit in memory, it is halved until it does.

    Args:
        model: the classifier.
        device: where to run; the model is moved there. By default it stays where its first parameter is.
        dtype: the dtype of autocast, `torch.bfloat16` or `torch.float16`; by default there is no autocast.
        compile: whether to run the model through `torch.compile`.
        trials: the number of coin flips of the p-value.
        progress: whether to show a progress bar, in a terminal or a notebook.
        batch_size: the batch size for data sets and tensors; a loader has its own.
        columns: which columns to keep, in this order, after `index` and `target`; by default all.
        test: a `ConformalTest`, calibrated with held-out samples of this model. It is copied to the predictor's device.
        alpha: the level of `review`: at most this share of in-distribution samples is expected to be flagged.

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
        columns: Sequence[str] | None = None,
        test: ConformalTest | None = None,
        alpha: float = 0.05,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        if dtype not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"expected dtype as torch.bfloat16, torch.float16 or None, got {dtype}")
        self.model = model if device is None else model.to(device)
        self.device = device_of(model)
        self.dtype, self.progress, self.batch_size = dtype, progress, batch_size
        self._probe = SampleColumns(columns, trials=trials, test=test, alpha=alpha)
        self._probe.to(self.device)
        self._forward = torch.compile(model) if compile else model
        self._reader = BatchReader(model)
        self._ahead = 1 if self.device.type == "cuda" else 0
        self._are_probabilities: Tensor | bool | None = None  # about the first batch; a tensor until it is read

    @property
    def trials(self) -> int:
        """The number of coin flips of the p-value."""
        return self._probe.trials

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns after `index` and `target`."""
        return self._probe.names

    @property
    def test(self) -> ConformalTest | None:
        """The predictor's own copy of the test."""
        return self._probe.test

    def predict(self, loader: Any) -> Iterator[dict[str, Tensor]]:
        """Yield a table for each batch: a dict of tensors on the CPU."""
        loader = as_loader(loader, self.batch_size)
        return self._tables(loader, count_samples(loader))

    def to_frame(self, loader: Any) -> Any:
        """A pandas DataFrame of all samples."""
        pandas = require("pandas", purpose="frames need")
        tables = list(self.predict(loader)) or [self._no_samples()]
        return pandas.DataFrame({name: torch.cat([x[name] for x in tables]).numpy() for name in tables[0]})

    def to_parquet(
        self, loader: Any, path: str | os.PathLike[str], *, resume: bool = False, run_id: str | None = None
    ) -> Path:
        """Write a Parquet file of all samples, batch by batch, and return its path.

        The file appears when it is complete, and its metadata say which run wrote it. With `resume`, an interrupted run
        leaves its finished rows in the folder `{path}.parts`, and the next run with `resume` continues after them. Rows
        of two different runs are never mixed: the settings, the test, all weights and buffers, the code and the plain
        attributes of the model must be the same. All samples are read again and compared, but the model does not run on
        samples that are done. A finished run is compared in the same way and not repeated. A difference is an error; to
        replace a finished file, leave `resume` out. While a run writes, a second one is refused. What a model reads
        from elsewhere (files, the environment, other modules of your program) is not compared.

        Args:
            loader: the samples.
            path: the path of the file.
            resume: whether to continue an interrupted run.
            run_id: your own name for this model and these data, such as a commit and a version of the data. Model and
                samples are then not compared: two runs with the same name are assumed to be the same. Use it for models
                with settings that cannot be read (there is a warning), for random augmentation, or to save time.
        """
        require_pyarrow()
        path, loader = check_file(path), as_loader(loader, self.batch_size)
        run, unknown = describe_run(self.model, self._settings() | describe_loader(loader), run_id)
        if resume and is_finished(path, run):
            warn_of(unknown)
            if run.tracked:
                check_finished(path, self._marks(loader))
            return path
        with PartFiles(path, run) if resume else RunFile(path, run) as file:
            if file.rows:
                warn_of(unknown)
            for columns in self._tables(loader, count_samples(loader), file if run.tracked else None, file.rows):
                marks = columns.pop(MARKS, None)
                file.write(columns, marks)
            if not file.rows:
                file.write(self._no_samples())
        return path

    def _tables(
        self, batches: Iterable[Any], total: int | None, file: RunFile | PartFiles | None = None, start: int = 0
    ) -> Iterator[dict[str, Tensor]]:
        """The tables of all samples from number `start` on. On CUDA, the next batch starts before a table is read."""
        landing: deque[Landing] = deque()
        with evaluating(self.model), progress_bar(self.progress, total, start) as bar:
            for table in self._launch(batches, file, start):
                landing.append(table)
                if len(landing) > self._ahead:
                    yield self._arrive(landing, bar)
            while landing:
                yield self._arrive(landing, bar)

    def _arrive(self, landing: deque[Landing], bar: Any) -> dict[str, Tensor]:
        columns = landing.popleft().wait()
        self._are_probabilities = bool(self._are_probabilities)
        if self._are_probabilities:
            raise ValueError(
                "expected logits from the model, got probabilities (every row of the first batch is non-negative and "
                "sums to 1); remove the softmax from the model, or let the model return the logarithm"
            )
        if bar is not None:
            bar.update(len(columns["index"]))
        return columns

    def _launch(self, batches: Iterable[Any], file: RunFile | PartFiles | None, start: int) -> Iterator[Landing]:
        """Start the computation of each batch; on CUDA, the copy of the next batch to the device starts after it."""
        self._are_probabilities = None
        with Supply(self._read(batches, file, start), self.device) as supply:
            run = FittingPieces(lambda piece: self._columns(supply.deliver(piece)))
            for samples in supply:
                landing = land({**samples.known, **run(samples.batch)})
                if run.limit is None:  # else the memory is short
                    supply.fetch()
                yield landing

    def _read(self, batches: Iterable[Any], file: RunFile | PartFiles | None, start: int) -> Iterator[Samples]:
        """The samples from number `start` on.

        With a `file`, the samples are hashed before the model runs, because it may change its inputs in place.
        """
        seen = 0
        for raw in batches:
            batch = self._reader.read(raw)
            skipped = min(max(start - seen, 0), batch.size)
            seen += batch.size
            marks = {} if file is None else {MARKS: mark_samples(batch)}
            if skipped:
                batch = batch.piece(skipped, batch.size)
                if isinstance(file, PartFiles):
                    file.pass_over(marks[MARKS][:skipped].cpu())
                    marks[MARKS] = marks[MARKS][skipped:]
            if batch.size:
                index = {"index": torch.arange(seen - batch.size, seen)}
                # A copy, because the loader may use the same memory for the next batch.
                target = {} if batch.target is None else {"target": batch.target.clone()}
                yield Samples({**index, **target, **marks}, batch)
        if seen < start:
            raise ValueError(f"expected a loader with at least the {start} samples that are already done, got {seen}")

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

    def _marks(self, loader: Iterable[Any]) -> Iterator[Tensor]:
        """The marks of all samples, batch by batch. The model does not run."""
        with progress_bar(self.progress, count_samples(loader)) as bar:
            for raw in loader:
                marks = mark_samples(self._reader.read(raw))
                yield marks.cpu()
                if bar is not None:
                    bar.update(len(marks))

    def _no_samples(self) -> dict[str, Tensor]:
        return {"index": torch.arange(0), **self._probe.of_nothing()}

    def _settings(self) -> dict[str, object]:
        """What must be the same in two runs, beside the model and the samples."""
        settings: dict[str, object] = {"torch_boc": __version__, "trials": self.trials, "dtype": str(self.dtype)}
        settings["columns"] = ["index", *self.columns]
        if self.test is not None:
            settings |= {"test": digest(self.test.state_dict().values()), "alpha": self._probe.alpha}
        return settings
