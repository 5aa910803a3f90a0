"""Classifiers from folders of `save_pretrained`, the hub's cache and the hub."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.utils import logging

from tests.experiments import stand_ins
from torch_boc.experiments import EXPERIMENTS, find_model, load_model
from torch_boc.experiments.models import digest_model, match_classes
from torch_boc.experiments.protocol import CIFAR10

VIT, RESNET, ROBERTA = (EXPERIMENTS[name] for name in ("vit", "resnet", "roberta"))


def logits(classifier, inputs):
    with torch.inference_mode():
        output = classifier.model(**classifier.prepare(inputs))
    return getattr(output, "logits", output)


def test_vit_is_prepared_by_its_own_processor(tmp_path):
    from transformers import ViTImageProcessor

    model = stand_ins.write_vit(tmp_path / "vit")
    pixels, _ = stand_ins.pictures(5, 0)
    classifier = load_model(VIT, find_model(VIT, str(tmp_path / "vit")))
    prepared = ViTImageProcessor.from_pretrained(tmp_path / "vit")(images=list(pixels), return_tensors="pt")
    with torch.inference_mode():
        expected = model(**prepared).logits
    found = logits(classifier, torch.from_numpy(pixels).movedim(-1, 1))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not classifier.model.training


@pytest.mark.parametrize(("head", "mean", "std"), [("fc", 0.4914, 0.2023), ("linear", 0.485, 0.229)])
def test_resnets_are_normalised_as_they_were_trained(tmp_path, head, mean, std):
    stand_ins.write_resnet(tmp_path / "weights.pt", head=head)
    for options in ({"model": str(tmp_path / "weights.pt")}, {"checkpoint": tmp_path / "weights.pt"}):
        classifier = load_model(RESNET, find_model(RESNET, **options))
        x = classifier.prepare(torch.full((1, 3, 32, 32), 51, dtype=torch.uint8))["x"]
        torch.testing.assert_close(x[0, 0, 0, 0].item(), (0.2 - mean) / std, rtol=1e-6, atol=1e-6)


def test_roberta_is_truncated_and_padded(tmp_path):
    """A text longer than the positions is cut, and padding changes nothing."""
    stand_ins.write_roberta(tmp_path / "roberta")
    classifier = load_model(ROBERTA, find_model(ROBERTA, str(tmp_path / "roberta")))
    texts = ["medal", "the merger " * 40, "galaxy chip"]
    prepared = classifier.prepare(texts)
    assert prepared["input_ids"].shape == (3, 32)
    assert prepared["attention_mask"].sum(1)[1] == 32
    apart = torch.cat([logits(classifier, [text]) for text in texts])
    torch.testing.assert_close(logits(classifier, texts), apart, rtol=1e-4, atol=1e-5)


def test_transformers_is_as_loud_as_before(tmp_path):
    stand_ins.write_vit(tmp_path / "vit")
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load_model(VIT, tmp_path / "vit")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_classes_are_put_into_the_order_of_the_data(tmp_path):
    names = {i: name.upper() for i, name in enumerate(reversed(CIFAR10))}
    stand_ins.write_vit(tmp_path / "vit", id2label=names)
    assert load_model(VIT, tmp_path / "vit").columns == list(range(9, -1, -1))
    assert match_classes(dict(enumerate(CIFAR10)), CIFAR10) is None
    assert match_classes(None, CIFAR10) is None
    assert match_classes(dict(enumerate("abcdefghij")), CIFAR10) is None


def test_models_are_told_apart(tmp_path):
    stand_ins.write_vit(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert digest_model(tmp_path / "a") == digest_model(tmp_path / "b")
    (tmp_path / "b" / "preprocessor_config.json").write_text("{}")
    assert digest_model(tmp_path / "a") != digest_model(tmp_path / "b")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("config.json", r"got one without config\.json"),
        ("preprocessor_config.json", r"got one without preprocessor_config\.json or processor_config\.json"),
        ("model.safetensors", r"got one without model\*\.safetensors or pytorch_model\*\.bin"),
    ],
)
def test_incomplete_folders(tmp_path, file, message):
    stand_ins.write_vit(tmp_path / "vit")
    (tmp_path / "vit" / file).unlink()
    with pytest.raises(ValueError, match=rf"vit: expected a folder of save_pretrained, {message}"):
        find_model(VIT, str(tmp_path / "vit"))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_damaged_folders(tmp_path, file):
    stand_ins.write_vit(tmp_path / "vit")
    (tmp_path / "vit" / file).write_text("{")
    with pytest.raises(ValueError, match=r"vit: expected a folder of save_pretrained, got \w+: .") as caught:
        load_model(VIT, tmp_path / "vit")
    assert "\n" not in str(caught.value)


def test_a_model_without_its_head(tmp_path):
    model = stand_ins.write_vit(tmp_path / "vit")
    model.vit.save_pretrained(tmp_path / "bare")
    for file in ("config.json", "preprocessor_config.json"):
        shutil.copy(tmp_path / "vit" / file, tmp_path / "bare")
    with pytest.raises(ValueError, match=r"weights of a trained classifier, got none for classifier\.bias"):
        load_model(VIT, tmp_path / "bare")


def test_options_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match="expected --checkpoint for resnet alone, got it for vit; use --model FOLDER"):
        find_model(VIT, checkpoint=tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="expected either --model or --checkpoint, got both"):
        find_model(RESNET, "cifar10_resnet20", tmp_path / "weights.pt")
    with pytest.raises(FileNotFoundError, match=r"weights\.pt: no such file"):
        find_model(RESNET, checkpoint=tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"expected --model as a folder or a name on the hub, got '\./a/b/c'"):
        find_model(VIT, "./a/b/c")


def hub_folder(cache, name):
    """Where the hub's library keeps a model that it has downloaded."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    return folder / "snapshots" / ("0" * 40)


def test_what_the_hub_has_given_is_not_fetched_again(offline):
    folder = hub_folder(offline, VIT.model)
    stand_ins.write_vit(folder)
    assert find_model(VIT) == folder


@pytest.mark.parametrize("experiment", [VIT, ROBERTA])
def test_offline(experiment, offline):
    """Also with a download in the cache that is not complete."""
    for _ in range(2):
        with pytest.raises(
            ConnectionError, match=rf"could not fetch {experiment.model} from the .*not known\); connect"
        ):
            find_model(experiment)
        if not offline.exists():
            hub_folder(offline, experiment.model).mkdir(parents=True)


@pytest.mark.parametrize(
    ("files", "weights"),
    [
        (["config.json", "pytorch_model.bin", "tf_model.h5"], "pytorch_model*.bin"),
        (["model.safetensors", "pytorch_model.bin"], "model*.safetensors"),
    ],
)
def test_weights_are_fetched_in_one_format(tmp_path, offline, monkeypatch, files, weights):
    asked = []

    def snapshot_download(name, *, local_files_only=False, allow_patterns=None):
        if local_files_only:
            raise FileNotFoundError
        asked.append((name, allow_patterns))
        return str(tmp_path / "vit")

    stand_ins.write_vit(tmp_path / "vit")
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in files])
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda self, name, timeout: info)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert find_model(VIT) == Path(tmp_path / "vit")
    assert asked == [(VIT.model, ["*.json", "*.txt", weights])]
    (tmp_path / "vit" / "config.json").unlink()
    with pytest.raises(
        ValueError, match=r"aaraki/.*: expected a model of transformers for images, got one without conf"
    ):
        find_model(VIT)
