"""Files that appear whole or not at all."""

import os

import pytest

from tests.systems import unix_only
from torch_boc.data.atomic import check_file, printable, replacing


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


@pytest.mark.parametrize("name", ["a" * 251 + ".csv", "é" * 125 + ".csv", "\udcff" * 250 + ".csv"])
def test_the_longest_names_can_be_written(tmp_path, name):
    try:
        (tmp_path / name).touch()
    except OSError:
        pytest.skip("this file system knows shorter names only")
    with replacing(check_file(tmp_path / name)) as temporary:
        temporary.write_text("whole")
    assert (tmp_path / name).read_text() == "whole"


@unix_only
def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"expected the path of a file, got .*pipe, which is a device or a pipe"):
        check_file(tmp_path / "pipe")


def test_what_a_terminal_would_obey_is_written_out():
    assert printable("\x1b[31m\x9b\x07\n\t\udcff\ud800\u202e\u2028") == r"\x1b[31m\x9b\x07\n\t\udcff\ud800\u202e\u2028"
    for text in ("plain", "é q̄ 日本 \U0001f600 נ", "C:\\folder"):
        assert printable(text) == text
