"""The paper's experiments on stand-ins with the layouts of the real files: from a hub to the tables, then offline."""

import hashlib
import socket

import pytest
import torch
from tqdm import tqdm

from benchmarks.paper import models, run, sources
from benchmarks.paper.tables import PUBLISHED
from tests.benchmarks import stand_ins


@pytest.fixture
def hub(request, tmp_path, monkeypatch):
    """A hub on this machine with everything that an experiment fetches, and empty caches."""
    name, data, model = request.param, tmp_path / "made", tmp_path / "made" / "model"
    model.mkdir(parents=True)
    (stand_ins.write_texts if name == "roberta" else stand_ins.write_images)(data)
    written = getattr(stand_ins, f"write_{name}")(model)
    folders = {PUBLISHED[name]["protocol"]["model"]: model}
    folders |= {f"fancyzhx/{x}": data / x for x in ("ag_news", "dbpedia_14")}
    with stand_ins.serving(folders, data) as address:
        constants = {
            "ENDPOINT": address,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        }
        constants |= {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": True}
        for constant, value in constants.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{constant}", value)
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
        if written is not None:
            monkeypatch.setattr(models, "WEIGHTS", f"{address}/files/model/{written.name}")
        for key, source in sources.SOURCES.items():
            file = data / source.address.rsplit("/", 1)[-1]
            if source.md5 and file.exists():
                md5 = hashlib.md5(file.read_bytes()).hexdigest()
                there = source._replace(address=f"{address}/files/{file.name}", md5=md5)
                monkeypatch.setitem(sources.SOURCES, key, there)
        monkeypatch.chdir(tmp_path)
        yield name


def offline(monkeypatch):
    def fail(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(socket.socket, "connect", fail)


@pytest.mark.filterwarnings("ignore::UserWarning")  # the stand-in knows nothing
@pytest.mark.parametrize("hub", PUBLISHED, indirect=True)
def test_from_the_hub_to_the_tables_and_again_offline(hub, tmp_path, monkeypatch, capfd):
    arguments = [hub, "--cache", "cache", "--replicates", "5", "--samples", "100"]
    run.main(arguments)
    output = capfd.readouterr()
    paper = (tmp_path / "boc-report" / "paper.md").read_text(encoding="utf-8")
    assert "To fetch: " in output.out
    assert "passes of a sample, about" in output.out
    assert "100%" in output.err
    for row, (ece, *_) in PUBLISHED[hub]["calibration"].items():
        assert f"| {row} | {ece:.4f} | " in paper
    for auroc, fpr in PUBLISHED[hub]["ood"].values():
        assert f" | {auroc:.4f} | 0." in paper or f" | {auroc:.4f} | 1." in paper
        assert f" | {fpr:.4f} | " in paper
    assert not any(path.endswith("README.md") for path in stand_ins.Hub.asked)
    offline(monkeypatch)
    monkeypatch.setattr(run, "load_model", pytest.fail)  # the logits are kept
    (tmp_path / "boc-report" / "paper.md").unlink()
    run.main(arguments)
    assert "To fetch: nothing." in capfd.readouterr().out
    assert (tmp_path / "boc-report" / "paper.md").read_text(encoding="utf-8") == paper


@pytest.mark.parametrize("hub", ["roberta"], indirect=True)
def test_what_cannot_be_had_is_said_before_the_first_byte(hub, tmp_path, monkeypatch, capfd):
    with pytest.raises(ValueError, match="got 'nobody/nothing', which the Hugging Face hub does not know"):
        run.main([hub, "--model", "nobody/nothing", "--cache", "cache"])
    with pytest.raises(ValueError, match="expected a file, a folder or a name on the hub as the model, got 'a/b/c'"):
        run.main([hub, "--model", "a/b/c", "--cache", "cache"])
    with pytest.raises(FileNotFoundError, match=r"expected AG News \(data/train-\*.parquet\), got no such file"):
        run.main([hub, "--data-dir", str(tmp_path), "--cache", "cache"])
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == "transformers" else name)
    with pytest.raises(ImportError, match="got no transformers: pip install"):
        run.main([hub, "--cache", "cache"])
    assert not any("resolve" in path for path in stand_ins.Hub.asked)
    monkeypatch.undo()
    offline(monkeypatch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(ConnectionError, match=r"could not fetch textattack/.* local copies"):
        run.main([hub, "--cache", str(tmp_path / "cache")])


def sets_of(name, folder, most=None):
    return run.read_sets(PUBLISHED[name]["protocol"], folder, most)


def logits_of(name, folder, model, cache, most=None, role="id"):
    with tqdm(total=1) as bar:
        compute = run.Computation(name, model, cache, "cpu", bar)
        return compute(sets_of(name, folder, most)[role], odin=False).logits


def test_the_portions_of_the_paper(tmp_path):
    """A tenth of the training data calibrates, nothing is in two sets, and a smaller set begins the larger one."""
    stand_ins.write_texts(tmp_path)
    sets, few = sets_of("roberta", tmp_path), sets_of("roberta", tmp_path, 5)
    assert {role: len(x.inputs) for role, x in sets.items()} == {"id": 150, "ood": 120, "calibration": 40, "train": 360}
    assert len({*sets["calibration"].inputs, *sets["train"].inputs}) == stand_ins.TRAIN
    assert sets["ood"].target is None
    for role, small in few.items():
        assert small.key == sets[role].key
        assert small.inputs == sets[role].inputs[:5]
    for text, label in zip(sets["id"].inputs, sets["id"].target.tolist(), strict=True):
        assert ("minister", "striker", "merger", "galaxy")[label] in text


def test_images_as_published(tmp_path):
    stand_ins.write_images(tmp_path)
    for name, count, seed in (("cifar10_train", stand_ins.TRAIN, 0), ("svhn_test", stand_ins.OOD, 2)):
        pixels, labels = sources.read_samples(name, sources.find_files(sources.SOURCES[name], tmp_path))
        expected, classes = stand_ins.pictures(count, seed)
        assert torch.equal(pixels, torch.from_numpy(expected).movedim(-1, 1))
        assert torch.equal(labels, torch.from_numpy(classes))


def test_a_pickle_calls_no_function(tmp_path):
    (tmp_path / "test_batch").write_bytes(b"\x80\x02cos\nsystem\nU\x04exit\x85R.")
    with pytest.raises(ValueError, match=r"UnpicklingError: it asks for os\.system"):
        sources.read_samples("cifar10_test", [tmp_path / "test_batch"])


def test_texts_of_similar_length_are_together_and_come_back_in_their_order(tmp_path, monkeypatch):
    """Alone, in pieces and in the batches of the paper, a text has the same logits; what is padded is little."""
    stand_ins.write_texts(tmp_path)
    stand_ins.write_roberta(tmp_path / "model")
    widths = []
    load = run.load_model

    def watched(*args):
        classifier = load(*args)

        def prepare(texts):
            batch = classifier.prepare(texts)
            widths.append((batch["input_ids"].numel(), int(batch["attention_mask"].sum())))
            return batch

        return classifier._replace(prepare=prepare)

    monkeypatch.setattr(run, "load_model", watched)
    monkeypatch.setitem(PUBLISHED["roberta"]["protocol"], "batch_size", 16)
    one = logits_of("roberta", tmp_path, tmp_path / "model", tmp_path / "one")
    padded, real = map(sum, zip(*widths, strict=True))
    assert padded < 1.25 * real  # 1.37 times without the order
    monkeypatch.setitem(PUBLISHED["roberta"]["protocol"], "batch_size", 1)
    monkeypatch.setattr(run, "PIECE", 7)
    torch.testing.assert_close(
        logits_of("roberta", tmp_path, tmp_path / "model", tmp_path / "other"), one, atol=1e-4, rtol=1e-4
    )


def test_logits_are_in_the_order_of_the_data(tmp_path):
    """A model whose classes have the data's names in another order."""
    stand_ins.write_texts(tmp_path)
    stand_ins.write_roberta(tmp_path / "one")
    stand_ins.write_roberta(tmp_path / "other", ("sci/tech", "world", "sports", "business"))
    one, other = (logits_of("roberta", tmp_path, tmp_path / x, tmp_path / "cache", 20) for x in ("one", "other"))
    assert torch.equal(other, one[:, [1, 2, 3, 0]])
