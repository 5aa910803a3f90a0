"""Predictions with their coherence, written while `trainer.predict` runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DistributedSampler

from .._optional import require_pyarrow
from ..data.parquet import Column, ParquetFile
from ..inference.ids import as_ids, check_id, take_id
from ..inference.order import count_kept
from ..nn import ConformalTest
from ..nn.screening import SampleColumns
from .libraries import BasePredictionWriter
from .sources import LogitFunction, LogitSource


class BoCPredictionWriter(BasePredictionWriter):
    """Writes a Parquet file for each process (and each loader, if there are several) during `trainer.predict`.

    `predictions-rank0.parquet`, or `predictions-rank0-loader1.parquet`, has a row for each sample: its `index` in the
    data set (not for data sets without indices), its `id` if you name one, its `target` if the batch has one, and the
    columns of `torch_boc.functional.sample_columns`, and with a `test` `p_in_distribution` and `review`. Samples that a
    `DistributedSampler` of yours repeats as padding are left out. The files appear when all
    predictions are made; after an error there are none. If the files cannot be written in the folder, the error comes
    before the first prediction. `trainer.predict(..., return_predictions=False)` keeps the predictions out of memory. A
    prediction that cannot be read is always an error: a file without it would be wrong.

    Args:
        output_dir: the folder; it is made if it does not exist.
        logits: where they come from, as for `BoCCallback`: None for what `predict_step` returns, the name of a
            submodule, or a function of (outputs, batch, module) that returns logits and targets (or None).
        binary: whether each sample has a single logit, as for `BoCCallback`.
        trials: the number of coin flips of the p-value.
        columns: which columns to write, in this order, after `index`, the id and `target`; by default all.
        test: a calibrated `ConformalTest`, as for `BoCPredictor`; it is copied.
        alpha: the level of `review`.
        id: the name of a column that says which sample a row is, as for `BoCPredictor`: a key of a batch that is a
            mapping, or the third of (x, target, id). Your `predict_step` gets the whole batch.

    >>> import tempfile
    >>> writer = BoCPredictionWriter(tempfile.mkdtemp(), logits="model.classifier")
    >>> writer.interval.on_batch
    True
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        *,
        logits: str | LogitFunction | None = None,
        binary: bool = False,
        trials: int = 100,
        columns: Sequence[str] | None = None,
        test: ConformalTest | None = None,
        alpha: float = 0.05,
        id: str | None = None,
    ) -> None:
        super().__init__("batch")
        require_pyarrow()
        self.output_dir, self._source = Path(output_dir), LogitSource(logits, binary=binary)
        self._probe = SampleColumns(columns, trials=trials, test=test, alpha=alpha)
        check_id(id, ("target", *self._probe.names))
        self.id = id
        self._files: dict[int, ParquetFile] = {}

    @property
    def trials(self) -> int:
        """The number of coin flips of the p-value."""
        return self._probe.trials

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns after `index`, the id and `target`."""
        return self._probe.names

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare a file for each loader. Files of a run with other processes or loaders in the folder are an error."""
        loaders = range(len(trainer.num_predict_batches))
        mine = [_file_name(trainer.global_rank, loader, len(loaders)) for loader in loaders]
        expected = {_file_name(rank, loader, len(loaders)) for rank in range(trainer.world_size) for loader in loaders}
        strangers = {path.name for path in self.output_dir.glob("predictions-rank*.parquet")} - expected
        if strangers:
            raise FileExistsError(
                f"expected no predictions of another run in {self.output_dir}, got {', '.join(sorted(strangers))}; "
                "remove them or choose another output_dir"
            )
        metadata = {"trials": str(self.trials)}
        metadata |= {"rank": str(trainer.global_rank), "processes": str(trainer.world_size)}
        metadata |= {} if self._probe.test is None else {"alpha": str(self._probe.alpha)}
        self._files = {loader: ParquetFile(self.output_dir / mine[loader], metadata) for loader in loaders}
        self._source.attach(pl_module)

    def write_on_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Append the samples of a batch."""
        rest, ids = (batch, None) if self.id is None else take_id(batch, self.id)
        logits, target = self._source.take(prediction, batch if callable(self._source.logits) else rest, pl_module)
        if logits.ndim != 2:
            raise ValueError(f"expected logits of shape (N, C) to write a row for each sample, got {(*logits.shape,)}")
        indices = batch_indices if _are_known(trainer, batch_idx, dataloader_idx) else None
        columns: dict[str, Column] = {**_index_column(indices, len(logits))}
        columns |= {} if self.id is None else {self.id: as_ids(ids, len(logits))}
        columns |= {} if target is None else {"target": target}
        file, columns = self._files[dataloader_idx], {**columns, **self._probe(logits)}
        kept = _without_padding(trainer, dataloader_idx, file.rows, len(logits))
        file.write({name: column[:kept] for name, column in columns.items()})

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the files their names."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Delete the unfinished files."""
        for file in self._files.values():
            file.discard()
        self._files = {}
        self._source.detach()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Remove the hook from the model."""
        self._source.detach()


def _file_name(rank: int, loader: int, loaders: int) -> str:
    return f"predictions-rank{rank}.parquet" if loaders == 1 else f"predictions-rank{rank}-loader{loader}.parquet"


def _are_known(trainer: Any, batch_idx: int, dataloader_idx: int) -> bool:
    """Whether the indices belong to this batch.

    For a loader without indices, Lightning repeats the last indices of another loader. And if a sampler uses one list
    again and again and batches are fetched ahead, the list already holds the indices of a later batch.
    """
    sampler = getattr(tree_leaves(trainer.predict_dataloaders)[dataloader_idx], "batch_sampler", None)
    seen = getattr(sampler, "seen_batch_indices", None)
    if not seen:
        return False
    if any(later is seen[batch_idx] for later in seen[batch_idx + 1 :]):
        raise ValueError(
            "expected a batch sampler that yields a new list for each batch, got one that fills the same list again, "
            "while batches are fetched ahead, so that indices are lost; let it yield list(batch)"
        )
    return True


def _without_padding(trainer: Any, dataloader_idx: int, rows: int, size: int) -> int:
    """How many of the next `size` samples are no padding, after `rows` that are written."""
    loader = tree_leaves(trainer.predict_dataloaders)[dataloader_idx]
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    return min(size, max(0, count_kept(sampler) - rows)) if type(sampler) is DistributedSampler else size


def _index_column(indices: Sequence[int] | None, rows: int) -> dict[str, Tensor]:
    if not indices:
        return {}
    if len(indices) != rows:
        raise ValueError(f"expected a row of logits for each of the {len(indices)} samples of the batch, got {rows}")
    return {"index": torch.tensor(indices)}
