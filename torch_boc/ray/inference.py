"""Inference on a cluster: a Ray dataset in, a folder of Parquet files and the manifest of their run out."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from .._optional import require, require_pyarrow
from ..data.parquet import as_arrow
from ..inference.batch_predictor import BoCBatchPredictor
from ..inference.resume import check_settings

NEWER = "resume=True needs a newer Ray, with checkpoints in two phases, as 2.60 has them: pip install -U 'ray[data]'"


def check_dataset(dataset: Any) -> Any:
    """Return the module `ray.data`, or raise if `dataset` is not one of its datasets."""
    data = require("ray", "data", purpose="work on a cluster needs").data
    if not isinstance(dataset, data.Dataset):
        raise TypeError(
            f"expected dataset as a ray.data.Dataset, got {type(dataset).__name__}; make one with ray.data.read_parquet"
        )
    return data


class TablePredictor(BoCBatchPredictor):
    """A predictor of Arrow tables, whose id and kept columns stay unchanged: NumPy has no integers next to a null."""

    def __call__(self, table: Any) -> Any:
        """The columns of a table."""
        block = require("ray", "data.block", purpose="work on a cluster needs").data.block
        columns = super().__call__(block.BlockAccessor.for_block(table).to_numpy())
        made = {name: as_arrow(x) for name, x in columns.items() if name not in self.passed}
        rows = require_pyarrow().table({name: table[name] for name in self.passed} | made)
        return rows.replace_schema_metadata(self.metadata)


def predict(
    dataset: Any,
    factory: Callable[[], nn.Module],
    path: str | os.PathLike[str],
    *,
    num_gpus: float = 0,
    workers: int | tuple[int, int] = 1,
    batch_size: int = 256,
    num_cpus: float = 1,
    block_rows: int | None = None,
    resume: bool = False,
    **options: Any,
) -> str:
    """Predict all rows of a Ray dataset on a cluster, and write their columns as a folder of Parquet files.

    It is `dataset.map_batches` with `torch_boc.inference.BoCBatchPredictor`, and `write_parquet`. The values are those
    of `BoCPredictor`, and the folder has the logits only with `keep_logits=True`. Rows have no order there, so name an
    `id`. If a node or a worker dies, Ray gives its batches to others, and no row is lost or written twice.

    `{path}.run` holds the manifest of the run. A run that fails or is killed leaves the rows that are written, perhaps
    with half a file among them, and a manifest that says that the run has not finished; `check_complete` reads it. A
    folder that is there already is refused.

    With `resume`, Ray also notes there which ids are written. The next call with `resume` predicts the other rows, and
    a call after the end does nothing. This needs an `id` that is different for each row, a dataset that is read from
    files (`ray.data.read_parquet` and others), and a Ray that has checkpoints: 2.60 has them, 2.51 has not. The
    settings of the two calls must agree; the model and the samples are not compared, so give the same. One run at a
    time may write to a folder: before you continue a run whose program was killed, make sure that its workers have
    ended.

    Args:
        dataset: a `ray.data.Dataset`.
        factory: a function without arguments that returns the classifier. Each worker calls it once.
        path: the folder, as a path that all nodes share, or a URI such as "s3://bucket/folder".
        num_gpus: the GPUs of each worker; the model is moved to "cuda" if there are any.
        workers: how many workers there are, or (fewest, most). At least 1 CPU of the cluster is left to Ray for
            reading, and 2 with `resume`. If the nodes have no room for the fewest workers, that is an error, because
            Ray would wait forever. On a cluster that grows from nothing, call
            `ray.autoscaler.sdk.request_resources` first.
        batch_size: how many rows the model gets at once.
        num_cpus: the CPUs of each worker. torch uses as many threads.
        block_rows: how many rows a worker is given at once, by default 4 batches. They become one file, which is noted
            as soon as it is written, and a killed run loses the blocks that are in work. For a long run take what a
            worker does in a minute, if two or three such blocks for each worker fit in memory, and at least four blocks
            for each worker.
        resume: whether this run can be continued, and continues an interrupted one.
        options: the other arguments of `BoCBatchPredictor`: `inputs`, `target`, `id`, `keep`, `preprocess`, `dtype`,
            `columns`, `conformal_test` and so on.

    Returns:
        The path of the folder.
    """
    data = check_dataset(dataset)
    options = ({"device": "cuda"} if num_gpus else {}) | options
    predictor = BoCBatchPredictor(factory, **options)  # bad options are refused here, before workers start
    if resume and predictor.id is None:
        raise ValueError("expected an id for resume=True, a column that is different for each row, got none")
    run, settings = Run(path), predictor.settings
    if run.check(settings, resume=resume):
        return run.path
    sizes = {"size": workers} if isinstance(workers, int) else dict(zip(("min_size", "max_size"), workers, strict=True))
    check_room(next(iter(sizes.values())), {"CPU": num_cpus, "GPU": num_gpus}, spare=2 if resume else 1)
    pool: dict[str, Any] = {"fn_constructor_args": (factory,), "fn_constructor_kwargs": options}
    pool |= {"compute": data.ActorPoolStrategy(**sizes), "num_cpus": num_cpus, "num_gpus": num_gpus or None}
    blocks = dataset.repartition(target_num_rows_per_block=block_rows or 4 * batch_size)  # Ray's have up to 128 MB
    table = blocks.map_batches(TablePredictor, batch_size=batch_size, batch_format="pyarrow", **pool)
    with run.checkpoints(table, str(predictor.id)) if resume else nullcontext():
        run.write({"settings": settings, "resume": resume, "finished": False})
        table.write_parquet(run.path)
    run.write({"settings": settings, "resume": resume, "finished": True})
    return run.path


def check_room(workers: int, asked: Mapping[str, float], *, spare: int) -> None:
    """Raise if the nodes of the cluster have no room for the workers, or do not leave `spare` CPUs for reading."""
    nodes = [node["Resources"] for node in require("ray", purpose="work on a cluster needs").nodes() if node["Alive"]]
    fit = sum(min(int(node.get(x, 0) / most + 1e-9) for x, most in asked.items() if most) for node in nodes)
    cpus, gpus = (f"{sum(node.get(name, 0) for node in nodes):g} {name}s" for name in asked)
    if fit < workers or sum(node.get("CPU", 0) for node in nodes) < workers * asked["CPU"] + spare:
        each = " and ".join(f"{number:g} {name}s" for name, number in asked.items())
        raise ValueError(
            f"expected room for {workers} workers of {each} each and {spare} CPUs for reading, got {cpus} and {gpus} "
            f"on {len(nodes)} nodes, for which Ray would wait forever; ask for fewer, or (fewest, most)"
        )


def check_complete(path: str | os.PathLike[str]) -> str:
    """Return `path` if `torch_boc.ray.predict` has written all of its rows there, or raise.

    >>> check_complete("/nowhere/predictions")
    Traceback (most recent call last):
        ...
    FileNotFoundError: expected a run at /nowhere/predictions, got none
    """
    run = Run(path)
    manifest = run.read()
    if manifest is None:
        raise FileNotFoundError(f"expected a run at {run.path}, got none")
    if not manifest["finished"]:
        remedy = "call predict again with resume=True" if manifest["resume"] else "delete it, and start again"
        raise ValueError(f"expected a finished run at {run.path}, got one that has not finished; {remedy}")
    return run.path


class Run:
    """A folder of rows, and next to it the folder `{path}.run` with the manifest and Ray's checkpoint.

    Args:
        path: the folder of the rows: a path or a URI, such as "s3://bucket/folder".
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        self.path = text.rstrip("/") if "://" in text else str(Path(text).absolute())
        self._files, self._rows = require_pyarrow().fs.FileSystem.from_uri(self.path)
        self._manifest = f"{self._rows}.run/manifest.json"

    def read(self) -> dict[str, Any] | None:
        """The manifest, or None if no run has begun."""
        try:
            with self._files.open_input_stream(self._manifest) as file:
                return dict(json.loads(file.read()))
        except FileNotFoundError:
            return None

    def write(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest."""
        self._files.create_dir(f"{self._rows}.run", recursive=True)
        with self._files.open_output_stream(f"{self._manifest}.tmp") as file:
            file.write(json.dumps(manifest, indent=1).encode())
        self._files.move(f"{self._manifest}.tmp", self._manifest)

    def check(self, settings: dict[str, Any], *, resume: bool) -> bool:
        """Whether the run has finished already; raises if the folder is not one that this run may write to."""
        manifest, remedy = self.read(), f"Choose another path, or delete {self.path} and {self.path}.run"
        if manifest is None and self._files.get_file_info(self._rows).type.name == "NotFound":
            return False
        if manifest is None or not resume or not (manifest["finished"] or manifest["resume"]):
            raise FileExistsError(
                "expected a new folder, or resume=True and the folder of a run that was started with resume=True, got "
                f"{self.path}. {remedy}"
            )
        check_settings(settings, manifest["settings"], self.path, remedy)
        return bool(manifest["finished"])

    @contextmanager
    def checkpoints(self, dataset: Any, id: str) -> Iterator[None]:
        """Within the block, Ray notes which ids are written, and leaves out those that were noted by an earlier run."""
        try:
            module = require("ray", "data.checkpoint.checkpoint_writer", purpose="it needs").data.checkpoint
            _ = module.checkpoint_writer.PENDING_CHECKPOINT_SUFFIX  # without it, a row could be written twice
        except (AttributeError, ImportError) as error:
            raise ImportError(NEWER) from error
        operators = [dataset._logical_plan.dag]
        for operator in operators:  # the list grows in the loop
            operators += operator.input_dependencies
            source = type(operator).__name__
            if not operator.input_dependencies and not source.startswith(("Read", "ListFiles")):
                raise ValueError(  # Ray leaves out rows that are done only where it reads files
                    "expected a dataset that is read from files, as ray.data.read_parquet does, for resume=True, got "
                    f"one that begins with {source}; write it with write_parquet first"
                )
        where = {"checkpoint_path": f"{self.path}.run/checkpoint", "override_filesystem": self._files}
        # Ray keeps the checkpoint at the end, because the manifest must say first that the run has finished.
        config = module.CheckpointConfig(id_column=id, delete_checkpoint_on_success=False, **where)
        before, dataset.context.checkpoint_config = dataset.context.checkpoint_config, config
        try:
            yield
        finally:
            dataset.context.checkpoint_config = before
