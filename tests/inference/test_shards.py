"""Several processes write one folder: each sample once, whoever dies, and however many there are the next time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler, Subset

from tests.inference import sharded
from tests.inference.cases import Counting, files
from tests.inference.folders import assert_whole, read, run
from tests.inference.sharded import BATCH, SAMPLES, Images
from tests.systems import unix_only
from torch_boc import BoCPredictor
from torch_boc.inference import check_complete, manifest, shards
from torch_boc.inference.folder import PartWriter, ShardFolder
from torch_boc.inference.manifest import part_name
from torch_boc.inference.ranks import Rank
from torch_boc.inference.runs import Run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def launch():
    """Starts processes with the environment of torchrun; those that a test leaves are ended."""
    processes = []

    def start(folder, rank, world, *options):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        environment |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
        command = [sys.executable, "-m", "tests.inference.sharded", folder, *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(list(map(str, command)), cwd=ROOT, env=environment, **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def finish(processes):
    for process in processes:
        process.wait(timeout=300)
        assert process.returncode == 0, process.stderr.read()


@unix_only
def test_a_rank_is_killed_and_two_ranks_finish_what_three_began(tmp_path, whole, launch):
    """Blocks have 20 samples, and rank 1 has those from 20, 80, ... 500 on; it dies in the middle of that one."""
    folder = tmp_path / "out"
    processes = [launch(folder, 0, 3), launch(folder, 1, 3, 515), launch(folder, 2, 3)]
    assert "waiting" in processes[1].stdout.readline(), processes[1].stderr.read()
    os.kill(processes[1].pid, signal.SIGKILL)
    finish([processes[0], processes[2]])
    assert processes[1].wait() == -signal.SIGKILL
    left = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    first = set(range(0, SAMPLES, 20))
    assert set(left) == {part_name(range(x, min(x + 20, SAMPLES))) for x in first - set(range(500, SAMPLES, 60))}
    with pytest.raises(ValueError, match=r"expected all 1001 samples in .*, got none of 500 to 519, 560 to 579, 620"):
        check_complete(folder)
    torchrun(folder, 2)
    assert {name: (folder / name).stat().st_mtime_ns for name in left} == left, "what was done is not done again"
    assert len(set(read(folder)["path"].to_pylist())) == SAMPLES
    assert_whole(folder, whole)


def torchrun(folder, processes):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "tests.inference.sharded", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("world", [1, 2, 7, 150])
def test_any_number_of_ranks_in_any_order(world, tmp_path, whole):
    run(tmp_path / "out", reversed(range(world)), world)
    assert_whole(tmp_path / "out", whole)
    assert files(tmp_path) == ["out", "out.run"]
    assert files(tmp_path / "out.run") == ["manifest.json"]
    assert all(manifest.NAME.fullmatch(name) for name in files(tmp_path / "out"))


def test_more_ranks_than_samples(tmp_path):
    run(tmp_path / "out", range(5), 5, Images(3))
    assert check_complete(tmp_path / "out") == 3
    assert files(tmp_path / "out") == [part_name(range(3))]
    assert len(sharded.predictor((4, 5)).to_frame(Images(3))) == 0


def test_no_samples(tmp_path):
    run(tmp_path / "out", range(2), 2, Images(0))
    run(tmp_path / "out", range(2), 2, Images(0))
    assert check_complete(tmp_path / "out") == 0
    assert read(tmp_path / "out").column_names[:3] == ["index", "path", "prediction"]


@pytest.mark.parametrize(("size", "block"), [(1, 11), (10, 20), (64, 64), (5000, 5000)])
def test_blocks_are_whole_batches(size, block):
    assert shards.ShardedData(DataLoader(Images(), size), 64).block_size(3) == block


def test_large_data_sets_have_blocks_of_bounded_size():
    assert shards.ShardedData(range_of(10**9), 64).block_size(8) == 2**17
    assert len(shards.cut(10**9, 2**17)) == 7630


def range_of(samples):
    class Many(torch.utils.data.Dataset):
        def __len__(self):
            return samples

    return Many()


@pytest.mark.parametrize(("before", "now", "most"), [(4, 3, 9), (3, 4, 9), (8, 1, 13), (4, 2, 25), (4, 4, 25)])
def test_how_the_blocks_of_a_dead_rank_are_shared(before, now, most):
    """Evenly if the two numbers have no common divisor."""
    blocks = shards.cut(100, 1)
    missing = set(shards.share(blocks, Rank(0, before)))
    shared = [len(missing.intersection(shards.share(blocks, Rank(rank, now)))) for rank in range(now)]
    assert max(shared) == most
    assert sum(shared) == len(missing)


def test_predict_gives_each_sample_to_one_rank():
    parts = [list(sharded.predictor((rank, 3)).predict(Images())) for rank in range(3)]
    indices = [[int(i) for table in tables for i in table["index"]] for tables in parts]
    assert sorted(i for part in indices for i in part) == list(range(SAMPLES))
    assert max(map(len, indices)) - min(map(len, indices)) <= 20
    frame = sharded.predictor((1, 3)).to_frame(Images())
    assert frame["index"].tolist() == indices[1]


LOADERS = {
    "loader": lambda: DataLoader(Images(), BATCH),
    "workers": lambda: DataLoader(Images(), BATCH, num_workers=2, prefetch_factor=1, persistent_workers=True),
    "distributed": lambda: DataLoader(Images(), BATCH, sampler=DistributedSampler(Images(), 4, 1)),
}


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS.keys())
def test_loaders_over_a_data_set(loader, tmp_path, whole):
    run(tmp_path / "out", range(3), 3, loader())
    assert_whole(tmp_path / "out", whole)


def test_a_subset_and_a_tensor(tmp_path):
    run(tmp_path / "subset", range(2), 2, Subset(Images(), range(100, 200)))
    assert read(tmp_path / "subset")["path"].to_pylist() == [f"image {i}" for i in range(100, 200)]
    for rank in range(2):
        BoCPredictor(sharded.model(), progress=False, shard=(rank, 2)).to_parquet(Images().x, tmp_path / "tensor")
    assert read(tmp_path / "tensor")["index"].to_pylist() == list(range(SAMPLES))


def test_a_collate_fn_is_kept(tmp_path):
    def collate(samples):
        return {"x": torch.stack([x for x, _, _ in samples]), "name": [name for _, _, name in samples]}

    class Counts(Counting):
        pass

    ours = BoCPredictor(Counts(), progress=False, shard=(0, 1), id="name")
    ours.to_parquet(DataLoader(Images(30), 7, collate_fn=collate), tmp_path / "out")
    assert ours.model.calls == [7, 7, 7, 7, 2]
    assert read(tmp_path / "out")["name"].to_pylist() == [f"image {i}" for i in range(30)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.zeros(3)])


BAD = {
    "a list": (lambda: [torch.zeros(2, 3)], TypeError, "map-style data set, .*share it by index, got list"),
    "iterable data set": (Stream, TypeError, "got the iterable data set Stream, which has no indices.*without shard="),
    "shuffled": (
        lambda: DataLoader(Images(), 4, shuffle=True),
        ValueError,
        "got a loader with RandomSampler; give the",
    ),
    "drop_last": (lambda: DataLoader(Images(), 4, drop_last=True), ValueError, "drop_last=True, which would leave"),
    "no batches": (lambda: DataLoader(Images(), batch_size=None), ValueError, "batch_size=None"),
    "batch sampler": (
        lambda: DataLoader(Images(), batch_sampler=BatchSampler(SequentialSampler(Images()), 4, False)),
        ValueError,
        "a batch_sampler of its own",
    ),
    "sampler of others": (
        lambda: DataLoader(Images(), 4, sampler=SequentialSampler(range(5))),
        ValueError,
        "a sampler of 5 samples for a data set of 1001",
    ),
    "distributed that drops": (
        lambda: DataLoader(Images(), 4, sampler=DistributedSampler(Images(), 2, 0, drop_last=True)),
        ValueError,
        "drop_last=True",
    ),
    "own iteration": (lambda: Doubling(Images(), 4), TypeError, "got a Doubling with an __iter__ of its own"),
}


class Doubling(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch
            yield batch


@pytest.mark.parametrize(("loader", "kind", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_shared(loader, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        sharded.predictor((0, 2)).to_parquet(loader(), tmp_path / "out")
    with pytest.raises(kind, match=message):
        sharded.predictor((0, 2)).predict(loader())
    assert files(tmp_path) == []


def test_the_folder_in_which_the_program_runs(tmp_path, monkeypatch, whole):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    run(".", range(2), 2)
    assert_whole(tmp_path / "out", whole)
    assert files(tmp_path) == ["out", "out.run"]


class Unrelated:
    """A data set that says so to nobody."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return torch.zeros(3)


@pytest.mark.parametrize("shard", [None, (0, 2)])
def test_a_data_set_that_does_not_inherit(shard):
    with pytest.raises(TypeError, match=r"got Unrelated; let it inherit from torch\.utils\.data\.Dataset"):
        sharded.predictor(shard).predict(Unrelated())


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError, match="expected a folder, got the file"):
        run(tmp_path / "out", [0], 1)


def test_a_collate_fn_that_leaves_samples_out(tmp_path):
    loader = DataLoader(Images(), 4, collate_fn=lambda x: torch.utils.data.default_collate(x[1:]))
    with pytest.raises(ValueError, match="expected 16 samples in a batch of the loader, got 15"):
        run(tmp_path / "out", [0], 1, loader)
    assert files(tmp_path) == []
    with pytest.raises(ValueError, match="expected 4 samples in a batch of the loader, got 3"):
        sharded.predictor((0, 1)).to_parquet(loader, tmp_path / "out", run_id="mine")
    assert files(tmp_path / "out.run") == ["manifest.json"]


class Ending(Images):
    def __getitem__(self, i):
        if i == 35:
            raise StopIteration
        return super().__getitem__(i)


def test_a_stop_iteration_in_the_data_set_is_an_error(tmp_path):
    """The rows before were written, and the open part was thrown away without a word."""
    with pytest.raises(ValueError, match="a StopIteration inside of the data set ends a loader early"):
        run(tmp_path / "out", [1], 2, Ending(100))
    assert files(tmp_path / "out") == [part_name(range(10, 20))]
    assert files(tmp_path / "out.run") == ["manifest.json"]


def test_a_writer_without_all_of_its_rows_is_an_error(tmp_path):
    folder = ShardFolder(tmp_path / "out", Run({}, tracked=False), 8, 4)
    for blocks, sizes in ((folder.blocks, [4]), (folder.blocks, [4, 3]), (folder.blocks[1:], [])):
        with pytest.raises(ValueError, match="expected the rows of all blocks"):
            write_rows(folder, blocks, sizes)
    assert files(folder.path) == [part_name(range(4))]
    assert files(folder.scratch) == ["manifest.json"]


def write_rows(folder, blocks, sizes):
    with PartWriter(folder, Run({}, tracked=False), blocks) as file:
        for size in sizes:
            file.write({"index": torch.arange(size)})
