"""A folder is continued by the same run only, and nothing is done twice."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.inference import sharded
from tests.inference.cases import files
from tests.inference.folders import assert_whole, read, run
from tests.inference.sharded import SAMPLES, Images
from torch_boc import BoCPredictor
from torch_boc.inference import check_complete, manifest
from torch_boc.inference.manifest import part_name


def test_a_rerun_does_only_what_is_missing(tmp_path, whole):
    folder = tmp_path / "out"
    run(folder, range(3), 3)
    gone = sorted(folder.iterdir())[7:9]
    for path in gone:
        path.unlink()
    calls, columns = [], BoCPredictor._columns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoCPredictor, "_columns", lambda self, batch: calls.append(batch.size) or columns(self, batch))
        run(folder, range(4), 4)
        assert sum(calls) == 40
        run(folder, range(4), 4)
        assert sum(calls) == 40
    assert_whole(folder, whole)


def test_another_batch_size_keeps_the_blocks(tmp_path, whole):
    folder = tmp_path / "out"
    run(folder, [0], 3)
    run(folder, [0, 1], 2, DataLoader(Images(), 7))
    assert check_complete(folder) == SAMPLES
    assert read(folder)["path"].to_pylist() == whole["path"].to_pylist()
    gaps = [torch.tensor(table["gap"].to_numpy()) for table in (read(folder), whole)]
    torch.testing.assert_close(*gaps, rtol=1e-4, atol=1e-6)


def test_two_processes_on_the_same_block_write_equal_parts(tmp_path, whole):
    """A job that was started twice: the second finds no part when it begins, and the first is done before it ends."""
    folder = tmp_path / "out"
    inner = sharded.predictor((0, 1))

    class Racing(Images):
        def __getitem__(self, i):
            if i == 500 and len(files(folder)) < 40:
                inner.to_parquet(Images(), folder)
            return super().__getitem__(i)

    run(folder, [0], 1, Racing())
    assert_whole(folder, whole)
    assert files(tmp_path / "out.run") == ["manifest.json"]


def test_an_error_leaves_the_finished_blocks(tmp_path, whole):
    class Broken(Images):
        def __getitem__(self, i):
            if i == 777:
                raise OSError("no such image")
            return super().__getitem__(i)

    folder = tmp_path / "out"
    with pytest.raises(OSError, match="no such image"):
        run(folder, [0], 2, Broken())
    found = len(files(folder))
    assert found > 10
    assert files(tmp_path / "out.run") == ["manifest.json"]
    run(folder, range(3), 3)
    assert_whole(folder, whole)


FIRST = r"'samples from all over the data set': .*must have the same order in every process.*delete"
LATER = r"expected the \d+ samples of .*part-.*got different inputs;.*delete"


class Other(Images):
    """One sample is another."""

    def __init__(self, place):
        super().__init__()
        self.x[place] += 1


@pytest.mark.parametrize(("place", "message"), [(0, FIRST), (25, LATER), (1000, FIRST)])
def test_other_samples_are_refused(place, message, tmp_path):
    """All processes compare the first and the last sample and some between them, and one process the others."""
    folder = tmp_path / "out"
    run(folder, range(2), 2)
    before = files(folder)
    with pytest.raises(ValueError, match=message):
        run(folder, range(3), 3, Other(place))
    assert files(folder) == before


class Turned(Images):
    """The same samples in another order, as lists of files have it that were not sorted."""

    def __getitem__(self, i):
        return super().__getitem__((i + 500) % SAMPLES)


@pytest.mark.parametrize("workers", [0, 1])
def test_ranks_with_another_order_are_refused_before_they_write(workers, tmp_path):
    folder = tmp_path / "out"
    run(folder, [0], 2)
    before = files(folder)
    with pytest.raises(ValueError, match=FIRST):
        run(folder, [1], 2, DataLoader(Turned(), 10, num_workers=workers))
    assert files(folder) == before
    run(folder, [1], 2, DataLoader(Images(), 7, num_workers=workers))
    assert check_complete(folder) == SAMPLES


def test_ranks_with_another_order_are_refused_before_a_block_is_done(tmp_path):
    folder = tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        run(folder, [0], 2, Failing())
    assert files(tmp_path) == ["out.run"]
    with pytest.raises(ValueError, match=FIRST):
        run(folder, [1], 2, Turned())
    assert files(tmp_path) == ["out.run"]


def filled_up(samples):
    """Samples of different lengths in one tensor."""
    rows = [x[: 1 + i % 3] for i, (x, _, _) in enumerate(samples)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), None, [name for _, _, name in samples]


class Widened(nn.Module):
    def forward(self, x):
        return nn.functional.pad(x, (0, 3 - x.shape[1]))


def test_ranks_may_have_other_batch_sizes(tmp_path):
    """Also if samples are filled up to the longest of their batch."""
    for rank, size in ((0, 2), (1, 3)):
        ours = BoCPredictor(Widened(), progress=False, id="path", shard=(rank, 2))
        ours.to_parquet(DataLoader(Images(), size, collate_fn=filled_up), tmp_path / "out")
    assert check_complete(tmp_path / "out") == SAMPLES


class Failing(Images):
    def __getitem__(self, i):
        return super().__getitem__(i if 1 / (i - 1) else 0)


def test_other_runs_are_refused(tmp_path):
    folder = tmp_path / "out"
    run(folder, [0], 2)
    for options, message in (({"trials": 7}, "'trials': 100.*'trials': 7"), ({"dtype": torch.bfloat16}, "bfloat16")):
        with pytest.raises(ValueError, match=rf"expected the run that writes .*{message}.*delete .*out and .*out.run"):
            run(folder, [1], 2, **options)
    with pytest.raises(ValueError, match=r"'samples': 1001.*'samples': 1000"):
        run(folder, [1], 2, Images(1000))
    ours = sharded.predictor((1, 2))
    with torch.no_grad():
        ours.model.weight[0, 0] += 1
    with pytest.raises(ValueError, match="'weights': "):
        ours.to_parquet(Images(), folder)


def test_a_run_id_saves_the_comparison(tmp_path):
    folder = tmp_path / "out"
    sharded.predictor((0, 2)).to_parquet(Images(), folder, run_id="v1")
    sharded.predictor((0, 2)).to_parquet(Images(wait_at=0), folder, run_id="v1")  # not read again
    with pytest.raises(ValueError, match=r"'run_id': 'v1'.*'run_id': 'v2'"):
        sharded.predictor((1, 2)).to_parquet(Images(), folder, run_id="v2")


def test_a_run_that_was_begun_anew_gets_no_rows_of_the_old_one(tmp_path):
    folder = tmp_path / "out"

    class Replaced(Images):
        def __getitem__(self, i):
            if i == 500:
                record = tmp_path / "out.run" / "manifest.json"
                record.write_text(json.dumps(json.loads(record.read_text()) | {"token": "theirs"}))
            return super().__getitem__(i)

    with pytest.raises(ValueError, match=r"expected .*manifest.json as it was, got another or none; nothing more"):
        run(folder, [0], 1, Replaced())
    assert part_name(range(500, 540)) not in files(folder)


def test_without_links(tmp_path, monkeypatch, whole):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("not supported")))
    run(tmp_path / "out", range(2), 2)
    assert_whole(tmp_path / "out", whole)
    assert files(tmp_path / "out.run") == ["manifest.json"]


def test_one_process_creates_the_manifest(tmp_path):
    path, found = tmp_path / "out.run" / "manifest.json", []
    for world, token in enumerate("abc"):
        made = manifest.Manifest({}, 10, world + 1, token)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "exists", lambda self: False)  # as if all had looked before any of them wrote
            manifest.create_manifest(path, made)
        found.append(manifest.read_manifest(path, ""))
    assert [(x.block, x.token) for x in found] == [(1, "a")] * 3
    assert files(path.parent) == ["manifest.json"]
