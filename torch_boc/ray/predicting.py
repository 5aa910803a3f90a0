"""Inference on a cluster: a Ray data set in, a folder of Parquet files out."""

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

from .. import __version__
from .._optional import require
from ..inference.hashing import digest
from ..inference.mapped import Arrays, BoCBatchPredictor
from .folding import check_dataset
from .problems import check_picklable, one_error, reporting
from .runs import Run


class BoCRayPredictor(BoCBatchPredictor):
    """`torch_boc.inference.BoCBatchPredictor`, for `dataset.map_batches`. The arguments are the same.

    Give Ray the class, and not an object of it, so that each actor makes the classifier once:

        dataset.map_batches(
            BoCRayPredictor,
            fn_constructor_args=(load_model,),
            fn_constructor_kwargs={"inputs": "image", "id": "path"},
            compute=ray.data.ActorPoolStrategy(size=4),
            batch_size=256,
            num_gpus=1,
        )

    `torch_boc.ray.predict` does this, and writes the result.

    >>> predictor = BoCRayPredictor(lambda: torch.nn.Linear(5, 3), id="path", columns=["gap"])
    >>> predictor.columns
    ('path', 'gap')
    """


class BoCRayWorker:
    """A predictor in an actor of Ray. Its errors are reports that the program understands."""

    def __init__(self, predictor: BoCBatchPredictor) -> None:
        self._predictor = predictor

    def __call__(self, batch: Arrays) -> dict[str, Any]:
        """The columns of a batch."""
        with reporting("making the model"):
            self._predictor.load()
        with reporting(f"predicting a batch of {len(next(iter(batch.values()), ()))} rows"):
            return self._predictor(batch)


def predict(
    dataset: Any,
    factory: Callable[[], nn.Module],
    path: str | os.PathLike[str],
    *,
    num_gpus: float = 0,
    workers: int | tuple[int, int] = 1,
    batch_size: int = 256,
    num_cpus: float = 1,
    resume: bool = False,
    **options: Any,
) -> str:
    """Predict all rows of a Ray data set on a cluster, and write their columns as a folder of Parquet files.

    The values are those of `BoCPredictor`, and the folder never has the logits. Rows have no order there, so name an
    `id`. If a node or a worker dies, Ray gives its batches to others, and no row is lost or written twice. An error in
    the model or in the data is raised once, and says where it happened: as what it was if it is one of the common kinds
    of Python (`torch_boc.ray.problems.KINDS`, such as ValueError, KeyError and FileNotFoundError), and otherwise as a
    RuntimeError that begins with the name of its kind.

    The folder `{path}.run` holds a manifest of the run. A run that fails or is killed leaves the rows that are written,
    perhaps with half a file among them, and a manifest that says that the run has not finished. `check_complete` tells
    the two apart. A folder with rows of another run is refused.

    With `resume`, Ray also notes there which ids are written. The next call with `resume` predicts the other rows, and
    a call after the end does nothing. This needs an `id` that is different for each row, a data set that is read from
    files (`ray.data.read_parquet` and others), and a Ray that has checkpoints: 2.60 has them, 2.51 has not. The
    settings of the two calls must agree; the model and the samples are not compared, so give the same.

    One run at a time may write to a folder. Nothing stops a second call with `resume` while the first still writes, and
    both would write the same rows. Before you continue a run whose program was killed, make sure that its workers have
    ended.

    Args:
        dataset: a `ray.data.Dataset`.
        factory: a function without arguments that returns the classifier. Each worker calls it once.
        path: the folder, as a path that all nodes share, or a URI such as "s3://bucket/folder".
        num_gpus: the GPUs of each worker; the model is moved to "cuda" if there are any.
        workers: how many workers there are, or (fewest, most). Leave at least 1 CPU of the cluster to Ray for reading,
            and 2 when a run is resumed; there is a warning if they are missing.
        batch_size: how many rows the model gets at once.
        num_cpus: the CPUs of each worker. torch uses as many threads.
        resume: whether this run can be continued, and continues an interrupted one.
        options: the other arguments of `BoCRayPredictor`: `inputs`, `target`, `id`, `keep`, `preprocess`, `dtype`,
            `columns`, `test` and so on.

    Returns:
        The path of the folder.
    """
    check_dataset(dataset)
    predictor = BoCRayPredictor(factory, **({"device": "cuda"} if num_gpus else {}) | options)
    check_picklable(predictor, "a factory (and preprocess)")
    if resume and predictor.id is None:
        raise ValueError("expected an id for resume=True, a column that is different for each row, got none")
    run, settings = Run(path), _settings(predictor)
    if run.check(settings, resume=resume):
        return run.path
    _warn_of_few_cpus(workers, num_cpus, filtered=run.manifest() is not None)
    table = dataset.map_batches(
        BoCRayWorker,
        fn_constructor_args=(predictor,),
        compute=_pool(workers),
        batch_size=batch_size,
        batch_format="numpy",
        num_cpus=num_cpus,
        num_gpus=num_gpus or None,
        **_keeping_rows(dataset),
    )
    with one_error():
        if resume:
            with run.checkpointing(table, str(predictor.id)):
                run.begin(settings, resume=True)
                table.write_parquet(run.path)
        else:
            run.begin(settings, resume=False)
            table.write_parquet(run.path)
    run.finish()
    return run.path


def _pool(workers: int | tuple[int, int]) -> Any:
    strategy = require("ray", "data", purpose="work on a cluster needs").data.ActorPoolStrategy
    if isinstance(workers, tuple):
        return strategy(min_size=workers[0], max_size=workers[1])
    return strategy(size=workers)


def _warn_of_few_cpus(workers: int | tuple[int, int], num_cpus: float, *, filtered: bool) -> None:
    """Say that Ray may wait for ever: its own tasks need CPUs beside those of the workers.

    Args:
        workers: as for `predict`.
        num_cpus: as for `predict`.
        filtered: whether rows that are done are left out, which is the work of one more actor.
    """
    ray = require("ray", purpose="work on a cluster needs")
    needed = (workers[0] if isinstance(workers, tuple) else workers) * num_cpus + 1 + filtered
    if ray.is_initialized() and (found := ray.cluster_resources().get("CPU", 0)) < needed:
        others = "1 to read, and 1 to leave out the rows that are done" if filtered else "1 to read"
        warnings.warn(
            f"the workers and Ray itself ({others}) need {needed:g} CPUs, and the cluster has {found:g}: without more "
            "nodes the run does not begin; give fewer workers",
            stacklevel=3,
        )


def _keeping_rows(dataset: Any) -> dict[str, bool]:
    """Tell Ray that the number of rows stays. Ray 2.51 cannot be told, and then assumes that it may change."""
    name = "udf_modifying_row_count"
    return {name: False} if name in inspect.signature(dataset.map_batches).parameters else {}


def _settings(predictor: BoCBatchPredictor) -> dict[str, Any]:
    """What must be the same in two calls that write to one folder."""
    settings = {"torch_boc": __version__, **predictor.settings}
    test = settings.pop("test", None)
    return settings if test is None else {**settings, "test": digest(test.state_dict().values())}
