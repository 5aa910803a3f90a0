"""What is known of a run on a cluster: where its rows are, with which settings, and whether it has finished."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._optional import require, require_pyarrow

MANIFEST = "run.json"
CHECKPOINT = "checkpoint"
FINISHED = "finished"
NEWER = "resume=True needs a newer Ray, with checkpoints in two phases, as 2.60 has them: pip install -U 'ray[data]'"


class Run:
    """A folder of rows, and beside it the folder `{path}.run` with the manifest and the checkpoint.

    Args:
        path: the folder of the rows: a path or a URI, such as "s3://bucket/folder".
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        fs = require("pyarrow", "fs", purpose="runs on a cluster need").fs
        text = os.fspath(path)
        self.path = text.rstrip("/") if "://" in text else str(Path(text).absolute())
        self._files, self._rows = fs.FileSystem.from_uri(self.path if "://" in self.path else Path(self.path).as_uri())
        self._beside = f"{self._rows}.run"

    def check(self, settings: dict[str, Any], *, resume: bool) -> bool:
        """Whether the run has finished already; raises if the folder is not one that this run may write to."""
        found, manifest = self._count_rows_files(), self.manifest()
        if not resume and (found or manifest is not None):
            raise FileExistsError(
                f"expected a folder without rows, got {self.path} with {found} Parquet files; choose another path, "
                f"delete the folder and {self.path}.run, or continue the run with resume=True"
            )
        if manifest is None and found:
            raise FileExistsError(f"expected the rows of a run in {self.path}, got {found} Parquet files without a run")
        if manifest is None:
            return False
        if not manifest["resume"] and not manifest[FINISHED]:
            raise FileExistsError(
                f"expected a run that was started with resume=True, got one in {self.path} that cannot be continued; "
                f"delete the folder and {self.path}.run, and start again"
            )
        earlier = {name: manifest["settings"].get(name) for name in settings}
        if different := [name for name in settings if settings[name] != earlier[name]]:
            name = different[0]
            raise ValueError(
                f"expected the settings of the run in {self.path}, {name}={earlier[name]!r}, got {settings[name]!r}; "
                "choose another path"
            )
        return bool(manifest[FINISHED])

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, or None if no run has begun."""
        try:
            with self._files.open_input_stream(f"{self._beside}/{MANIFEST}") as file:
                found: dict[str, Any] = json.loads(file.read())
                return found
        except FileNotFoundError:
            return None

    def begin(self, settings: dict[str, Any], *, resume: bool) -> None:
        """Write the manifest."""
        self._write({"settings": settings, "resume": resume, FINISHED: False})

    def finish(self) -> None:
        """Say in the manifest that all rows are there, and then delete the checkpoint, which has done its work."""
        self._write({**(self.manifest() or {}), FINISHED: True})
        checkpoint = f"{self._beside}/{CHECKPOINT}"
        if self._files.get_file_info(checkpoint).type != require_pyarrow().fs.FileType.NotFound:
            self._files.delete_dir(checkpoint)

    def _write(self, manifest: dict[str, Any]) -> None:
        self._files.create_dir(self._beside, recursive=True)
        temporary = f"{self._beside}/.{MANIFEST}"
        with self._files.open_output_stream(temporary) as file:
            file.write(json.dumps(manifest, indent=1).encode())
        self._files.move(temporary, f"{self._beside}/{MANIFEST}")

    def _count_rows_files(self) -> int:
        fs = require_pyarrow().fs
        infos = self._files.get_file_info(fs.FileSelector(self._rows, allow_not_found=True))
        return sum(info.is_file and info.path.endswith(".parquet") for info in infos)

    @contextmanager
    def checkpointing(self, dataset: Any, id: str) -> Iterator[None]:
        """Within the block, Ray notes which ids are written, and leaves out those that were noted by an earlier run."""
        data = _with_checkpoints()
        _check_source(dataset)
        path = f"{self.path}.run/{CHECKPOINT}"
        config = data.checkpoint.CheckpointConfig(
            id_column=id,
            checkpoint_path=path,
            override_filesystem=self._files,
            delete_checkpoint_on_success=False,  # not before the manifest says that the run has finished
        )
        context = dataset.context
        before, context.checkpoint_config = context.checkpoint_config, config
        try:
            yield
        finally:
            context.checkpoint_config = before


def _with_checkpoints() -> Any:
    """The module `ray.data`, or an error if its checkpoints could write a row twice, or if it has none."""
    try:
        data = require("ray", "data.checkpoint", "data.checkpoint.checkpoint_writer", purpose="resume=True needs").data
    except ImportError as error:
        raise ImportError(NEWER) from error
    if not hasattr(data.checkpoint.checkpoint_writer, "PENDING_CHECKPOINT_SUFFIX"):  # the first of two phases
        raise ImportError(NEWER)
    return data


def _check_source(dataset: Any) -> None:
    """Raise unless all rows are read from files: Ray leaves out rows that are done only where it reads them."""
    waiting, leaves = [dataset._logical_plan.dag], []
    for operator in waiting:  # the list grows in the loop
        waiting += operator.input_dependencies
        leaves += [] if operator.input_dependencies else [type(operator).__name__]
    if others := [name for name in leaves if not name.startswith(("Read", "ListFiles"))]:
        raise ValueError(
            "expected a data set that is read from files, as ray.data.read_parquet does, for resume=True, got one that "
            f"begins with {others[0]}; write it with write_parquet first"
        )


def check_complete(path: str | os.PathLike[str]) -> str:
    """Return `path` if `torch_boc.ray.predict` has written all of its rows there, or raise.

    >>> check_complete("/nowhere/predictions")
    Traceback (most recent call last):
        ...
    FileNotFoundError: expected a run at /nowhere/predictions, got none
    """
    run = Run(path)
    manifest = run.manifest()
    if manifest is None:
        raise FileNotFoundError(f"expected a run at {run.path}, got none")
    if not manifest[FINISHED]:
        remedy = "call predict again with resume=True" if manifest["resume"] else "delete it, and start again"
        raise ValueError(f"expected a finished run at {run.path}, got one that has not finished; {remedy}")
    return run.path
