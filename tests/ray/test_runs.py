"""When a run may write to a folder, and how one knows that it has finished. No cluster is needed here."""

import sys

import pytest

from torch_boc.ray import check_complete
from torch_boc.ray.runs import Run

SETTINGS = {"columns": ["path", "gap"], "trials": 100}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out"


def add_rows(path):
    path.mkdir(exist_ok=True)
    (path / "0.parquet").write_bytes(b"")


def test_a_run_from_beginning_to_end(path):
    run = Run(path)
    assert not run.check(SETTINGS, resume=False)
    with pytest.raises(FileNotFoundError, match="expected a run at"):
        check_complete(path)
    run.begin(SETTINGS, resume=False)
    with pytest.raises(ValueError, match="has not finished; delete it"):
        check_complete(path)
    (path.parent / "out.run" / "checkpoint").mkdir()
    run.finish()
    assert check_complete(path) == str(path)
    assert [x.name for x in (path.parent / "out.run").iterdir()] == ["run.json"]


def test_a_folder_with_rows_is_refused(path):
    add_rows(path)
    with pytest.raises(FileExistsError, match=r"expected a folder without rows, got .* with 1 Parquet files"):
        Run(path).check(SETTINGS, resume=False)
    with pytest.raises(FileExistsError, match="got 1 Parquet files without a run"):
        Run(path).check(SETTINGS, resume=True)


def test_a_run_that_was_not_to_be_resumed_cannot_be(path):
    Run(path).begin(SETTINGS, resume=False)
    with pytest.raises(FileExistsError, match="expected a run that was started with resume=True"):
        Run(path).check(SETTINGS, resume=True)
    Run(path).finish()
    assert Run(path).check(SETTINGS, resume=True)


def test_a_resumed_run_has_the_same_settings(path):
    Run(path).begin(SETTINGS, resume=True)
    add_rows(path)
    assert not Run(path).check(SETTINGS, resume=True)
    with pytest.raises(ValueError, match="trials=100, got 7; choose another path"):
        Run(path).check({**SETTINGS, "trials": 7}, resume=True)
    with pytest.raises(ValueError, match=r"alpha=None, got 0\.1"):
        Run(path).check({**SETTINGS, "alpha": 0.1}, resume=True)


def test_relative_paths_and_uris(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert Run("out").path == str(path)
    assert Run("out/").path == str(path)
    uri = path.as_uri()
    Run(uri).begin(SETTINGS, resume=True)
    assert Run(path).manifest() == {"settings": SETTINGS, "resume": True, "finished": False}


def test_a_ray_without_checkpoints_cannot_resume(path, monkeypatch):
    """As Ray 2.51 is."""
    pytest.importorskip("ray")
    monkeypatch.setitem(sys.modules, "ray.data.checkpoint", None)
    with pytest.raises(ImportError, match="resume=True needs a newer Ray"), Run(path).checkpointing(None, "path"):
        pass
