"""Pieces on disk: only what is missing is computed, and what is damaged is computed again."""

import pytest
import torch

from torch_boc.data.atomic import default_cache
from torch_boc.experiments.cache import PieceCache, digest_files


def test_interruption_and_resumption(tmp_path):
    pieces, asked, told = PieceCache(tmp_path, piece=10), [], []

    def compute(start, stop):
        asked.append((start, stop))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return torch.arange(start, stop).double()

    with pytest.raises(KeyboardInterrupt):
        pieces("key", 25, compute, told.append)
    assert told == []
    assert torch.equal(pieces("key", 25, compute, told.append), torch.arange(25.0).double())
    assert asked == [(0, 10), (10, 20), (20, 25), (20, 25)]
    assert told == [10, 10]


def test_more_rows_go_on_where_fewer_ended(tmp_path):
    pieces, asked = PieceCache(tmp_path, piece=10), []

    def compute(start, stop):
        asked.append(start)
        return torch.arange(start, stop)

    assert len(pieces("key", 20, compute)) == 20
    assert torch.equal(pieces("key", 40, compute), torch.arange(40))
    assert asked == [0, 10, 20, 30]


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_damaged_pieces_are_computed_again(tmp_path, content):
    pieces = PieceCache(tmp_path, piece=10)
    pieces("key", 10, lambda start, stop: torch.zeros(10))
    (path,) = tmp_path.rglob("*.npy")
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert torch.equal(pieces("key", 10, lambda start, stop: torch.ones(10)), torch.ones(10))


def test_keys_keep_apart(tmp_path):
    pieces = PieceCache(tmp_path)
    assert [float(pieces(key, 1, lambda *rows, x=x: torch.tensor([x]))) for key, x in (("a", 1.0), ("b", 2.0))] == [
        1,
        2,
    ]


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "torch_boc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "torch_boc"


def test_files_are_told_apart_by_name_and_content(tmp_path):
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(content)
    a, b, c = (tmp_path / name for name in "abc")
    assert len({digest_files(paths) for paths in ([a], [b], [c], [a, b])}) == 4
    assert digest_files([a, b]) == digest_files([b, a])
