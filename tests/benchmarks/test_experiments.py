"""The paper's experiments on local stand-ins: the protocol, the files as they are published, and what is kept."""

import json
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.paper import run
from benchmarks.paper.models import find_model
from benchmarks.paper.protocol import EXPERIMENTS, Samples, portions
from benchmarks.paper.sources import load_data
from tests.benchmarks import stand_ins


def numbered(name, count):
    return Samples(name, [f"{name} {i}" for i in range(count)], torch.arange(count) % 4)


def test_the_portions_of_the_paper():
    """A tenth of the training data calibrates, nothing is in two sets, and a smaller set begins the larger one."""
    data = numbered("train", 100), numbered("test", 12), numbered("ood", 15)
    sets, few = portions(*data), portions(*data, samples=5, train_samples=3)
    assert [len(x.inputs) for x in sets] == [12, 15, 10, 90]
    assert [len(x.inputs) for x in few] == [5, 5, 5, 3]
    assert sorted(sets.calibration.inputs + sets.train.inputs) == sorted(data[0].inputs)
    assert sets.ood.target is None
    for small, large in zip(few, sets, strict=True):
        assert small.key == large.key
        assert small.inputs == large.inputs[: len(small.inputs)]
    assert portions(*data, seed=43).id.key != sets.id.key
    with pytest.raises(ValueError, match="expected at least 10 samples"):
        portions(numbered("train", 4), *data[1:])


def test_images_as_published(tmp_path):
    stand_ins.write_images(tmp_path)
    for name, count, seed in (("cifar10_train", stand_ins.TRAIN, 0), ("svhn_test", stand_ins.OOD, 2)):
        pixels, labels = load_data(name, tmp_path, fetch=False)
        expected, classes = stand_ins.pictures(count, seed)
        assert torch.equal(pixels, torch.from_numpy(expected).movedim(-1, 1))
        assert torch.equal(labels, torch.from_numpy(classes))


def test_texts_as_published(tmp_path):
    """Title and text of AG News with a space between, the abstract alone of DBPedia, classes from 0."""
    stand_ins.write_texts(tmp_path)
    texts, labels = load_data("ag_news_train", tmp_path, fetch=False)
    assert (texts[5], labels.tolist()) == ("The striker medal, 5 what it means 5", [i % 4 for i in range(200)])
    assert load_data("dbpedia_test", tmp_path, fetch=False)[0][3] == " T3 is a village."
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": ["a"], "label": [3]}), tmp_path / "data" / "test-00000-of-00001.parquet")
    (tmp_path / "ag_news_csv" / "test.csv").unlink()
    texts, labels = load_data("ag_news_test", tmp_path, fetch=False)
    assert (texts, labels.tolist()) == (["a"], [3])


def test_a_pickle_calls_no_function(tmp_path):
    (tmp_path / "test_batch").write_bytes(b"\x80\x02cos\nsystem\nU\x04exit\x85R.")
    with pytest.raises(ValueError, match=r"UnpicklingError: it asks for os\.system"):
        load_data("cifar10_test", tmp_path, fetch=False)


def write_stand_ins(name, folder):
    """Data and a model as the experiment finds them; the paths of both."""
    data, model = folder / "data", folder / ("model.pt" if name == "resnet" else "model")
    (stand_ins.write_texts if name == "roberta" else stand_ins.write_images)(data)
    getattr(stand_ins, f"write_{name}")(model)
    return data, model


def compute(name, data, model, cache, **sizes):
    """The logits of all sets, by their roles."""
    experiment = EXPERIMENTS[name]
    computation = run.Computation(experiment, model, cache, 16, torch.device("cpu"))
    sets = run.load_sets(experiment, data, **sizes)
    return {role: computation(x, odin=experiment.odin and role == "id") for role, x in sets._asdict().items()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_logits_are_computed_once(name, tmp_path, monkeypatch, capfd):
    paths = write_stand_ins(name, tmp_path)
    first = compute(name, *paths, tmp_path / "cache", samples=20)
    assert [len(x) for x in first.values()] == [20, 20, 20, 20]
    assert list(first["id"].columns) == ([] if name == "roberta" else ["odin"])
    monkeypatch.setattr(run, "load_model", pytest.fail)  # the second time, the model is not needed
    again = compute(name, *paths, tmp_path / "cache", samples=20)
    assert all(torch.equal(first[role].logits, again[role].logits) for role in first)


@pytest.mark.filterwarnings("ignore::UserWarning")  # the stand-in knows nothing
def test_from_local_copies_to_the_report(tmp_path, monkeypatch, capfd):
    data, model = map(str, write_stand_ins("resnet", tmp_path))
    monkeypatch.chdir(tmp_path)
    run.main(["resnet", "--model", model, "--data-dir", data, "--cache", "cache", "--replicates", "5"])
    content = json.loads((tmp_path / "boc-report" / "report.json").read_text())
    assert content["settings"]["samples"] == {"id": 40, "svhn": 30, "training samples": 20, "train": 180}
    assert {"msp", "energy", "odin", "mahalanobis", "structural_score"} <= set(content["tables"]["ood"]["score"])
    assert {"temperature", "isotonic", "vector scaling"} <= set(content["tables"]["calibration"]["method"])


def test_logits_are_in_the_order_of_the_data(tmp_path, capfd):
    """A model whose classes have the data's names in another order."""
    data, model = write_stand_ins("roberta", tmp_path)
    stand_ins.write_roberta(tmp_path / "other", ("sci/tech", "world", "sports", "business"))
    one, other = (compute("roberta", data, path, tmp_path / "cache")["id"] for path in (model, tmp_path / "other"))
    assert torch.equal(other.logits, one.logits[:, [1, 2, 3, 0]])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_a_network(name, tmp_path, monkeypatch, capfd):
    def fail(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    experiment = EXPERIMENTS[name]
    with pytest.raises(ConnectionError, match=r"could not fetch .* local copies"):
        find_model(experiment)
    with pytest.raises(ConnectionError, match=r"could not fetch .* local copies"):
        load_data(experiment.data[-1], tmp_path, fetch=True)
