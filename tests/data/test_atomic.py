"""Files that appear whole or not at all."""

import errno
import os
import subprocess
import sys

import pytest

from tests.systems import unix_only
from torch_boc.data import atomic
from torch_boc.data.atomic import check_file, replacing, write
from torch_boc.data.errors import printable


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not list(tmp_path.iterdir())
    with replacing(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert [x.read_text() for x in tmp_path.iterdir()] == ["whole"]


@unix_only
def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"expected the path of a file, got .*pipe, which is a device or a pipe"):
        check_file(tmp_path / "pipe")


def test_what_a_terminal_would_obey_is_written_out():
    assert printable("\x1b[31m\x9b\x07\n\t\udcff\ud800\u202e\u2028") == r"\x1b[31m\x9b\x07\n\t\udcff\ud800\u202e\u2028"
    for text in ("plain", "é q̄ 日本 \U0001f600 נ", "C:\\folder"):
        assert printable(text) == text


# Writes the same file many times, as each process of two launches does.
WRITER = """
import sys
import torch
from torch_boc.data.parquet import ParquetFile
for i in range(40):
    with ParquetFile(sys.argv[1]) as file:
        file.write({"index": torch.arange(i)})
"""


@unix_only
def test_processes_that_write_the_same_file_do_not_disturb_each_other(tmp_path):
    """A new file was deleted as abandoned between its opening and its lock."""
    command = [sys.executable, "-c", WRITER, tmp_path / "a.parquet"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[1] for process in running] == [b""] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@unix_only
def test_a_file_that_is_deleted_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock, deleted = atomic.fcntl.flock, []

    def late(file, how):
        if not deleted:
            deleted.extend(tmp_path.iterdir())
            deleted[0].unlink()
        lock(file, how)

    monkeypatch.setattr(atomic.fcntl, "flock", late)
    assert write(tmp_path / "file", b"whole").read_bytes() == b"whole"


@unix_only
def test_what_killed_processes_have_left_is_deleted(tmp_path):
    """Of the same path, if nobody writes it; other files stay."""
    stale = [tmp_path / f".a.csv.{pid}-01234567.tmp" for pid in (1, 2)]
    kept = [tmp_path / name for name in (".a.csv.tmp", ".b.csv.1-01234567.tmp", ".a.csv.x-01234567.tmp", "a.csv.part")]
    for path in (*stale, *kept):
        path.touch()
    with stale[1].open() as held:
        assert atomic.lock(held, stale[1])
        write(tmp_path / "a.csv", b"")
    assert {*tmp_path.iterdir()} == {tmp_path / "a.csv", stale[1], *kept}


@unix_only
def test_file_and_folder_reach_the_disk_before_and_after_the_rename(tmp_path, monkeypatch):
    log, sync, rename = [], os.fsync, atomic.Path.replace
    kinds = {0o040000: "folder", 0o100000: "file"}
    monkeypatch.setattr(os, "fsync", lambda x: log.append(kinds[os.fstat(x).st_mode & 0o170000]) or sync(x))
    monkeypatch.setattr(atomic.Path, "replace", lambda *x: log.append("rename") or rename(*x))
    write(tmp_path / "file", b"whole")
    assert log == ["file", "rename", "folder"]
    monkeypatch.setattr(os, "fsync", lambda x: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "file", b"other")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"whole")]
