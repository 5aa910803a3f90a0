"""Predictions with the numbers of the probe, written while `trainer.predict` runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DistributedSampler

from .._optional import require_pyarrow
from ..data.parquet import Column, ParquetFile
from ..functional.checks import ProbabilityCheck
from ..functional.table_columns import TARGET_COLUMN
from ..inference.batches import as_ids, check_id, take_id
from ..inference.indexing import count_kept
from ..nn import ConformalTest
from ..nn.decision_columns import SampleColumns
from ._compat import BasePredictionWriter
from .logit_source import LogitFunction, LogitSource


class BoCPredictionWriter(BasePredictionWriter):
    """Writes a Parquet file for each process (and each loader, if there are several) during `trainer.predict`.

    `predictions-rank0.parquet`, or `predictions-rank0-loader1.parquet`, has one row per sample: its `index` in the
    dataset (if that has indices), its `id` if you name one, its `target` if the batch has one, the columns of
    `torch_boc.functional.sample_columns`, and with a `conformal_test` `p_in_distribution` and `review`. Samples that a
    `DistributedSampler` repeats as padding are left out. The files appear when all predictions are made; after an error
    there are none. A folder that cannot be written, or that has files of an earlier run, is an error before the first
    prediction. Probabilities are refused, and a prediction that cannot be read is an error.
    `trainer.predict(..., return_predictions=False)` keeps the predictions out of memory.

    Args:
        output_dir: the folder; it is made if it does not exist.
        logits: where they come from, as for `BoCCallback`: None for what `predict_step` returns, the name of a
            submodule, or a function of (outputs, batch, module) that returns logits and targets (or None).
        binary: whether each sample has a single logit, as for `BoCCallback`.
        trials: the number of coin flips of the p-value.
        columns: which columns to write, in this order, after `index`, the id and `target`; by default all.
        conformal_test: a calibrated `ConformalTest`, as for `BoCPredictor`; it is copied.
        alpha: the level of `review`.
        id: the name of a column of sample IDs, as for `BoCPredictor`: a key of a batch that is a
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
        conformal_test: ConformalTest | None = None,
        alpha: float = 0.05,
        id: str | None = None,
    ) -> None:
        super().__init__("batch")
        require_pyarrow()
        self.output_dir, self._source = Path(output_dir), LogitSource(logits, binary=binary)
        self._probe = SampleColumns(columns, trials=trials, conformal_test=conformal_test, alpha=alpha)
        check_id(id, ("target", TARGET_COLUMN, *self._probe.names))
        self.id = id
        self._files: list[ParquetFile] = []
        remedy = "give logits=, where the logits are, or remove the softmax from predict_step"
        self._first = ProbabilityCheck(binary=binary, remedy=remedy)

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare a file for each loader. Files of another run in the folder are an error."""
        loaders, rank = len(trainer.num_predict_batches), trainer.global_rank
        ends = [f"-loader{loader}.parquet" for loader in range(loaders)] if loaders > 1 else [".parquet"]
        # Another process of this run may have finished already.
        others = {f"predictions-rank{x}{end}" for x in range(trainer.world_size) if x != rank for end in ends}
        earlier = {path.name for path in self.output_dir.glob("predictions-rank*.parquet")} - others
        if earlier:
            raise FileExistsError(
                f"expected no predictions of another run in {self.output_dir}, got {', '.join(sorted(earlier))}; "
                "remove them, or give this run a writer with another output_dir"
            )
        settings = {"trials": self._probe.trials, "alpha": self._probe.alpha}
        settings |= {"rank": rank, "processes": trainer.world_size}
        metadata = {name: str(x) for name, x in settings.items()}
        self._files = [ParquetFile(self.output_dir / f"predictions-rank{rank}{end}", metadata) for end in ends]
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
        extracted = self._source.extract(prediction, batch if callable(self._source.logits) else rest, pl_module)
        if extracted.misfit:
            raise ValueError(extracted.misfit)
        logits, target = extracted.rows, extracted.target
        rows, file = len(logits), self._files[dataloader_idx]
        if logits.ndim != 2:
            raise ValueError(f"expected logits of shape (N, C) to write one row per sample, got {(*logits.shape,)}")
        self._first.check(logits)
        self._first.raise_if_found()  # the rows are read from the device below, anyway
        batch_sampler = getattr(tree_leaves(trainer.predict_dataloaders)[dataloader_idx], "batch_sampler", None)
        columns: dict[str, Column] = {}
        # For a loader without indices, Lightning repeats the last indices of another loader.
        if batch_indices and getattr(batch_sampler, "seen_batch_indices", None):
            columns["index"] = torch.tensor(batch_indices)
        if self.id is not None:
            columns[self.id] = as_ids(ids, rows)
        if target is not None:
            columns["target"] = target
        columns |= self._probe(logits, target)
        sampler = getattr(batch_sampler, "sampler", None)
        if type(sampler) is DistributedSampler:  # its last samples may be padding
            rows = min(rows, max(0, count_kept(sampler) - file.rows))
        file.write({name: column[:rows] for name, column in columns.items()}, logits.shape[1])

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the files their names."""
        for file in self._files:
            file.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Delete the unfinished files."""
        for file in self._files:
            file.discard()
        self._source.detach()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Remove the hook from the model."""
        self._source.detach()
