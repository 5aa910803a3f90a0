"""Two runs never write one table together, and a run that is no more is in nobody's way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tests.inference import writer
from tests.inference.cases import Loader, assert_same, expected, files, predictor, read
from tests.systems import unix_only
from torch_boc.inference import BoCPredictor, lock, part_files
from torch_boc.inference.lock import Lock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def other(tmp_path):
    """A process that writes the same table, in the midst of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.inference.writer", str(tmp_path / "samples.parquet"), "600"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert any("batch 2" in line for line in process.stdout), process.stderr.read()
    yield process
    process.kill()
    process.communicate()


def owner(path):
    return json.loads(path.with_name(f"{path.name}.lock").read_text())


@unix_only
def test_a_second_process_is_refused_until_the_first_is_killed(other, tmp_path, monkeypatch):
    monkeypatch.setattr(part_files, "PART_ROWS", 4)
    path, model, calls, columns = tmp_path / "samples.parquet", writer.model(), [], BoCPredictor._columns
    monkeypatch.setattr(BoCPredictor, "_columns", lambda *args: calls.append(1) or columns(*args))
    with pytest.raises(BlockingIOError, match=rf"nobody else writes .*, got process {other.pid} on .* since"):
        predictor(model).to_parquet(writer.batches(), path, resume=True)
    assert calls == []
    os.kill(other.pid, signal.SIGKILL)
    while lock._began(other.pid):  # nobody has waited for it: what is left of it is a zombie
        time.sleep(0.01)
    assert owner(path)["pid"] == other.pid
    predictor(model).to_parquet(writer.batches(), path, resume=True)
    assert 0 < len(calls) < 6, "some rows are its own, some were left by the other"
    x = torch.cat(writer.batches())
    assert_same(read(path), expected(writer.model()(x)))
    assert files(tmp_path) == ["samples.parquet"]


def leave(path, **changes):
    """The lock of an owner."""
    path.write_text(json.dumps({**lock._this_process(), "token": "theirs"} | changes))


def enter(path):
    with Lock(path, "writes") as mine:
        mine.check()
    assert not path.exists()


def test_this_process_is_refused_too(tmp_path):
    with Lock(tmp_path / "lock", "writes"), pytest.raises(BlockingIOError, match=f"got process {os.getpid()} on"):
        enter(tmp_path / "lock")
    enter(tmp_path / "lock")
    assert files(tmp_path) == []


def test_a_process_id_that_is_used_again(tmp_path):
    path = tmp_path / "lock"
    leave(path)
    with pytest.raises(BlockingIOError):
        enter(path)
    leave(path, began="12")
    enter(path)


def test_owners_elsewhere_are_alive_while_they_touch_the_lock(tmp_path):
    path = tmp_path / "lock"
    leave(path, machine="another", host="node7", pid=1)
    with pytest.raises(BlockingIOError, match="process 1 on node7"):
        enter(path)
    long_ago = time.time() - lock.DEAD_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    enter(path)


def test_the_owner_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.01)
    with Lock(tmp_path / "lock", "writes") as mine:
        os.utime(mine.path, (0, 0))
        until = time.monotonic() + 30
        while mine.path.stat().st_mtime < 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert mine.path.stat().st_mtime > 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": "x"}'])
def test_a_damaged_lock_is_refused_while_it_is_new(content, tmp_path):
    path = tmp_path / "lock"
    path.write_text(content)
    with pytest.raises(BlockingIOError, match=rf"If that process does not exist any more, delete {path}"):
        enter(path)
    os.utime(path, (0, 0))
    enter(path)


def test_without_proc_a_process_that_is_gone_is_known(tmp_path, monkeypatch):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    monkeypatch.setattr(lock, "_began", lock._began_elsewhere)
    leave(tmp_path / "lock", pid=gone.pid)
    enter(tmp_path / "lock")
    leave(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        enter(tmp_path / "lock")


def test_without_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("not supported")))
    with Lock(tmp_path / "lock", "writes"), pytest.raises(BlockingIOError):
        enter(tmp_path / "lock")
    assert files(tmp_path) == []


def test_one_of_many_takes_over(tmp_path):
    """Twenty at once find the lock of a dead owner; whoever enters is alone."""
    path, inside, together, entered = tmp_path / "lock", [], [], []
    leave(path, began="12")
    ready = threading.Barrier(20)

    def attempt(name):
        ready.wait()
        try:
            with Lock(path, "writes") as mine:
                inside.append(name)
                time.sleep(0.01)
                together.append(len(inside))
                mine.check()
                entered.append(name)
                inside.remove(name)
        except BlockingIOError:
            pass

    threads = [threading.Thread(target=attempt, args=(name,)) for name in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entered
    assert set(together) == {1}
    assert files(tmp_path) == []


def test_who_comes_late_leaves_the_lock_alone(tmp_path):
    """One process has found the owner dead and is slow; another takes over before it goes on."""
    path = tmp_path / "lock"
    leave(path, began="12")
    dead, late = json.loads(path.read_text()), Lock(path, "writes")
    with Lock(path, "writes") as first:
        assert not late._take_over(dead)
        first.check()
        assert files(tmp_path) == ["lock"]
    assert not late._take_over(dead)
    assert files(tmp_path) == []


def test_who_was_killed_while_taking_over_is_in_nobodys_way(tmp_path):
    path = tmp_path / "lock"
    leave(path, began="12")
    leave(tmp_path / "lock.theirs", began="12", token="claimant")
    enter(path)
    assert files(tmp_path) == []


@pytest.mark.parametrize("token", ["../../outside", "", None, 7, "a/b"])
def test_a_lock_with_a_strange_token(token, tmp_path):
    (tmp_path / "folder").mkdir()
    leave(tmp_path / "folder" / "lock", began="12", token=token)
    enter(tmp_path / "folder" / "lock")
    assert files(tmp_path) == ["folder"]


def test_who_lost_the_lock_writes_no_more(tmp_path, monkeypatch):
    """As after a night of sleep, when another host has taken over."""
    monkeypatch.setattr(part_files, "PART_ROWS", 4)
    path = tmp_path / "samples.parquet"

    def taken():
        for place, batch in enumerate(Loader().batches):
            if place == 2:
                leave(tmp_path / "samples.parquet.lock", pid=1, host="node7")
            yield batch

    with pytest.raises(BlockingIOError, match=r"still holds .*lock, got process 1 on node7; nothing more was written"):
        predictor().to_parquet(taken(), path, resume=True)
    assert not path.exists()
    assert [x for x in files(tmp_path / "samples.parquet.parts") if x != "run.json"] == [
        f"{row:015d}.parquet" for row in (0, 4)
    ]
    assert owner(path)["host"] == "node7", "their lock stays"


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_is_refused_also_without_resume(resume, tmp_path):
    """Both would write the file, and the last would replace the other's."""
    path = tmp_path / "samples.parquet"

    def batches():
        yield from writer.batches()[:2]
        with pytest.raises(BlockingIOError, match=rf"nobody else writes .*, got process {os.getpid()} on"):
            predictor().to_parquet(writer.batches(), path, resume=resume)
        yield from writer.batches()[2:]

    predictor(writer.model()).to_parquet(batches(), path)
    assert_same(read(path), expected(writer.model()(torch.cat(writer.batches()))))
    assert files(tmp_path) == ["samples.parquet"]


@pytest.mark.parametrize("error", [None, KeyError("ours")])
def test_a_run_that_has_lost_its_lock_writes_nothing(error, tmp_path):
    path = tmp_path / "samples.parquet"

    def batches():
        yield writer.batches()[0]
        leave(tmp_path / "samples.parquet.lock")
        if error is not None:
            raise error

    with pytest.raises(BlockingIOError if error is None else KeyError):
        predictor().to_parquet(batches(), path)
    assert files(tmp_path) == ["samples.parquet.lock"], "that of the other"


def test_the_lock_of_a_file_with_a_long_name(tmp_path):
    path = tmp_path / f"{'é' * 120}.parquet"
    predictor().to_parquet(writer.batches(), path)
    assert files(tmp_path) == [path.name]
