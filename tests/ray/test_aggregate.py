"""What needs no cluster: blocks in any order give what all rows give at once, and when a run may write to a folder."""

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from torch_boc import ConformalTest
from torch_boc.data.parquet import CLASSES_KEY
from torch_boc.functional import boc_summary, sample_columns
from torch_boc.ray import aggregate, calibrate, check_complete, predict, summarize
from torch_boc.ray.inference import Run

ROWS, CLASSES = 120, 5


class Blocks:
    """A dataset of Ray, as far as it is used: blocks, which come in another order."""

    def __init__(self, arrays, cuts=()):
        rows = len(next(iter(arrays.values())))
        edges = [0, *cuts, rows]
        self.blocks = [{name: x[i:j] for name, x in arrays.items()} for i, j in pairwise(edges)]

    def schema(self, **_):
        metadata = {} if "logits" in self.blocks[0] else {CLASSES_KEY.encode(): b"%d" % CLASSES}
        return SimpleNamespace(base_schema=SimpleNamespace(metadata=metadata))

    def map_batches(self, function, **_):
        mapped = Blocks({"state": []})
        mapped.blocks = [function(block) for block in reversed(self.blocks)]
        return mapped

    def iter_batches(self, **_):
        return iter(self.blocks)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.setattr(aggregate, "check_dataset", lambda dataset: None)


LOGITS = (torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0)) * 3).double()
TARGET = torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(1))


def with_logits(logits, **more):
    return {"logits": logits.numpy(), **{name: x.numpy() for name, x in more.items()}}


def with_columns(logits, **more):
    return {name: x.numpy() for name, x in {**sample_columns(logits), **more}.items()}


@pytest.mark.parametrize("cuts", [(), (1,), (0, 40, 41, 100)])
def test_a_summary_of_logits(cuts):
    arrays = with_logits(LOGITS, target=TARGET)
    assert_close(summarize(Blocks(arrays, cuts)), boc_summary(LOGITS, TARGET), rtol=1e-8, atol=0)
    options = {"alpha": 0.2, "ignore_index": 3, "trials": 30, "bins": 7}
    assert_close(summarize(Blocks(arrays, cuts), **options), boc_summary(LOGITS, TARGET, **options), rtol=1e-8, atol=0)
    lists = np.empty(ROWS, object)
    lists[:] = LOGITS.tolist()
    assert_close(summarize(Blocks({"logits": lists}, cuts)), boc_summary(LOGITS), rtol=1e-8, atol=0, equal_nan=True)


@pytest.mark.parametrize("ignore_index", [None, 2])
def test_a_summary_of_the_columns_of_a_predictor(ignore_index):
    """All keys but the log loss, which needs the target's logit where the prediction is wrong."""
    found = summarize(Blocks(with_columns(LOGITS, target=TARGET), (50, 90)), ignore_index=ignore_index)
    whole = boc_summary(LOGITS, TARGET, ignore_index=ignore_index)
    assert found.pop("nll").isnan()
    assert_close(found, {key: x for key, x in whole.items() if key != "nll"}, rtol=1e-6, atol=1e-9)
    named = sample_columns(LOGITS, TARGET)
    assert_close(summarize(Blocks(with_columns(LOGITS, target=TARGET, **named)), ignore_index=ignore_index), whole)
    right = LOGITS.argmax(-1)
    assert_close(summarize(Blocks(with_columns(LOGITS, target=right)))["nll"], boc_summary(LOGITS, right)["nll"])


@pytest.mark.parametrize("kind", ["U4", object, int, float, bool])
def test_groups(kind):
    keys = np.arange(ROWS) % 2
    site = np.array(["east", "west"])[keys].astype(kind) if kind in ("U4", object) else keys.astype(kind)
    found = summarize(Blocks({**with_logits(LOGITS, target=TARGET), "site": site}, (30, 31)), by="site")
    assert set(found) == set(site[:2].tolist())
    for i in range(2):
        assert_close(found[site[i].item() if kind is not object else site[i]], boc_summary(LOGITS[i::2], TARGET[i::2]))


@pytest.mark.parametrize("name", ["target", "prediction"])
def test_groups_by_a_column_that_is_summed_up(name):
    """By target, there was no accuracy, and by prediction an error."""
    found = summarize(Blocks(with_columns(LOGITS, target=TARGET), (50, 90)), by=name)
    keys = TARGET if name == "target" else LOGITS.argmax(-1)
    for key, summary in found.items():
        whole = boc_summary(LOGITS[keys == key], TARGET[keys == key])
        assert summary["accuracy"] == whole["accuracy"]
        assert_close(summary["gap"], whole["gap"])


@pytest.mark.parametrize("values", [["a", None], [1.0, np.nan]], ids=["null", "NaN"])
def test_a_row_without_a_group_is_refused(values):
    values = np.array(values * (ROWS // 2), object)
    with pytest.raises(ValueError, match=r"expected a group for each row in column 'site', got null or NaN; leave"):
        summarize(Blocks({**with_logits(LOGITS), "site": values}), by="site")
    with pytest.raises(ValueError, match="expected a column 'city' to group by, got logits"):
        summarize(Blocks(with_logits(LOGITS)), by="city")


@pytest.mark.parametrize("options", [{}, {"groups": "prediction"}, {"score": "energy"}], ids=str)
@pytest.mark.parametrize("make", [with_logits, with_columns])
def test_a_calibration(options, make):
    options = {"score": "log_odds"} | options  # the columns have no GEN
    whole, blank = ConformalTest(**options).calibrate(LOGITS), ConformalTest(**options)
    found = calibrate(Blocks(make(LOGITS), (30, 31)), blank)
    # A score from columns is rounded in another way, so that it may be counted in the next of the fine places.
    places = whole.counts.cumsum(-1) - found.counts.cumsum(-1)
    assert int(places.abs().max()) <= (0 if make is with_logits else 1)
    assert_close(found.samples, whole.samples)
    assert not blank.calibrated


def test_rows_that_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="expected a column 'logits', or those of a predictor, got a"):
        summarize(Blocks({"a": np.ones(1)}))
    with pytest.raises(TypeError, match="expected numbers in column 'logits'"):
        summarize(Blocks({"logits": np.array(["a"])}))
    with pytest.raises(ValueError, match=r"expected held-out rows without NaN and .inf, got 1 such rows"):
        calibrate(Blocks(with_logits(torch.tensor([[1.0, torch.nan], [0.0, 1.0]]))))
    with pytest.raises(TypeError, match=r"expected dataset as a ray.data.Dataset, got list"):
        predict([1], torch.nn.Identity, "out")
    with pytest.raises(TypeError, match=r"expected conformal_test as a torch_boc.ConformalTest, got str"):
        calibrate(Blocks(with_logits(LOGITS)), "energy")
    monkeypatch.undo()
    with pytest.raises(TypeError, match=r"expected dataset as a ray.data.Dataset, got list"):
        summarize([1])


SETTINGS = {"columns": ["path", "gap"], "trials": 100}


def test_when_a_run_may_write(tmp_path, monkeypatch):
    path, run = tmp_path / "out", Run(tmp_path / "out")
    begun = {"settings": SETTINGS, "resume": False, "finished": False}
    with pytest.raises(FileNotFoundError, match="expected a run at"):
        check_complete(path)
    assert not run.check(SETTINGS, resume=False)
    run.write(begun)
    with pytest.raises(ValueError, match="has not finished; delete it"):
        check_complete(path)
    with pytest.raises(FileExistsError, match="the folder of a run that was started with resume=True, got"):
        run.check(SETTINGS, resume=True)
    run.write(begun | {"resume": True})
    with pytest.raises(FileExistsError, match=r"expected a new folder, or resume=True and"):
        run.check(SETTINGS, resume=False)
    assert not run.check(SETTINGS, resume=True)
    with pytest.raises(ValueError, match=r"trials=100, got one with trials=7\. Choose another path, or delete"):
        run.check({**SETTINGS, "trials": 7}, resume=True)
    monkeypatch.chdir(tmp_path)
    Run(path.as_uri() + "/").write(begun | {"resume": True, "finished": True})
    assert Run("out").check(SETTINGS, resume=True)
    assert check_complete("out/") == str(path)
    (tmp_path / "other").mkdir()
    with pytest.raises(FileExistsError, match=r"expected a new folder, .* got .*other. Choose another path"):
        Run("other").check(SETTINGS, resume=True)


def test_a_ray_without_checkpoints_cannot_resume(tmp_path, monkeypatch):
    """As Ray 2.51 is."""
    pytest.importorskip("ray")
    monkeypatch.setitem(sys.modules, "ray.data.checkpoint.checkpoint_writer", None)
    with pytest.raises(ImportError, match="resume=True needs a newer Ray"), Run(tmp_path).checkpoints(None, "path"):
        pass
