"""Run a classifier over a loader and keep a row for each sample."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from .._optional import require, require_pyarrow
from ..data.atomic import check_file
from ..data.parquet import Column
from ..nn import ConformalTest
from ..nn.screening import SampleColumns
from .finished import check_finished, describe_run, is_finished
from .folder import PartWriter, ShardFolder
from .hashing import digest
from .identity import warn_of
from .ids import check_id
from .loaders import as_loader, count_samples, describe_loader
from .loop import MARKS, TableLoop, check_dtype
from .order import check_order, number
from .part_files import PartFiles
from .processes import warn_of_others
from .ranks import check_shard, find_rank
from .runs import SPREAD_SAMPLES, Run, RunFile
from .shards import ShardedData, cut, share


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
        check_id(id, ("target", MARKS, *probe.names))
        self.shard, self.batch_size = check_shard(shard), batch_size
        model = model if device is None else model.to(device)
        super().__init__(model, probe, dtype=dtype, compile=compile, progress=progress, id=id)

    def predict(self, loader: Any) -> Iterator[dict[str, Any]]:
        """Yield a table for each batch: a dict of tensors on the CPU; ids that are strings are a list.

        With `shard`, only the samples of this process are predicted.
        """
        if self.shard is not None:
            data, rank = ShardedData(loader, self.batch_size), find_rank(self.shard)
            blocks = share(cut(data.samples, data.block_size(rank.world)), rank)
            return self._tables(self._read(data.numbered(blocks, self._reader)), sum(map(len, blocks)))
        loader = as_loader(loader, self.batch_size)
        check_order(loader, self.id)
        return self._tables(self._read(number(loader, self._reader)), count_samples(loader))

    def to_frame(self, loader: Any) -> Any:
        """A pandas DataFrame of all samples; with `shard`, of the samples of this process."""
        pandas = require("pandas", purpose="frames need")
        tables = list(self.predict(loader)) or [self._no_samples()]
        return pandas.DataFrame({name: _joined([x[name] for x in tables]) for name in tables[0]})

    def to_parquet(
        self, loader: Any, path: str | os.PathLike[str], *, resume: bool = False, run_id: str | None = None
    ) -> Path:
        """Write a Parquet file of all samples, batch by batch, and return its path.

        The file appears when it is complete, and its metadata say which run wrote it. With `resume`, an interrupted run
        leaves its finished rows in the folder `{path}.parts`, and the next run with `resume` continues after them. Rows
        of two different runs are never mixed: the settings, the test, all weights and buffers, the code and the plain
        attributes of the model must be the same. All samples are read again and compared, but the model does not run on
        samples that are done. A finished run is compared in the same way and not repeated. A difference is an error; to
        replace a finished file, leave `resume` out. While a run writes, a second one is refused (also without
        `resume`). What a model reads from elsewhere (files, the environment, other modules of your program) is not
        compared.

        With `shard`, `path` is a folder, which pandas, polars and DuckDB read as one table, and `loader` is a map-style
        data set, or a plain `DataLoader` over one. The data set must have the same order in every process: each reads
        16 samples to compare them. The data set is cut into blocks. Each process predicts its share of the blocks, and
        each block is a file `part-FIRST-END.parquet`, which appears whole. A process that dies loses the block that it
        works on. A run always resumes: it predicts the blocks that are missing, with any number of processes, after it
        has compared the blocks of its share that are done. No process waits for the others:
        `torch_boc.inference.check_complete(path)` says whether all samples are there. The manifest of the run and
        unfinished files are in `{path}.run`; to start over, delete both folders.

        Args:
            loader: the samples.
            path: the path of the file, or of the folder with `shard`.
            resume: whether to continue an interrupted run.
            run_id: your own name for this model and these data, such as a commit and a version of the data. Model and
                samples are then not compared: two runs with the same name are assumed to be the same. Use it for models
                with settings that cannot be read (there is a warning), for random augmentation, or to save time.
        """
        require_pyarrow()
        if self.shard is not None:
            return self._to_folder(ShardedData(loader, self.batch_size), Path(path), run_id)
        path, loader = check_file(path), as_loader(loader, self.batch_size)
        check_order(loader, self.id)
        warn_of_others(loader, stacklevel=2)
        run, unknown = describe_run(self.model, self._settings() | describe_loader(loader), run_id)
        if resume and is_finished(path, run):
            warn_of(unknown)
            if run.tracked:
                check_finished(path, self._marks(number(loader, self._reader), count_samples(loader)))
            return path
        with PartFiles(path, run) if resume else RunFile(path, run) as file:
            if file.rows:
                warn_of(unknown)
            earlier = file if isinstance(file, PartFiles) else None
            samples = self._read(number(loader, self._reader), marked=run.tracked, file=earlier)
            self._write(file, self._tables(samples, count_samples(loader), file.rows))
            if not file.rows:
                file.write(self._no_samples())
        return path

    def _to_folder(self, data: ShardedData, path: Path, run_id: str | None) -> Path:
        """Predict and write the blocks of this process that are not done."""
        rank = find_rank(self.shard or "auto")
        settings = self._settings() | {"samples": data.samples}
        # Every process compares these samples with the manifest before it adds rows to those of the others.
        settings |= {SPREAD_SAMPLES: data.fingerprint(self._reader)} if run_id is None else {}
        run, unknown = describe_run(self.model, settings, run_id)
        folder = ShardFolder(path, run, data.samples, data.block_size(rank.world))
        mine, done = share(folder.blocks, rank), folder.done()
        finished = set(done)
        if done:
            warn_of(unknown)
        compared = [block for block in mine if block in finished]
        if compared:
            marks = self._marks(data.numbered(compared, self._reader), sum(map(len, compared)))
            folder.check_done(compared, marks if run.tracked else None)
        self._write_blocks(data, folder, run, [block for block in mine if block not in finished])
        return path

    def _write_blocks(self, data: ShardedData, folder: ShardFolder, run: Run, blocks: list[range]) -> None:
        """Predict these blocks; without samples there is one block, which is empty."""
        with PartWriter(folder, run, blocks) as file:
            if blocks and data.samples:
                samples = self._read(data.numbered(blocks, self._reader), marked=run.tracked)
                self._write(file, self._tables(samples, sum(map(len, blocks))))
            elif blocks:
                file.write(self._no_samples())

    def _write(self, file: RunFile | PartFiles | PartWriter, tables: Iterator[dict[str, Column]]) -> None:
        for columns in tables:
            marks = columns.pop(MARKS, None)
            file.write(columns, marks if isinstance(marks, Tensor) else None)

    def _settings(self) -> dict[str, object]:
        """What must be the same in two runs, beside the model and the samples."""
        settings: dict[str, object] = {"torch_boc": __version__, "trials": self.trials, "dtype": str(self.dtype)}
        settings["columns"] = ["index", *([] if self.id is None else [self.id]), *self.columns]
        if self.test is not None:
            settings |= {"test": digest(self.test.state_dict().values()), "alpha": self._probe.alpha}
        return settings


def _joined(parts: list[Column]) -> Any:
    tensors = [x for x in parts if isinstance(x, Tensor)]
    return torch.cat(tensors).numpy() if len(tensors) == len(parts) else [x for part in parts for x in part]
