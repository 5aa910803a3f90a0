"""Several processes write one folder: each sample once, whoever dies, and however many there are the next time."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler, Subset

from tests.inference import sharded
from tests.inference.cases import Counting, files
from tests.inference.sharded import BATCH, SAMPLES, Images
from torch_boc import BoCPredictor
from torch_boc.inference import check_complete, manifest, shards
from torch_boc.inference.manifest import part_name

ROOT = Path(__file__).parents[2]


def read(folder):
    """The whole folder as one table, as pandas and others read it."""
    return parquet.read_table(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a single process writes."""
    path = tmp_path_factory.mktemp("whole") / "samples.parquet"
    return parquet.read_table(sharded.predictor(None).to_parquet(Images(), path))


def assert_whole(folder, whole):
    assert check_complete(folder) == SAMPLES
    table = read(folder)
    assert table.column_names == whole.column_names
    assert table["index"].to_pylist() == list(range(SAMPLES))
    assert table.equals(whole), "bit by bit"


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


def run(folder, ranks, world, data=None, **options):
    """Some ranks, one after the other, in this process."""
    for rank in ranks:
        given = Images() if data is None else data
        assert sharded.predictor((rank, world), **options).to_parquet(given, folder) == Path(folder)


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


class Other(Images):
    """One sample is another."""

    def __init__(self, place):
        super().__init__()
        self.x[place] += 1


@pytest.mark.parametrize("place", [0, 25, 1000])
def test_other_samples_are_refused(place, tmp_path):
    """Also by a rank that has no finished block of its own, if they are in the first block that is done."""
    folder = tmp_path / "out"
    run(folder, range(2), 2)
    before = files(folder)
    with pytest.raises(ValueError, match=r"expected the \d+ samples of .*part-.*got different inputs;.*delete"):
        run(folder, range(3), 3, Other(place))
    assert files(folder) == before


def test_a_rank_without_blocks_of_its_own_compares_one_of_the_others(tmp_path):
    folder = tmp_path / "out"
    run(folder, [0], 3)
    before = files(folder)
    with pytest.raises(ValueError, match="got different inputs"):
        run(folder, [1], 3, Other(0))
    assert files(folder) == before


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


@pytest.fixture
def complete(tmp_path):
    run(tmp_path / "out", range(2), 2)
    return tmp_path / "out"


def read_with_metadata(path):
    """A table whose schema carries the record of the run, which the writer keeps."""
    return parquet.read_table(path).replace_schema_metadata(parquet.read_metadata(path).metadata)


def damage(path):
    path.write_bytes(path.read_bytes()[:100])


def shorten(path):
    parquet.write_table(read_with_metadata(path).slice(1), path)


def rename(path):
    path.rename(path.with_name(part_name(range(0, 10))))


def foreign(path):
    parquet.write_table(arrow.table({"a": [1]}), path.with_name("other.parquet"))


def without_manifest(path):
    (path.parent.with_name("out.run") / "manifest.json").unlink()


def damaged_manifest(path):
    (path.parent.with_name("out.run") / "manifest.json").write_text("{")


DAMAGE = {
    "damaged part": (damage, "expected a whole Parquet file, got .*part-000000000000"),
    "part without some rows": (shorten, "expected 20 rows in .*part-.*, got 19; delete it"),
    "part of another size": (rename, "expected blocks of 20 samples in .*, got part-000000000000-000000000010"),
    "another table": (foreign, "expected parts of a run only in .*, got other.parquet; choose another folder"),
    "no manifest": (without_manifest, "expected .*manifest.json beside the parts in .*, got none"),
    "damaged manifest": (damaged_manifest, "expected the manifest of a run, got .*manifest.json, which is damaged"),
}


@pytest.mark.parametrize(("change", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_named(change, message, complete):
    change(complete / part_name(range(20)))
    with pytest.raises(ValueError, match=message):
        run(complete, [0], 2)


def test_check_complete_names_what_is_wrong(complete, tmp_path):
    first = complete / part_name(range(20))
    with pytest.raises(ValueError, match=r"expected parts of a run in .*nothing, got none"):
        check_complete(tmp_path / "nothing")
    table = first.read_bytes()
    shorten(first)
    with pytest.raises(ValueError, match=r"expected 20 rows in .*, got 19"):
        check_complete(complete)
    first.unlink()
    with pytest.raises(ValueError, match=r"expected all 1001 samples in .*, got none of 0 to 19; .*any number of proc"):
        check_complete(complete)
    (complete / part_name(range(20, 40))).unlink()
    (complete / part_name(range(1000, 1001))).unlink()
    with pytest.raises(ValueError, match="got none of 0 to 39, 1000 to 1000;"):
        check_complete(complete)
    first.write_bytes(table)
    sharded.predictor((0, 1), trials=7).to_parquet(Images(), tmp_path / "others")
    other = next((tmp_path / "others").iterdir())
    other.rename(complete / part_name(range(20, 40)))
    with pytest.raises(ValueError, match="expected parts of one run"):
        check_complete(complete)


def test_a_sample_that_is_there_twice(complete):
    part = complete / part_name(range(20))
    parquet.write_table(read_with_metadata(part).slice(0, 10), complete / part_name(range(10)))
    with pytest.raises(ValueError, match=r"expected each sample once in .*, got 0 to 9 twice"):
        check_complete(complete)


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


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError, match="expected a folder, got the file"):
        run(tmp_path / "out", [0], 1)


def test_a_collate_fn_that_leaves_samples_out(tmp_path):
    loader = DataLoader(Images(), 4, collate_fn=lambda x: torch.utils.data.default_collate(x[1:]))
    with pytest.raises(ValueError, match="expected 4 samples in a batch of the loader, got 3"):
        run(tmp_path / "out", [0], 1, loader)
    assert files(tmp_path / "out.run") == ["manifest.json"]


def test_pandas_reads_the_folder_while_it_is_written(complete, whole):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(complete)
    assert frame["path"].tolist() == whole["path"].to_pylist()
    assert {path.suffix for path in complete.iterdir()} == {".parquet"}, "polars refuses a folder with other files"


def test_polars_and_duckdb_read_the_folder(complete):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    assert polars.read_parquet(complete)["index"].sort().to_list() == list(range(SAMPLES))
    (rows,) = duckdb.sql(f"select count(distinct path) from '{complete}/*.parquet'").fetchall()
    assert rows == (SAMPLES,)
