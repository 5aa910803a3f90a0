"""Files that appear whole or not at all."""

import os

import pytest

from tests.systems import unix_only
from torch_boc.data.atomic import check_file, check_folder, printable, replacing


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
@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("folder", IsADirectoryError, "expected the path of a file, got the folder .*folder; add a file name"),
        ("file/a.csv", NotADirectoryError, "got .*file, which is a file"),
        ("pipe", ValueError, "expected the path of a file, got .*pipe, which is a device or a pipe"),
    ],
)
def test_paths_that_cannot_be_files(tmp_path, path, error, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error, match=message):
        check_file(tmp_path / path)


def test_folders_with_the_files_that_go_there(tmp_path):
    (tmp_path / "out" / "a.png").mkdir(parents=True)
    (tmp_path / "file").touch()
    assert check_folder(tmp_path / "new" / "one", ["a.png"]) == tmp_path / "new" / "one"
    assert check_folder(tmp_path / "out", ["b.png"]) == tmp_path / "out"
    assert not (tmp_path / "new").exists()
    with pytest.raises(IsADirectoryError, match=r"got the folder .*a\.png"):
        check_folder(tmp_path / "out", ["b.png", "a.png"])
    for path in ("file", "file/below"):
        with pytest.raises(NotADirectoryError, match="file"):
            check_folder(tmp_path / path)


def test_what_a_terminal_would_obey_is_written_out():
    assert printable("\x1b[31m\x9b\x07\n\t\udcff\ud800\u202e\u2028") == r"\x1b[31m\x9b\x07\n\t\udcff\ud800\u202e\u2028"
    for text in ("plain", "é q̄ 日本 \U0001f600 נ", "C:\\folder"):
        assert printable(text) == text
