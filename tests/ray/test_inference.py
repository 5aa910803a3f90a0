"""What runs on a cluster of several nodes. All of it is in one file, so that one process starts one cluster."""

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
from pandas.testing import assert_frame_equal
from torch.testing import assert_close

from tests.ray import models
from tests.ray.conftest import NODE_CPUS, STORE
from torch_boc import BoCPredictor, ConformalTest
from torch_boc.functional import boc_summary
from torch_boc.ray import check_complete, predict, summarize
from torch_boc.ray.inference import Run

pytestmark = pytest.mark.ray
ROWS, BATCH = 1200, 10
NAMES = {"inputs": "x", "target": "label", "id": "path"}
ROOT = Path(__file__).parents[2]


def columns():
    """Inputs that are whole numbers, so that the values of two runs agree bit by bit; ids are strings."""
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, (ROWS, models.WIDTH)).astype("float32")
    x[:, 0] += 8 * (x == 0).all(-1)
    labels, paths = random.integers(0, models.CLASSES, ROWS), [f"{i:04}.png" for i in range(ROWS)]
    return {"x": x, "label": labels, "path": paths, "site": [None if i % 7 == 0 else 2**60 + i for i in range(ROWS)]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the inputs in two files."""
    folder, arrays = tmp_path_factory.mktemp("inputs"), columns()
    table = pa.table({**arrays, "x": pa.FixedShapeTensorArray.from_numpy_ndarray(arrays["x"])})
    for i in range(2):
        pq.write_table(table.slice(i * ROWS // 2, ROWS // 2), folder / f"{i}.parquet")
    return folder


def read(files):
    """As Ray reads them: a block for each file."""
    import ray

    return ray.data.read_parquet(str(files))


def expected(**options):
    """What one process says, as a frame by path.

    Its batches are those of the workers, because the last bit of a value may depend on the other rows of a batch: the
    kernels treat the rest of a batch that fills no vector in another way.
    """
    arrays = columns()
    x, label = torch.tensor(arrays["x"]).split(BATCH), torch.tensor(arrays["label"]).split(BATCH)
    paths = [arrays["path"][i : i + BATCH] for i in range(0, ROWS, BATCH)]
    predictor = BoCPredictor(models.linear(), progress=False, id="path", **options)
    return predictor.to_frame(zip(x, label, paths, strict=True)).drop(columns="index").set_index("path").sort_index()


def written(path):
    """The rows of a run by path, each of which is there once."""
    table = pq.read_table(path)
    assert "logits" not in table.column_names
    paths = table["path"].to_pylist()
    assert len(paths) == len(set(paths)) == ROWS
    return table.to_pandas().set_index("path").sort_index()


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def test_predictions_are_those_of_one_process(cluster, files, tmp_path):
    """Kept integers next to a null stay integers, which floats could not hold."""
    test = ConformalTest().calibrate(models.linear()(torch.tensor(columns()["x"])).detach())
    options = {**NAMES, "keep": ["site"], "batch_size": BATCH, "conformal_test": test, "alpha": 0.1}
    path = predict(read(files), models.linear, tmp_path / "out", **options)
    assert check_complete(path) == str(tmp_path / "out")
    assert_frame_equal(written(path).drop(columns="site"), expected(conformal_test=test, alpha=0.1), check_exact=True)
    logits, target = models.linear()(torch.tensor(columns()["x"])).detach(), torch.tensor(columns()["label"])
    groups = summarize(read(path), by="prediction")  # the number of classes is in the metadata of the files
    assert sum(int(summary["samples"]) for summary in groups.values()) == ROWS
    for prediction, summary in groups.items():
        rows = logits.argmax(-1) == prediction
        assert_close(summary, boc_summary(logits[rows], target[rows]), rtol=1e-5, atol=1e-6)
    table = pq.read_table(path).sort_by("path")
    assert str(table.schema.field("site").type) == "int64"
    assert table["site"].to_pylist() == columns()["site"]
    with pytest.raises(FileExistsError, match=r"expected a new folder, or resume=True and .*, got .*out. Choose"):
        predict(read(files), models.linear, path, inputs="x")


def test_an_error_of_the_model_is_raised(cluster, tmp_path):
    import ray

    rows = ray.data.from_numpy(np.zeros((30, models.WIDTH), "float32"))
    with pytest.raises(ray.exceptions.RayError, match=r"no weights at /models/resnet.pt"):
        predict(rows, models.no_weights, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "got"), [({"workers": 3}, "3 workers"), ({"num_gpus": 1}, "1 GPUs each"), ({"num_cpus": 3}, "3 CPUs")]
)
def test_workers_for_which_ray_would_wait_for_ever(options, got, cluster, files, tmp_path):
    """There are 3 CPUs on two nodes: reading needs one, and no node has 3."""
    with pytest.raises(ValueError, match=rf"expected room for .*{got}.* got 3 CPUs and 0 GPUs on 2 nodes"):
        predict(read(files), models.no_weights, tmp_path / "out", **NAMES, **options)
    assert not (tmp_path / "out.run").exists()


@pytest.mark.slow
def test_a_node_that_dies_costs_no_row(cluster, files, tmp_path):
    """A node is killed while a worker on it has a batch; a new node takes its place."""
    batches = tmp_path / "batches"
    batches.mkdir()
    others = {node.node_id: node for node in cluster.worker_nodes}
    slow = partial(models.Watched, batches, 0.1, next(iter(others)))
    options = {**NAMES, "workers": 2, "batch_size": BATCH}
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(predict, read(files), slow, tmp_path / "out", **options)
        node = wait_for(lambda: next((x for x in others if list(batches.glob(f"{x}-*"))), None))
        cluster.remove_node(others[node], allow_graceful=False)
        cluster.add_node(num_cpus=NODE_CPUS, object_store_memory=STORE)
        path = running.result(timeout=300)
    assert 0 < len(list(batches.glob(f"{node}-*"))) < ROWS // BATCH  # it had begun, and had not done everything
    assert check_complete(path)
    assert_frame_equal(written(path), expected(), check_exact=True)


def committed(checkpoint):
    """The files in which Ray has noted the ids of rows that are written."""
    return [file for file in checkpoint.glob("*.parquet") if ".pending" not in file.name]


def kill(cluster, files, path, batches):
    """Start a program that predicts, and kill it when half of the batches are done."""
    command = [sys.executable, "-m", "tests.ray.driver", cluster.address, str(files), str(path), str(batches)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoint = Path(f"{path}.run/checkpoint")
    try:
        wait_for(lambda: len(list(batches.iterdir())) >= ROWS // BATCH // 2 or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(Path("/proc", file.name.split("-")[1]).exists() for file in batches.iterdir()))
    wait_for(lambda: len(committed(checkpoint)) == (time.sleep(1), len(committed(checkpoint)))[1])  # writers end, too


def leave(cluster, files, path, batches):
    """Predict half of the rows, and leave what a killed program leaves: a manifest without an end."""
    predict(read(files / "0.parquet"), models.linear, path, **NAMES, batch_size=BATCH, resume=True)
    run = Run(path)
    run.write({**run.read(), "finished": False})


@pytest.mark.parametrize("stop", [leave, pytest.param(kill, marks=pytest.mark.slow)])
def test_a_run_that_stops_in_the_middle_goes_on(stop, cluster, files, tmp_path):
    """The next run predicts the other rows, and only those."""
    pytest.importorskip("ray.data.checkpoint")
    batches, path, checkpoint = tmp_path / "batches", tmp_path / "out", tmp_path / "out.run" / "checkpoint"
    batches.mkdir()
    stop(cluster, files, path, batches)
    with pytest.raises(ValueError, match="got one that has not finished; call predict again with resume=True"):
        check_complete(path)
    done = sum(pq.read_table(file).num_rows for file in committed(checkpoint))
    assert 0.4 * ROWS <= done < ROWS
    for file in batches.iterdir():
        file.unlink()
    options = {**NAMES, "batch_size": BATCH, "resume": True}
    predict(read(files), partial(models.Watched, batches), path, **options)
    assert sum(int(file.read_text()) for file in batches.iterdir()) == ROWS - done
    assert_frame_equal(written(path), expected(), check_exact=True)
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
