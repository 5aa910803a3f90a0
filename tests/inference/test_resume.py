"""Tables appear whole; an interrupted run goes on where it stopped, and never with rows of another run."""

import os
import signal
import subprocess
import sys
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset

from tests.inference import sharded
from tests.inference.cases import Counting, Loader, assert_same, data, expected, files, predictor, read
from tests.inference.sharded import BATCH, SAMPLES, Images
from tests.systems import unix_only
from torch_boc import ConformalTest
from torch_boc.data import read_logits
from torch_boc.evaluation.inputs import single_set
from torch_boc.functional.table_columns import COLUMNS
from torch_boc.inference import batches, check_complete, resume
from torch_boc.inference.indexing import SharedData
from torch_boc.inference.resume import checksum, part_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """A part of a single file is a batch of `Loader`."""
    monkeypatch.setattr(resume, "PART_ROWS", 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bool, torch.complex64], ids=str)
def test_any_byte_changes_the_checksum(dtype):
    x = torch.randint(2, (9,), generator=torch.Generator().manual_seed(0)).to(dtype)
    others = [[("w", x)], [("v", x)], [("w", x[None])], [("w", x[1:])], [("w", x), ("w", x)], []]
    others += [[("w", factor * torch.eye(3).to_sparse())] for factor in (1, 2)]
    for place in range(x.numel() * x.itemsize):
        others.append([("w", x.clone())])
        others[-1][0][1].view(torch.uint8)[place] ^= 1
    assert len({*map(checksum, others)}) == len(others)
    assert checksum([("w", torch.cat([x[:1], x])[1:])]) == checksum(others[0])


def stop(path, healthy=3, model=None, **options):
    """A run that is interrupted after some batches."""
    with pytest.raises(KeyboardInterrupt):
        predictor(model, **options).to_parquet(Loader(healthy), path, resume=True)


def assert_all_samples(path, model):
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


@pytest.mark.parametrize("resume", [False, True])
def test_the_file_holds_every_sample(tmp_path, resume):
    model, path = Counting(), tmp_path / "deep" / "samples.parquet"
    assert predictor(model).to_parquet(Loader(), str(path), resume=resume) == path
    assert_all_samples(path, model)
    assert files(path.parent) == ["samples.parquet"]
    none = parquet.read_table(predictor(id="path").to_parquet([], tmp_path / "none.parquet", resume=resume))
    assert (none.num_rows, none.column_names) == (0, ["index", "path", *COLUMNS])
    assert str(none.schema.field("path").type) == "string"


def test_a_file_of_no_run_is_replaced_and_never_resumed(tmp_path):
    path = tmp_path / "samples.parquet"
    path.write_text("from before")
    with pytest.raises(ValueError, match=r"expected a whole Parquet file, got .*samples.parquet .*leave resume=True"):
        predictor().to_parquet(Loader(), path, resume=True)
    parquet.write_table(arrow.table({"index": [1, 2]}), path)
    with pytest.raises(ValueError, match=r"expected a file that says which run wrote it, got .*leave resume=True out"):
        predictor().to_parquet(Loader(), path, resume=True)
    predictor().to_parquet(Loader(), path)
    assert len(read(path)["index"]) == 23


def test_a_resumed_run_gives_the_same_bytes_and_repeats_nothing(tmp_path):
    whole, path = tmp_path / "whole.parquet", tmp_path / "samples.parquet"
    predictor().to_parquet(Loader(), whole)
    for healthy, calls in ((3, [4, 4, 4]), (3, []), (4, [4])):
        model = Counting()
        stop(path, healthy, model)
        assert files(tmp_path) == ["samples.parquet.run", "whole.parquet"]
        assert model.calls == calls
    model = Counting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == [4, 3]
    predictor(model).to_parquet(Loader(healthy=0), path, resume=True)  # finished: the loader is not even asked
    assert path.read_bytes() == whole.read_bytes()
    assert files(tmp_path) == ["samples.parquet", "whole.parquet"]


def test_parts_are_closed_as_rows_and_time_go_by(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "PART_ROWS", 8)
    path, folder = tmp_path / "samples.parquet", tmp_path / "samples.parquet.run"
    names = [part_name(range(*x)) for x in ((0, 8), (8, 16), (16, 20))]
    for seconds, count in ((60.0, 2), (0.0, 3)):
        monkeypatch.setattr(resume, "PART_SECONDS", seconds)
        monkeypatch.setattr(batches, "GROUP_SECONDS", seconds)
        stop(path, healthy=5)
        assert files(folder) == ["manifest.json", *names[:count]], "the open part is lost"
    model = Counting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == [3]
    assert_all_samples(path, model)


def test_resuming_with_another_batch_size_and_a_shorter_loader(tmp_path):
    path = tmp_path / "samples.parquet"
    with pytest.raises(KeyboardInterrupt):  # an iterator, whose number of batches is not known
        predictor().to_parquet(iter(Loader(healthy=3)), path, resume=True)
    with pytest.raises(ValueError, match="expected a loader with at least the 12 samples that are already done, got 8"):
        predictor().to_parquet((x for x in Loader().batches[:2]), path, resume=True)
    model = Counting()
    predictor(model).to_parquet((x for x in Loader(size=5).batches), path, resume=True)
    assert model.calls == [3, 5, 3]
    assert_all_samples(path, model)


def shifted(weight=0.0, buffer=0.0):
    model = Counting()
    model.layer.weight.data[-1, -1] += weight
    model.register_buffer("shift", torch.tensor(buffer), persistent=False)
    return model


def calibrated(seed=1):
    state = ConformalTest("energy").calibrate(torch.randn(50, 5, generator=torch.Generator().manual_seed(seed)))
    again = ConformalTest("energy")  # as in another process
    again.load_state_dict(state.state_dict())
    return again


OTHERS = {
    "weight": (lambda: shifted(weight=1.0), {}, "checksum of the parameters='.*, got .*checksum"),
    "buffer": (lambda: shifted(buffer=1.0), {}, "checksum of the parameters='"),
    "trials": (shifted, {"trials": 50}, "with trials=100, got one with trials=50"),
    "dtype": (shifted, {"dtype": torch.bfloat16}, "dtype='None'.*bfloat16"),
    "id": (shifted, {"id": "path"}, r"columns=\['index', 'pred.*columns=\['index', 'path'"),
    "test": (shifted, {"conformal_test": calibrated(2)}, "conformal_test="),
    "alpha": (shifted, {"alpha": 0.3}, "alpha=0.2, got one with alpha=0.3"),
    "names": (shifted, {"class_names": list("abxde")}, "class_names=.*'c'.*class_names=.*'x'"),
    "logits": (shifted, {"logits": partial(torch.mul, other=2)}, "logits=None, got one with logits='partial'"),
}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(("model", "options", "message"), OTHERS.values(), ids=OTHERS.keys())
def test_another_run_is_refused_by_what_differs(finished, model, options, message, tmp_path):
    path = tmp_path / "samples.parquet"
    first = {"conformal_test": calibrated(), "alpha": 0.2, "class_names": list("abcde")}
    stop(path, model=shifted(), **first)
    if finished:
        predictor(shifted(), **first).to_parquet(Loader(), path, resume=True)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=f"expected the run that wrote .*samples.parquet, .*{message}.*delete"):
        predictor(model(), **first | options).to_parquet(Loader(), path, resume=True)
    with pytest.raises(ValueError, match="batches=6, got one with batches=5"):
        predictor(shifted(), **first).to_parquet(Loader(samples=19), path, resume=True)
    assert files(tmp_path) == before
    again = shifted()
    predictor(again, **first).to_parquet(Loader(), path, resume=True)
    assert again.calls == ([] if finished else [4, 4, 3])


def test_a_run_id_replaces_the_checksum(tmp_path):
    path, model = tmp_path / "samples.parquet", shifted(weight=1.0)
    with pytest.raises(KeyboardInterrupt):
        predictor(shifted()).to_parquet(Loader(healthy=3), path, resume=True, run_id="v1")
    predictor(model).to_parquet(Loader(), path, resume=True, run_id="v1")
    assert model.calls == [4, 4, 3]
    for run_id, message in (("v2", "run_id='v1', got one with run_id='v2'"), (None, "run_id='v1'.*run_id=None")):
        with pytest.raises(ValueError, match=message):
            predictor(model).to_parquet(Loader(), path, resume=True, run_id=run_id)


def test_a_run_that_was_killed_after_its_file_was_whole(tmp_path, monkeypatch):
    """Its parts stayed for ever."""
    path = tmp_path / "samples.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(resume.shutil, "rmtree", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            predictor().to_parquet(Loader(), path, resume=True)
    assert files(tmp_path) == ["samples.parquet", "samples.parquet.run"]
    predictor().to_parquet(Loader(), path, resume=True)
    assert files(tmp_path) == ["samples.parquet"]


@unix_only
def test_a_path_that_is_not_utf8(tmp_path):
    """Arrow opens no such path by itself."""
    folder, model = tmp_path / os.fsdecode(b"caf\xe9"), Counting()
    path = folder / os.fsdecode(b"r\xe9sum\xe9.parquet")
    stop(path, model=model)
    predictor(model).to_parquet(Loader(), path, resume=True)
    predictor(model, shard=(0, 1)).to_parquet(data()[0], folder / "parts")
    assert check_complete(folder / "parts") == len(data()[0])
    for source in (path, folder / "parts"):
        with warnings.catch_warnings(action="error"):
            assert len(read_logits(source)) == len(data()[0])
    assert files(folder) == ["parts", "parts.run", path.name]


URI = "a path of this machine, got the URI .*:/.*; wr"
PATHS = {
    "run": ({"resume": True}, "taken.parquet", NotADirectoryError, "taken"),
    "CSV": ({"resume": True}, "rows.csv", ValueError, "ends in .parquet, got rows.csv"),
    "URI": ({}, Path("gs://bucket/rows"), ValueError, URI),
    "URI of a folder": ({"shard": (0, 1)}, "s3://bucket/rows", ValueError, URI),
}


@pytest.mark.parametrize(("options", "path", "error", "message"), PATHS.values(), ids=PATHS.keys())
def test_a_path_that_cannot_be_a_file_is_refused_before_the_work(options, path, error, message, tmp_path, monkeypatch):
    """A URI was a folder of this machine, called `s3:`."""
    monkeypatch.chdir(tmp_path)
    Path("taken.parquet.run").touch()
    before, model, shard = files(tmp_path), Counting(), options.pop("shard", None)
    with pytest.raises(error, match=message):
        predictor(model, shard=shard).to_parquet(data()[0], path, **options)
    assert model.calls == []
    assert files(tmp_path) == before


def flip(path):
    """A bit of a page, which the footer does not tell."""
    group = parquet.read_metadata(path).row_group(0)
    content, column = bytearray(path.read_bytes()), group.column(group.num_columns - 1)
    start = min(x for x in (column.dictionary_page_offset, column.data_page_offset) if x is not None)
    content[start + column.total_compressed_size - 1] ^= 1
    path.write_bytes(bytes(content))


def shorten(path):
    """Fewer rows than the name says."""
    metadata = {"torch_boc": parquet.read_metadata(path).metadata[b"torch_boc"]}
    parquet.write_table(parquet.read_table(path).slice(0, 1).replace_schema_metadata(metadata), path)


PART = part_name(range(4, 8))
DAMAGES = {
    "empty manifest": ("manifest.json", lambda path: path.write_bytes(b""), r"got .*manifest.json, damaged. To start"),
    "no manifest": ("manifest.json", Path.unlink, r"expected .*manifest.json next to the parts in .*, got none"),
    "no part": (PART, Path.unlink, r"expected a part from row 4 on in .*, got range\(8, 12\)"),
    "bit": (PART, flip, rf"a whole Parquet file, got .*{PART} .*To start over, delete .*parquet.run"),
    "fewer rows": (PART, shorten, rf"expected 4 rows in .*{PART}, got 1"),
}


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_parts_are_named_with_a_remedy(name, damage, message, tmp_path):
    path = tmp_path / "samples.parquet"
    stop(path)
    damage(tmp_path / "samples.parquet.run" / name)
    with pytest.raises(ValueError, match=message):
        predictor().to_parquet(Loader(), path, resume=True)
    assert files(tmp_path) == ["samples.parquet.run"], "no lock stays"


@unix_only
@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_is_refused(resume, tmp_path):
    """Both would write the file, and the last would replace the other's."""
    path, model = tmp_path / "samples.parquet", Counting()

    def batches():
        yield from Loader().batches[:2]
        with pytest.raises(BlockingIOError, match=r"nobody else writes .*samples.parquet, got another run"):
            predictor().to_parquet(Loader(), path, resume=resume)
        yield from Loader().batches[2:]

    predictor(model).to_parquet(batches(), path)
    assert_all_samples(path, model)
    assert files(tmp_path) == ["samples.parquet"]


@unix_only
@pytest.mark.parametrize("error", [None, OSError("no locks here")], ids=["deleted", "no locks"])
def test_a_lock_that_its_holder_has_deleted_and_a_file_system_without_locks(error, tmp_path, monkeypatch):
    """A second process opens the file, the first deletes it, and a third would make a new one."""
    path = tmp_path / "samples.parquet"

    def flock(*_):
        if error is not None:
            raise error
        (tmp_path / "samples.parquet.lock").unlink()

    monkeypatch.setattr("fcntl.flock", flock)
    refused = pytest.raises(BlockingIOError, match="nobody else") if error is None else nullcontext()
    with refused, resume.exclusive_lock(path):
        pass


def run(folder, ranks, world, data=None, **options):
    """Some ranks, one after the other, in this process."""
    for rank in ranks:
        given = Images() if data is None else data
        assert sharded.predictor((rank, world), **options).to_parquet(given, folder) == Path(folder)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """What a single process writes."""
    path = tmp_path_factory.mktemp("whole") / "samples.parquet"
    return parquet.read_table(sharded.predictor(None).to_parquet(Images(), path))


def assert_whole(folder, whole):
    assert check_complete(folder) == SAMPLES
    assert parquet.read_table(folder).equals(whole), "bit by bit"
    assert files(folder.parent) == ["out", "out.run"]
    assert files(folder.parent / "out.run") == ["manifest.json"]


@pytest.fixture
def complete(tmp_path):
    run(tmp_path / "out", range(2), 2)
    return tmp_path / "out"


def kill(path, rank, world, *options):
    """What a process leaves that is killed when it comes to sample 515."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    command = [sys.executable, "-m", "tests.inference.sharded", str(path), "515", *options]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "waiting" in process.stdout.readline()
            if "single" in options:
                with pytest.raises(BlockingIOError, match="nobody else"):
                    sharded.predictor(None).to_parquet(Images(), path, resume=True)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL


@unix_only
def test_a_rank_is_killed_and_two_ranks_finish_what_three_began(tmp_path, whole):
    """Blocks have 20 samples, and rank 1 has those from 20, 80, ... 500 on; it dies in the middle of that one."""
    folder = tmp_path / "out"
    kill(folder, 1, 3)
    assert files(folder) == [part_name(range(x, x + 20)) for x in range(20, 500, 60)]
    assert len(files(tmp_path / "out.run")) == 2, "the manifest, and a temporary file"
    run(folder, [0, 2], 3)
    with pytest.raises(ValueError, match=r"expected all 1001 samples in .*, got none of 500 to 519, 560 to 579, 620"):
        check_complete(folder)
    left = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    run(folder, range(2), 2)
    assert {name: (folder / name).stat().st_mtime_ns for name in left} == left, "what was done is not done again"
    assert_whole(folder, whole)


@unix_only
def test_a_process_is_killed_and_its_single_file_is_completed(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(resume, "PART_ROWS", 100)
    path, folder = tmp_path / "samples.parquet", tmp_path / "samples.parquet.run"
    kill(path, 0, 1, "single")
    assert files(tmp_path) == ["samples.parquet.lock", "samples.parquet.run"]
    assert [name[:5] for name in files(folder)] == [".part", "manif", *["part-"] * 5], "the first was not finished"
    with pytest.raises(ZeroDivisionError):
        sharded.predictor(None).to_parquet(Images(at=915, action=lambda: 1 / 0), path, resume=True)
    assert not any(name.startswith(".") for name in files(folder))
    sharded.predictor(None).to_parquet(Images(), path, resume=True)
    assert parquet.read_table(path).equals(whole)
    assert files(tmp_path) == ["samples.parquet"]


LOADERS = {
    "dataset": (7, Images),
    "workers": (2, lambda: DataLoader(Images(), BATCH, num_workers=1, prefetch_factor=1)),
    "distributed": (150, lambda: DataLoader(Images(), BATCH, sampler=DistributedSampler(Images(), 4, 1))),
}


@pytest.mark.parametrize(("world", "loader"), LOADERS.values(), ids=LOADERS.keys())
def test_any_number_of_ranks_in_any_order(world, loader, tmp_path, whole):
    run(tmp_path / "out", reversed(range(world)), world, loader())
    assert_whole(tmp_path / "out", whole)


def test_fewer_samples_than_ranks_and_parts_of_data_sets(tmp_path, monkeypatch):
    for samples in (3, 0):
        for _ in range(2):
            run(tmp_path / str(samples), range(5), 5, Images(samples))
        assert check_complete(tmp_path / str(samples)) == samples
        assert files(tmp_path / str(samples)) == [part_name(range(samples))]
    (tmp_path / "subset").mkdir()
    monkeypatch.chdir(tmp_path / "subset")
    run(".", range(2), 2, Subset(Images(), range(100, 200)))
    assert parquet.read_table(tmp_path / "subset")["path"].to_pylist() == [f"image {i}" for i in range(100, 200)]


def test_predict_gives_each_sample_to_one_rank():
    many = type("Many", (torch.utils.data.Dataset,), {"__len__": lambda self: 10**9})()
    assert SharedData(many, 64).block_size(8) == 2**17
    shares = [sharded.predictor((rank, 3)).to_frame(Images())["index"].tolist() for rank in range(3)]
    assert sorted(sum(shares[1:], shares[0])) == list(range(SAMPLES))
    assert max(map(len, shares)) - min(map(len, shares)) <= 20


def test_other_runs_and_other_batch_sizes(tmp_path):
    folder = tmp_path / "out"
    run(folder, [0], 2)
    for options, given, message in (
        ({"trials": 7}, None, "trials=100, got one with trials=7"),
        ({}, Images(1000), "samples=1001, got one with samples=1000"),
    ):
        with pytest.raises(ValueError, match=rf"expected the run that wrote .*{message}.*delete .*out and .*out.run"):
            run(folder, [1], 2, given, **options)
    run(folder, range(3), 3, DataLoader(Images(), 7))
    assert check_complete(folder) == SAMPLES


def test_two_processes_on_the_same_block_write_equal_parts(tmp_path, whole):
    """A job that was started twice: the second finds no part when it begins, and the first is done before it ends."""
    folder = tmp_path / "out"
    run(folder, [0], 1, Images(at=500, action=lambda: run(folder, [0], 1)))
    assert_whole(folder, whole)


def test_an_error_leaves_the_finished_blocks(tmp_path, whole):
    folder = tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        run(folder, [0], 1, Images(action=lambda: 1 / 0))
    assert not files(folder) or max(files(folder)) < part_name(range(35, 36))
    assert files(tmp_path / "out.run") == ["manifest.json"]
    run(folder, range(3), 3)
    assert_whole(folder, whole)


def test_check_complete_names_what_is_wrong(complete, tmp_path):
    first, second = (complete / part_name(range(x, x + 20)) for x in (0, 20))
    with pytest.raises(ValueError, match=r"expected parts of a run in .*nothing, got none"):
        check_complete(tmp_path / "nothing")
    content = first.read_bytes()
    flip(first)
    for read_all in (check_complete, lambda folder: single_set(folder, "id")):  # the second as a report reads it
        with pytest.raises(ValueError, match=r"part-000000000000.*CRC checksum"):
            read_all(complete)
    with pytest.raises(ValueError, match=rf"a whole Parquet file, got .*{first.name}.*Delete it"):
        run(complete, [0], 2)
    first.write_bytes(content)
    second.rename(tmp_path / "other.parquet")
    first.unlink()
    (complete / part_name(range(1000, 1001))).unlink()
    with pytest.raises(ValueError, match=r"got none of 0 to 39, 1000 to 1000; .*any number of processes"):
        check_complete(complete)
    first.write_bytes(content)
    twice = complete / part_name(range(10, 30))
    twice.write_bytes(content)
    with pytest.raises(ValueError, match=r"expected each sample once in .*, got 10 and others twice"):
        check_complete(complete)
    twice.unlink()
    parquet.write_table(parquet.read_table(tmp_path / "other.parquet").drop(["gap"]), second)
    with pytest.raises(ValueError, match=r"expected parts of one run .*, got another in .*part-000000000020"):
        check_complete(complete)


@pytest.mark.parametrize("name", ["other.parquet", "copy/part-000000000000-000000000020.parquet"])
def test_other_tables_in_the_folder_are_refused(name, complete):
    """Readers take their rows too, so that samples would come twice."""
    path = complete / name
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(arrow.table({"a": [1]}), path)
    for action in (lambda: run(complete, [0], 2), lambda: check_complete(complete)):
        with pytest.raises(ValueError, match=f"expected parts of a run only in .*, got {name}; choose another folder"):
            action()
    path.unlink()
    (complete / "_hidden").mkdir()
    parquet.write_table(arrow.table({"a": [1]}), complete / "_hidden" / "other.parquet")
    assert check_complete(complete) == SAMPLES == len(parquet.read_table(complete))


@unix_only
@pytest.mark.parametrize("options", [{}, {"shard": (0, 1)}], ids=str)
def test_a_full_disk_leaves_no_temporary_file(options, tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            predictor(**options).to_parquet(torch.randn(100, 3), tmp_path / "samples.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], ["manifest.json"])
    predictor(**options).to_parquet(torch.randn(100, 3), tmp_path / "samples.parquet")
