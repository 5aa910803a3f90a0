"""What runs on a cluster of several nodes. All of it is in one file, so that one process starts one cluster."""

import os
import runpy
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.testing import assert_close

from tests.ray import models
from tests.ray.conftest import NODE_CPUS, STORE
from torch_boc import BoCPredictor, ConformalTest
from torch_boc.functional import boc_summary
from torch_boc.ray import check_complete, predict, summarize

pytestmark = pytest.mark.ray
ROWS, BLOCKS, BATCH = 240, 8, 10
ROOT = Path(__file__).parents[2]


def columns(rows=ROWS):
    """Inputs that are whole numbers, so that the values of two runs agree bit by bit; ids are strings."""
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, (rows, models.WIDTH)).astype("float32")
    x[:, 0] += 8 * (x == 0).all(-1)
    return {"x": x, "label": random.integers(0, models.CLASSES, rows), "path": [f"{i:04}.png" for i in range(rows)]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the inputs in two files."""
    folder, arrays = tmp_path_factory.mktemp("inputs"), columns()
    table = pa.table({**arrays, "x": pa.FixedShapeTensorArray.from_numpy_ndarray(arrays["x"])})
    for i in range(2):
        pq.write_table(table.slice(i * ROWS // 2, ROWS // 2), folder / f"{i}.parquet")
    return folder


def read(files):
    return models.read(files, ROWS // BLOCKS)


def expected(**options):
    """What one process says, as a frame by path.

    Its batches are those of the workers, because the last bit of a value may depend on the other rows of a batch: the
    kernels treat the rest of a batch that fills no vector in another way.
    """
    arrays = {name: torch.tensor(x) if name != "path" else x for name, x in columns().items()}
    starts = range(0, ROWS, BATCH)
    loader = [tuple(arrays[name][i : i + BATCH] for name in ("x", "label", "path")) for i in starts]
    frame = BoCPredictor(models.linear(), progress=False, id="path", **options).to_frame(loader)
    return frame.drop(columns="index").set_index("path").sort_index()


def written(path):
    """The rows of a run by path, each of which is there once."""
    table = pq.read_table(path)
    assert "logits" not in table.column_names
    paths = table["path"].to_pylist()
    assert len(paths) == len(set(paths)) == ROWS
    return table.to_pandas().set_index("path").sort_index()


def assert_equal_bits(found, frame):
    assert list(found.columns) == list(frame.columns)
    assert list(found.index) == list(frame.index)
    for name in frame.columns:
        np.testing.assert_array_equal(found[name].to_numpy(), frame[name].to_numpy(), err_msg=name)


def wait_for(condition, seconds=150):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def logits_and_targets():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(300, 4, generator=generator) * 3, torch.randint(4, (300,), generator=generator)


def as_dataset(arrays, blocks):
    import ray

    size = -(-len(next(iter(arrays.values()))) // blocks)
    tables = [pa.table({name: x[i * size : (i + 1) * size] for name, x in arrays.items()}) for i in range(blocks)]
    return ray.data.from_arrow(tables)


def test_summaries_of_groups_are_those_of_one_process(cluster):
    logits, target = logits_and_targets()
    site = np.where(np.arange(300) % 3 == 0, "east", "west")
    arrays = {"logits": list(logits.numpy()), "target": target.numpy(), "site": site}
    groups = summarize(as_dataset(arrays, 3), by="site", trials=50)
    assert set(groups) == {"east", "west"}
    for name, summary in groups.items():
        rows = torch.from_numpy(site == name)
        assert_close(summary, boc_summary(logits[rows], target[rows], trials=50), rtol=1e-8, atol=0)


def test_predictions_are_those_of_one_process(cluster, files, tmp_path):
    test = ConformalTest().calibrate(models.linear()(torch.tensor(columns()["x"])).detach())
    path = predict(
        read(files),
        models.linear,
        tmp_path / "out",
        inputs="x",
        target="label",
        id="path",
        batch_size=BATCH,
        test=test,
        alpha=0.1,
    )
    assert check_complete(path) == str(tmp_path / "out")
    assert_equal_bits(written(path), expected(test=test, alpha=0.1))
    with pytest.raises(FileExistsError, match=r"expected a new folder, got .*out. Choose.*or continue the run"):
        predict(read(files), models.linear, path, inputs="x")


def test_an_error_of_the_model_leaves_a_run_that_has_not_finished(cluster, tmp_path):
    import ray

    rows = ray.data.from_numpy(np.zeros((30, models.WIDTH), "float32"))
    with pytest.raises(ray.exceptions.RayError, match=r"no weights at /models/resnet.pt"):
        predict(rows, models.no_weights, tmp_path / "out")
    with pytest.raises(ValueError, match=r"expected a finished run at .* got one that has not finished; delete it"):
        check_complete(tmp_path / "out")
    with pytest.raises(TypeError, match=r"expected dataset as a ray.data.Dataset, got list"):
        predict([1], models.linear, tmp_path / "out")


@pytest.mark.slow
def test_a_node_that_dies_costs_no_row(cluster, files, tmp_path):
    """A node is killed while a worker on it has a batch; a new node takes its place."""
    batches = tmp_path / "batches"
    batches.mkdir()
    others = {node.node_id: node for node in cluster.worker_nodes}
    slow = partial(models.Watched, batches, 0.2, next(iter(others)))
    options = {"inputs": "x", "target": "label", "id": "path", "workers": 2, "batch_size": BATCH}
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(predict, read(files), slow, tmp_path / "out", **options)
        node = wait_for(lambda: next((x for x in others if list(batches.glob(f"{x}-*"))), None))
        cluster.remove_node(others[node], allow_graceful=False)
        cluster.add_node(num_cpus=NODE_CPUS, object_store_memory=STORE)
        path = running.result(timeout=300)
    assert 0 < len(list(batches.glob(f"{node}-*"))) < ROWS // BATCH  # it had begun, and had not done everything
    assert check_complete(path)
    assert_equal_bits(written(path), expected())


def is_alive(process):
    """Whether a process of this machine, by its id, has not ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def committed(checkpoint):
    """The files in which Ray has noted the ids of rows that are written."""
    return [file for file in checkpoint.glob("*.parquet") if ".pending" not in file.name]


def test_a_run_that_is_killed_goes_on(cluster, files, tmp_path):
    """The program is killed after some rows are written. The next run predicts the others, and only those."""
    pytest.importorskip("ray.data.checkpoint")
    batches, path = tmp_path / "batches", tmp_path / "out"
    batches.mkdir()
    command = [sys.executable, "-m", "tests.ray.driver", cluster.address, str(files), str(path), str(batches)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "out.run" / "checkpoint"
    try:
        wait_for(lambda: committed(checkpoint) or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ValueError, match="got one that has not finished; call predict again with resume=True"):
        check_complete(path)
    wait_for(lambda: not any(map(is_alive, {int(file.name.split("-")[1]) for file in batches.iterdir()})))
    wait_for(lambda: len(committed(checkpoint)) == (time.sleep(1), len(committed(checkpoint)))[1])  # writers end, too
    done = sum(pq.read_table(file).num_rows for file in committed(checkpoint))
    assert 0 < done < ROWS
    for file in batches.iterdir():
        file.unlink()
    options = {"inputs": "x", "target": "label", "id": "path", "batch_size": BATCH, "resume": True}
    predict(read(files), partial(models.Watched, batches, 0), path, **options)
    assert sum(int(file.read_text()) for file in batches.iterdir()) == ROWS - done
    assert_equal_bits(written(path), expected())
    assert predict(read(files), models.no_weights, path, **options) == str(path)  # finished: no worker starts
    with pytest.raises(ValueError, match=r"expected the run that wrote .* with trials=100, got one with trials=7"):
        predict(read(files), models.linear, path, **options | {"trials": 7})


def test_what_cannot_be_resumed(cluster, tmp_path):
    import ray

    rows = ray.data.from_items([{"x": [0.0] * models.WIDTH, "path": "a"}])
    with pytest.raises(ValueError, match="expected an id for resume=True"):
        predict(rows, models.linear, tmp_path / "out", inputs="x", resume=True)
    pytest.importorskip("ray.data.checkpoint")
    with pytest.raises(ValueError, match=r"read from files.*got one that begins with FromItems"):
        predict(rows, models.linear, tmp_path / "out", inputs="x", id="path", resume=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_example(cluster, tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray.data.checkpoint")
    example = ROOT / "examples" / "ray_batch_inference.py"
    monkeypatch.setattr(sys, "argv", [str(example), "--smoke", "--output", str(tmp_path / "rows")])
    runpy.run_path(str(example), run_name="__main__")
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines() if len(line.split()) == 2)
    assert lines["samples"] == "400.0000"
    assert 0 < float(lines["free_gap"]) < float(lines["gap"]) < 1
    assert len(pq.read_table(tmp_path / "rows", columns=["path"])) == 400
