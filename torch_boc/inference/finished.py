"""What must be the same in two runs, and whether the file of an earlier run is the result of this one."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from .identity import identify
from .passing import Passing
from .runs import Run, compare_samples, read_record

REMEDY = "To replace the file, leave resume=True out, or delete it"


def describe_run(model: nn.Module, settings: Mapping[str, object], run_id: str | None) -> tuple[Run, list[str]]:
    """The run, and the names of those values of the model that cannot be compared.

    Args:
        model: the model, whose weights, code and attributes are compared.
        settings: the settings of the predictor, and what is known of the loader.
        run_id: the user's own name for model and samples, which are then not compared.
    """
    if run_id is not None:
        return Run({**settings, "run_id": str(run_id)}, tracked=False), []
    identity = identify(model)
    return Run({**settings, **identity.described()}, tracked=True), identity.unknown


def is_finished(path: Path, run: Run) -> bool:
    """Whether the file exists. It is an error if a run with other settings wrote it, or if rows are missing."""
    if not path.exists():
        return False
    record = read_record(path, REMEDY)
    run.check(record.settings, f"that wrote {path}", REMEDY)
    if record.rows != record.passed.rows:
        raise ValueError(f"expected {record.passed.rows} rows in {path}, got {record.rows}. {REMEDY}")
    return True


def check_finished(path: Path, marks: Iterable[Tensor]) -> None:
    """Raise if the file was made from other samples than those with these marks."""
    passing = Passing()
    for part in marks:
        passing.add(part)
    compare_samples(str(path), read_record(path, REMEDY).passed, passing.so_far(), REMEDY)
