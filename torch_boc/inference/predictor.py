"""Run a classifier over a loader and keep one row per sample."""

import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from itertools import chain
from operator import length_hint
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from .. import __version__
from .._optional import require, require_pyarrow
from ..data.atomic import check_folder, check_parquet
from ..data.extract import call_model, check_source
from ..data.parquet import Column, ParquetFile
from ..functional.checks import ProbabilityCheck, as_binary
from ..functional.table_columns import TARGET_COLUMN
from ..kernels.dispatch import choose_kernels
from ..nn import Acceptance, ConformalTest
from ..nn.decision_columns import SampleColumns
from .batches import LOGITS, Batch, BatchReader, check_id, count_rows, grouped
from .device import HostCopy, Prefetch, SplitOnOOM, device_of, evaluating, has_streams, start_host_copy, to_device
from .distributed import check_shard, find_rank, local_device
from .indexing import SharedData, as_loader, count_samples, has_own_memory, unknown_order, with_indices
from .resume import RunFolder, Table, check_settings, checksum, exclusive_lock, metadata_of, read_settings, remove_parts

REMEDY = "remove the softmax from the model, or let the model return the logarithm"
REPLACE = "To replace the file, leave resume=True out, or delete it"
# The columns of small batches are computed together, up to this many logits: a call costs more than its samples.
GROUP_LOGITS = 2**18


def progress_bar(shown: bool, total: int | None, start: int = 0) -> AbstractContextManager[Any]:
    """A tqdm bar that counts samples, in a terminal or a notebook; None if it is not to be shown."""
    if not shown:
        return nullcontext()
    tqdm = require("tqdm", "auto", purpose="progress=True needs").auto.tqdm
    quiet = False if "ipykernel" in sys.modules else None  # None: tqdm shows it in a terminal only
    return tqdm(total=total, initial=start, unit=" samples", disable=quiet)  # type: ignore[no-any-return]


class BoCPredictor:
    """Runs a classifier over a loader and makes one row per sample, in the order of the loader.

    The columns are `index`, the `id` if you name one, `target` and `target_log_probability` if the loader has targets,
    and those of `torch_boc.functional.sample_columns`, all or the ones you choose, in float32 but for `odds` and
    `loss`. With a `conformal_test`, there are also
    `p_in_distribution`, the p-value of the test, and `review`, which is True where the sample needs review.
    A loader yields x, (x, target) or mappings, as tokenizers and processors make them. A dataset or a tensor of all
    inputs may be given instead of a loader. The model returns logits of shape (N, C), in any form that
    `torch_boc.data.find_logits` knows; probabilities are refused. It runs in eval and inference mode, and afterwards
    its modules have their earlier modes again. If a batch does not fit in memory, it is halved until it does.

    `index` is the index of the sample in the dataset of a `DataLoader`, also with a `DistributedSampler`, of which the
    padding is left out. In a `torch.utils.data.Subset`, it is the position in the subset. For plain iterables of
    batches and iterable datasets, samples are counted from 0 in the order of the loader. A loader whose order cannot
    be known (shuffled, with a sampler or an `__iter__` of your own, an iterable dataset with several workers) is an
    error unless there is an `id`; then there is no `index`. A `collate_fn` must keep the order of the samples.

    Args:
        model: the classifier.
        device: where to run; the model is moved there. By default it stays where its first parameter is. With
            shard="auto", "cuda" is the GPU of this process by LOCAL_RANK or SLURM_LOCALID.
        dtype: the dtype of autocast, `torch.bfloat16` or `torch.float16`; by default there is no autocast.
        compile: whether to run the model through `torch.compile`, or the mode of it, such as "reduce-overhead". A batch
            of another size than the largest, as the last one may be, runs without it, and nothing is compiled again.
        logits: where they are: None to find them in the output; the name of a submodule that returns them, called once
            by the model; or a function of the output.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z). Its
            targets are 0 and 1 of any dtype.
        trials: the number of coin flips of the p-value.
        progress: whether to show a progress bar, in a terminal or a notebook.
        batch_size: the batch size for datasets and tensors; a loader has its own.
        columns: which columns to keep, in this order, after `index`, the id and `target`; by default all.
        conformal_test: a `ConformalTest`, calibrated with held-out samples of this model. It is copied to the
            predictor's device.
        alpha: the level of `review`: at most this share of in-distribution samples is expected to be flagged.
        acceptance: an `Acceptance`, calibrated with held-out samples of this model, for the column `accepted`: whether
            the prediction is accepted. It is copied.
        max_error: the largest error rate among the accepted predictions, with probability 95 % over the draw of the
            held-out set.
        id: the name of a column that says which sample a row is, such as "path": strings or numbers, under this key of
            a mapping, or as the third of (x, target, id). The model does not get it.
        top_k: for the columns `top_classes` and `top_confidences`, lists of the k likeliest classes and their
            probabilities.
        class_names: the names of the classes in their order, for the column `class_name` of the prediction.
        keep_logits: whether the rows have a column `logits`, in float32. It takes 4 bytes for each class.
        num_workers: how many processes read datasets that are no tensors; a loader has its own. By default none for a
            model on the CPU, otherwise up to 4, where workers are safe: not in notebooks, where processes are spawned,
            or for data that cannot be pickled.
        prefetch: how many batches are copied ahead to a GPU, if they come from a `DataLoader` or a dataset; 1 from
            other iterables, which may use the same memory again.
        shard: (rank, number of processes), if several processes share a map-style dataset, or "auto" to ask the
            launcher: torchrun, srun, Lightning, or `torch.distributed`. Each process then predicts its own part of the
            dataset, and `to_parquet` writes a folder. No process group is needed.

    Attributes:
        columns: the names of the columns after `index`, the id and `target`.
        conformal_test: the predictor's own copy of the test, or None.
        num_classes: the number of classes, after the first batch.

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
        compile: bool | str = False,
        logits: str | Callable[[Any], Any] | None = None,
        binary: bool = False,
        trials: int = 100,
        progress: bool = True,
        batch_size: int = 64,
        columns: Sequence[str] | None = None,
        conformal_test: ConformalTest | None = None,
        alpha: float = 0.05,
        acceptance: Acceptance | None = None,
        max_error: float = 0.01,
        id: str | None = None,
        top_k: int = 0,
        class_names: Sequence[str] | None = None,
        keep_logits: bool = False,
        num_workers: int | None = None,
        prefetch: int = 2,
        shard: str | tuple[int, int] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        check_source(model, logits, binary=binary)
        if dtype not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"expected dtype as torch.bfloat16, torch.float16 or None, got {dtype}")
        self._probe = SampleColumns(
            columns,
            trials=trials,
            conformal_test=conformal_test,
            alpha=alpha,
            acceptance=acceptance,
            max_error=max_error,
        )
        self.top_k, self.keep_logits = top_k, keep_logits
        self.class_names = None if class_names is None else [*class_names]
        if not all(isinstance(name, str) for name in self.class_names or ()):
            raise TypeError(f"expected class_names as a list of strings, got {class_names!r}")
        if class_names is not None and "prediction" not in self._probe.names:
            raise ValueError(f"expected the column 'prediction' with class_names=, got {', '.join(self._probe.names)}")
        more = {"top_classes": top_k, "top_confidences": top_k, "class_name": class_names, "logits": keep_logits}
        self.columns = *self._probe.names, *(name for name, given in more.items() if given)
        self.trials, self.conformal_test = self._probe.trials, self._probe.conformal_test
        check_id(id, ("target", TARGET_COLUMN, *self.columns))
        self.shard, self.batch_size = check_shard(shard), batch_size
        if device is not None:
            model = model.to(local_device(device) if shard == "auto" else device)
        self.model = model
        self.device, self.dtype, self.progress, self.id = device_of(self.model), dtype, progress, id
        if self.conformal_test is not None:
            self.conformal_test.move_to(self.device)
        self.logits, self.binary, forward = logits, binary, partial(call_model, model, logits)
        self._plain: Callable[..., tuple[Any, Tensor]] = forward
        self._forward = torch.compile(forward, mode=None if compile is True else compile) if compile else forward
        self._largest = 0  # of the batches so far
        self.num_classes: int | None = None
        self._reader, self.num_workers = BatchReader(model, id, binary=binary), num_workers
        self._ahead, self.prefetch = int(has_streams(self.device)), prefetch
        self._first, self._split_on_oom = ProbabilityCheck(remedy=REMEDY), SplitOnOOM()

    @property
    def settings(self) -> dict[str, object]:
        """What the values of a table depend on, apart from the model and the samples."""
        columns = ["index", *([] if self.id is None else [self.id]), *self.columns]
        settings = {"torch_boc": __version__, "columns": columns, "trials": self.trials, "dtype": str(self.dtype)}
        where = self.logits
        source = where if isinstance(where, str | None) else getattr(where, "__qualname__", type(where).__qualname__)
        settings |= {"logits": source, "binary": self.binary, "top_k": self.top_k, "class_names": self.class_names}
        settings |= {"alpha": self._probe.alpha, "max_error": self._probe.max_error}
        for name in ("conformal_test", "acceptance"):
            part = getattr(self._probe, name)
            settings[name] = part and checksum(part.state_dict().items())
        return settings

    def predict(self, loader: Any) -> Iterator[dict[str, Any]]:
        """Yield a table for each batch: a dict of tensors on the CPU; ids that are strings are a list.

        With `shard`, only the samples of this process are predicted. Without samples, there is a table without rows.
        """
        return self._predict(loader, group=0)

    def _predict(self, loader: Any, group: int = GROUP_LOGITS) -> Iterator[dict[str, Any]]:
        reading = self.batch_size, self.num_workers, self.device
        if self.shard is not None:
            data, rank = SharedData(loader, *reading), find_rank(self.shard)
            blocks = data.share(data.block_size(rank.world), rank)
            tables = self._tables(data.batches(blocks, self._reader), sum(map(len, blocks)), data.loader, group=group)
        else:
            loader = as_loader(loader, *reading)
            tables = self._tables(with_indices(loader, self._reader), count_samples(loader), loader, group=group)
        return (columns for columns, _ in tables)

    def predict_batch(self, batch: Any) -> dict[str, Any]:
        """The table of one batch, without `index`, for a loop of your own. The model must be in eval mode."""
        read = self._reader.read(batch)
        columns = self._split_on_oom(lambda piece: self._columns(to_device(piece, self.device)), read)
        table = start_host_copy({**read.columns, **columns}).wait()
        self._first.raise_if_found()
        return self._named(table)

    def to_frame(self, loader: Any) -> Any:
        """A pandas DataFrame of all samples; with `shard`, of the samples of this process."""
        pandas = require("pandas", purpose="frames need")
        columns = (
            {
                name: x if not isinstance(x, Tensor) else [*x.numpy()] if x.ndim > 1 else x.numpy()
                for name, x in table.items()
            }
            for table in self._predict(loader)
        )
        return pandas.concat(map(pandas.DataFrame, columns), ignore_index=True)

    def to_parquet(
        self, loader: Any, path: str | os.PathLike[str], *, resume: bool = False, run_id: str | None = None
    ) -> Path:
        """Write a Parquet file of all samples while they are predicted, and return its path.

        The file appears when it is complete, and its metadata say which run wrote it. With `resume`, an interrupted run
        leaves its rows in the folder `{path}.run`, and the next run with `resume` continues after them: the loader
        must give the same samples in the same order, of which those that are done are read and left out. The settings,
        the test, the number of samples and a checksum of the parameters and buffers must be those of the earlier run. A
        difference is an error that names it. A finished run is not repeated; to replace its file, leave `resume` out.
        While a run writes, a second one is refused, but not on Windows. What else a model depends on (its code, plain
        attributes, files) is not compared, and neither are the samples: name them in a `run_id` if they change. An
        interruption loses the rows of the last minute, or of the last 32,768 samples.

        With `shard`, `path` is a folder, which pandas, polars and DuckDB read as one table, and `loader` is a map-style
        dataset, or a plain `DataLoader` over one. The dataset must have the same order in every process (sort lists
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
                compared instead of the checksum of the parameters, which is then not computed.
        """
        require_pyarrow()
        tensors = chain(self.model.named_parameters(), self.model.named_buffers())
        model = {"run_id": run_id} if run_id is not None else {"checksum of the parameters": checksum(tensors)}
        settings, reading = self.settings | model, (self.batch_size, self.num_workers, self.device)
        if self.shard is not None:
            path, data, rank = check_folder(path), SharedData(loader, *reading), find_rank(self.shard)
            folder = RunFolder(path, settings | {"samples": data.samples}, data.block_size(rank.world))
            blocks = [block for block in data.share(folder.block, rank) if not folder.has(block)]
            batches = data.batches(blocks, self._reader)
            with closing(self._tables(batches, sum(map(len, blocks)), data.loader, block=folder.part_rows)) as tables:
                folder.write(tables, blocks)
            return path
        path, loader = check_parquet(path), as_loader(loader, *reading)
        if resume and (why := unknown_order(loader)):
            raise ValueError(f"expected a loader in a known order for resume=True, got a DataLoader with {why}")
        batches, samples = with_indices(loader, self._reader), count_samples(loader)
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            which = f"process {sampler.rank + 1} of {sampler.num_replicas}"
            words = f"this file has the samples of {which} only; with shard='auto' all processes write one folder"
            warnings.warn(words, stacklevel=2)
        settings |= {"batches": length_hint(loader, -1)} if samples is None else {"samples": samples}
        with exclusive_lock(path) if os.name == "posix" else nullcontext():
            if not resume:
                with ParquetFile(path, metadata_of(settings)) as file:
                    for columns, num_classes in self._tables(batches, samples, loader):
                        file.write(columns, num_classes)
            elif path.exists():
                check_settings(settings, read_settings(path, None, REPLACE)[0], path, REPLACE)
                remove_parts(path)  # of a run that was killed after its last step but one
            else:
                folder = RunFolder(path, settings)
                folder.write(self._tables(batches, samples, loader, folder.rows, block=folder.part_rows))
                folder.join()
        return path

    def _tables(
        self,
        batches: Iterator[Batch],
        total: int | None,
        loader: Any,
        start: int = 0,
        *,
        group: int = GROUP_LOGITS,
        block: int | None = None,
    ) -> Generator[Table, None, None]:
        """The tables of the samples after the first `start`, which are read and left out, and the number of classes.

        Several small batches make a table, of up to about `group` logits and within one `block` of samples. On a GPU,
        the next batches are copied to the device, and one is started, before a table is read. The loader is where the
        batches come from.
        """
        self._first, written = ProbabilityCheck(binary=self.binary, remedy=REMEDY), start
        copies: deque[HostCopy] = deque()
        groups = grouped(self._batches(batches, loader, start, group), group, block)
        with evaluating(self.model), progress_bar(self.progress, total, start) as bar:
            while (columns := next(groups, None)) is not None or copies:
                if columns is not None:
                    if LOGITS in columns:
                        columns |= self._of_logits(columns.pop(LOGITS), columns.get("target"))
                    copies.append(start_host_copy(columns))
                if columns is None or len(copies) > self._ahead:
                    table = copies.popleft().wait()
                    self._first.raise_if_found()
                    written += (rows := count_rows(table))
                    if bar is not None:
                        bar.update(rows)
                    yield self._named(table), self.num_classes
        if not written:
            ids: dict[str, Column] = {} if self.id is None else {self.id: []}
            yield {"index": torch.arange(0), **ids, **self.empty()}, None

    def _batches(
        self, batches: Iterator[Batch], loader: Any, start: int, group: int
    ) -> Generator[dict[str, Column], None, None]:
        """What `_columns` gives for each batch, with the columns that need no model."""
        prefetch, seen = Prefetch(batches, self.device, trusted=has_own_memory(loader), ahead=self.prefetch), 0
        while (batch := prefetch.next_batch()) is not None:
            done = min(max(start - seen, 0), batch.size)
            seen += batch.size
            if done == batch.size:
                continue
            batch = batch.piece(done, batch.size) if done else batch
            columns = self._split_on_oom(lambda piece: self._columns(prefetch.deliver(piece), group), batch)
            if self._split_on_oom.limit is None:  # else the memory is short
                prefetch.fetch()
            yield {**batch.columns, **columns}
        if seen < start:
            raise ValueError(f"expected a loader with at least the {start} samples that are already done, got {seen}")

    def _columns(self, batch: Batch, group: int = 0) -> dict[str, Tensor]:
        """The computation, on the device from beginning to end; or the logits, if a `group` has room for more."""
        autocast = nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)
        self._largest = max(self._largest, batch.size)
        usual = batch.size == min(self._largest, self._split_on_oom.limit or self._largest)
        forward = self._forward if usual else self._plain  # for another size, torch would compile again
        with torch.inference_mode(), autocast:
            _, logits = forward(batch.args, batch.kwargs)
        logits = as_binary(logits)[0] if self.binary else logits
        if logits.ndim != 2 or len(logits) != batch.size:
            raise ValueError(
                f"expected logits of shape ({batch.size}, C) for {batch.size} samples, got {tuple(logits.shape)}; a "
                "table has one row per sample: put a module around the model that reduces the other axes"
            )
        self.num_classes = logits.shape[-1]
        self._first.check(logits)
        # Kernels read each row by itself; the last bit of torch's sums depends on the other rows. A copy is taken,
        # because a graph that is replayed writes to the same memory.
        if self._largest * self.num_classes < group and choose_kernels(logits) is not None:
            return {LOGITS: logits.clone(memory_format=torch.contiguous_format)}
        return self._of_logits(logits, batch.columns.get("target"))

    def _of_logits(self, logits: Any, target: Any) -> dict[str, Tensor]:
        """The computed columns. Outside of inference mode: users get ordinary tensors."""
        return self._probe(logits, target) | self._more(logits)

    def _more(self, logits: Tensor) -> dict[str, Tensor]:
        """The columns that are lists."""
        lists, names = {}, self.class_names
        if names is not None and len(names) != logits.shape[-1]:
            raise ValueError(f"expected {logits.shape[-1]} class_names, as the logits have classes, got {len(names)}")
        if not 0 <= self.top_k <= logits.shape[-1]:
            raise ValueError(f"expected top_k from 0 to {logits.shape[-1]}, the number of classes, got {self.top_k}")
        if self.top_k:
            lists["top_confidences"], lists["top_classes"] = logits.softmax(-1, torch.float32).topk(self.top_k)
        return lists | ({"logits": logits.to(torch.float32, copy=True)} if self.keep_logits else {})

    def _named(self, table: dict[str, Any]) -> dict[str, Any]:
        """The table with the names of the predicted classes, and its columns in order."""
        names = self.class_names
        if names is not None:
            table["class_name"] = [names[i] for i in table["prediction"].tolist()]
        return {name: x for name, x in table.items() if name not in self.columns} | {x: table[x] for x in self.columns}

    def empty(self, *, labelled: bool = False) -> dict[str, Any]:
        """The columns of no samples, with or without targets."""
        none = torch.zeros(0, len(self.class_names or ()) or max(2, self.top_k))
        return self._named(self._probe.empty(labelled=labelled) | self._more(none))
