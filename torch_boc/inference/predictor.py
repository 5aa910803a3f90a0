"""Run a classifier over a loader and keep a row for each sample."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import length_hint
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from .._optional import require, require_pyarrow
from ..data.atomic import check_file
from ..data.parquet import ParquetFile
from ..nn import ConformalTest
from ..nn.screening import SampleColumns
from .batches import check_id
from .loop import TableLoop, check_dtype
from .order import Numbered, SharedData, as_loader, count_samples, number, warn_of_other_processes
from .part_files import (
    PartWriter,
    RunFolder,
    checksum,
    is_finished,
    metadata_of,
    one_writer,
    part_ranges,
    probe_settings,
)
from .ranks import check_shard, find_rank


class BoCPredictor(TableLoop):
    """Runs a classifier over a loader and makes a row for each sample, in the order of the loader.

    The columns are `index`, the `id` if you name one, `target` if the loader has it, and those of
    `torch_boc.functional.sample_columns`, all or the ones you choose. With a `test`, there are also
    `p_in_distribution`, the p-value of the test, and `review`, which is True where a person should look at the sample.
    A loader yields x, (x, target) or mappings, as tokenizers and processors make them. A data set or a tensor of all
    inputs may be given instead of a loader. The model returns logits of shape (N, C), in any form that
    `torch_boc.data.find_logits` knows; probabilities are refused. It runs in eval and inference mode, and afterwards
    its modules have their earlier modes again. If a batch does not fit in memory, it is halved until it does.

    `index` is the index of the sample in the data set of a `DataLoader`, also with a `DistributedSampler`, of which the
    padding is left out. In a `torch.utils.data.Subset`, it is the position in the subset. For plain iterables of
    batches and iterable data sets, samples are counted from 0 in the order of the loader. A loader whose order cannot
    be known (shuffled, with a sampler or an `__iter__` of your own) is an error unless there is an `id`; then there is
    no `index`. A `collate_fn` must keep the order of the samples.

    Args:
        model: the classifier.
        device: where to run; the model is moved there. By default it stays where its first parameter is.
        dtype: the dtype of autocast, `torch.bfloat16` or `torch.float16`; by default there is no autocast.
        compile: whether to run the model through `torch.compile`.
        trials: the number of coin flips of the p-value.
        progress: whether to show a progress bar, in a terminal or a notebook.
        batch_size: the batch size for data sets and tensors; a loader has its own.
        columns: which columns to keep, in this order, after `index`, the id and `target`; by default all.
        test: a `ConformalTest`, calibrated with held-out samples of this model. It is copied to the predictor's device.
        alpha: the level of `review`: at most this share of in-distribution samples is expected to be flagged.
        id: the name of a column that says which sample a row is, such as "path": strings or numbers, under this key of
            a mapping, or as the third of (x, target, id). The model does not get it.
        shard: (rank, number of processes), if several processes share a map-style data set, or "auto" to ask the
            launcher: torchrun, srun, Lightning, or `torch.distributed`. Each process then predicts its own part of the
            data set, and `to_parquet` writes a folder. No process group is needed.

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
        id: str | None = None,
        shard: str | tuple[int, int] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        check_dtype(dtype)
        probe = SampleColumns(columns, trials=trials, test=test, alpha=alpha)
        check_id(id, ("target", *probe.names))
        self.shard, self.batch_size = check_shard(shard), batch_size
        model = model if device is None else model.to(device)
        super().__init__(model, probe, dtype=dtype, compile=compile, progress=progress, id=id)

    def predict(self, loader: Any) -> Iterator[dict[str, Any]]:
        """Yield a table for each batch: a dict of tensors on the CPU; ids that are strings are a list.

        With `shard`, only the samples of this process are predicted.
        """
        if self.shard is not None:
            data, rank = SharedData(loader, self.batch_size), find_rank(self.shard)
            blocks = data.share(data.block_size(rank.world), rank)
            return self._tables(data.numbered(blocks, self._reader), sum(map(len, blocks)))
        loader = as_loader(loader, self.batch_size)
        return self._tables(number(loader, self._reader), count_samples(loader))

    def to_frame(self, loader: Any) -> Any:
        """A pandas DataFrame of all samples; with `shard`, of the samples of this process."""
        pandas = require("pandas", purpose="frames need")
        tables = list(self.predict(loader)) or [self._no_samples()]
        parts = {name: [x[name] for x in tables] for name in tables[0]}
        is_tensor = {name: all(isinstance(x, Tensor) for x in some) for name, some in parts.items()}
        joined = {name: torch.cat(x).numpy() if is_tensor[name] else list(chain(*x)) for name, x in parts.items()}
        return pandas.DataFrame(joined)

    def to_parquet(
        self, loader: Any, path: str | os.PathLike[str], *, resume: bool = False, run_id: str | None = None
    ) -> Path:
        """Write a Parquet file of all samples, batch by batch, and return its path.

        The file appears when it is complete, and its metadata say which run wrote it. With `resume`, an interrupted run
        leaves its rows in the folder `{path}.run`, and the next run with `resume` continues after them: the loader
        must give the same samples in the same order, of which those that are done are read and left out. The settings,
        the test, the number of samples and a checksum of the parameters and buffers must be those of the earlier run. A
        difference is an error that names it. A finished run is not repeated; to replace its file, leave `resume` out.
        While a run writes, a second one is refused. What else a model depends on (its code, plain attributes, files) is
        not compared, and neither are the samples: name them in a `run_id` if they change.

        With `shard`, `path` is a folder, which pandas, polars and DuckDB read as one table, and `loader` is a map-style
        data set, or a plain `DataLoader` over one. The data set must have the same order in every process (sort lists
        of files). It is cut into blocks. Each process predicts its share of the blocks, and each block is a file
        `part-FIRST-END.parquet`, which appears whole. A process that dies loses the block that it works on. A run
        always resumes: it predicts the blocks that are missing, with any number of processes. No process waits for the
        others: `torch_boc.inference.check_complete(path)` says whether all samples are there. The manifest of the run
        and unfinished files are in `{path}.run`; to start over, delete both folders.

        Args:
            loader: the samples.
            path: the path of the file, or of the folder with `shard`.
            resume: whether to continue an interrupted run.
            run_id: your own name for this model and these data, such as a commit and a version of the data. It is
                compared in place of the checksum of the parameters, which is then not computed.
        """
        require_pyarrow()
        if self.shard is not None:
            return self._to_folder(SharedData(loader, self.batch_size), Path(path), run_id)
        path, loader = check_file(path), as_loader(loader, self.batch_size)
        batches, samples = number(loader, self._reader), count_samples(loader)
        warn_of_other_processes(loader)
        settings = self._settings(samples, run_id)
        if samples is None:
            settings["batches"] = length_hint(loader, -1)
        with one_writer(path):
            if not resume:
                with ParquetFile(path, metadata_of(settings)) as file:
                    self._write(file, batches, samples)
            elif not is_finished(path, settings):
                folder = RunFolder(path, settings)
                with PartWriter(folder) as parts:
                    self._write(parts, batches, samples, parts.rows)
                folder.join()
        return path

    def _to_folder(self, data: SharedData, path: Path, run_id: str | None) -> Path:
        """Predict and write the blocks of this process that are not done."""
        rank = find_rank(self.shard or "auto")
        folder = RunFolder(path, self._settings(data.samples, run_id), data.block_size(rank.world))
        done = set(part_ranges(folder.parts))
        blocks = [block for block in data.share(folder.block or 1, rank) if block not in done]
        with PartWriter(folder, blocks) as parts:
            if blocks:
                self._write(parts, data.numbered(blocks, self._reader), sum(map(len, blocks)))
        return path

    def _write(
        self, file: ParquetFile | PartWriter, batches: Iterable[Numbered], total: int | None, start: int = 0
    ) -> None:
        for columns in self._tables(batches, total, start):
            file.write(columns)
        if not file.rows:
            file.write(self._no_samples())

    def _settings(self, samples: int | None, run_id: str | None) -> dict[str, object]:
        """What must be the same in two runs."""
        columns = ["index", *([] if self.id is None else [self.id]), *self.columns]
        settings = {"torch_boc": __version__, **probe_settings(self._probe, columns, self.dtype)}
        settings["samples"] = samples
        if run_id is not None:
            return settings | {"run_id": str(run_id)}
        tensors = chain(self.model.named_parameters(), self.model.named_buffers())
        return settings | {"checksum of the parameters": checksum(tensors)}
