"""ResNets from published state dicts: the same function as their makers', in both layouts."""

import hashlib
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, conv1x1

from tests.experiments.stand_ins import spread, write_resnet
from torch_boc.experiments import resnet
from torch_boc.experiments.resnet import CifarResNet, find_weights, load_resnet

DATA = Path(__file__).parents[3] / "shared" / "data"


class Skip(nn.Module):
    """Every second pixel, and as many new channels of zeros as there were, on both sides."""

    def forward(self, x):
        zeros = torch.zeros_like(x[:, : x.shape[1] // 2, ::2, ::2])
        return torch.cat([zeros, x[:, :, ::2, ::2], zeros], 1)


def reference(blocks, head="fc"):
    """The published architectures, of torchvision's blocks."""

    def stage(inside, outside):
        stride, down = (1, None) if inside == outside else (2, Skip())
        if stride == 2 and head == "fc":
            down = nn.Sequential(conv1x1(inside, outside, 2), nn.BatchNorm2d(outside))
        rest = (BasicBlock(outside, outside) for _ in range(blocks - 1))
        return nn.Sequential(BasicBlock(inside, outside, stride, down), *rest)

    parts = {"conv1": nn.Conv2d(3, 16, 3, padding=1, bias=False), "bn1": nn.BatchNorm2d(16), "relu": nn.ReLU()}
    parts |= {"layer1": stage(16, 16), "layer2": stage(16, 32), "layer3": stage(32, 64)}
    model = nn.Sequential()
    for name, part in {**parts, "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), head: nn.Linear(64, 10)}.items():
        model.add_module(name, part)
    return spread(model)


@pytest.mark.parametrize("blocks", [3, 5])
def test_projected_shortcuts(tmp_path, blocks):
    expected = reference(blocks)
    torch.save(expected.state_dict(), tmp_path / "weights.pt")
    model, x = load_resnet(tmp_path / "weights.pt").eval(), torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(model(x), expected(x), rtol=1e-5, atol=1e-5)
    assert model.head == "fc"


def test_shortcuts_without_parameters(tmp_path):
    expected = reference(3, "linear")
    state = {f"module.{name}": value for name, value in expected.state_dict().items()}
    torch.save({"state_dict": state, "best_prec1": 91.7}, tmp_path / "weights.th")
    model, x = load_resnet(tmp_path / "weights.th").eval(), torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(model(x), expected(x), rtol=1e-5, atol=1e-5)
    assert model.head == "linear"


@pytest.mark.skipif(not DATA.exists(), reason="needs the public checkpoint")
def test_the_public_checkpoint_is_read():
    assert load_resnet(DATA / "cifar10_resnet20.th").head == "linear"


def test_the_number_of_parameters_is_the_published_one():
    counts = [sum(x.numel() for x in CifarResNet(head=head).parameters()) for head in ("fc", "linear")]
    assert counts == [272_474, 269_722]


@pytest.mark.parametrize("wrap", [dict, lambda state: {"state_dict": dict(state)}])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_wrappings(tmp_path, wrap, prefix):
    model = write_resnet(tmp_path / "plain.pt")
    torch.save(wrap({f"{prefix}{name}": x for name, x in model.state_dict().items()}), tmp_path / "wrapped.pt")
    again = load_resnet(tmp_path / "wrapped.pt").state_dict()
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())


def without(name):
    state = CifarResNet().state_dict()
    del state[name]
    return state


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": torch.zeros(2)}, r"neither fc.weight nor linear.weight among 1 names such as \['a'\]"),
        (without("layer2.0.downsample.0.weight"), r"Missing key.*layer2\.0\.downsample\.0\.weight"),
        (without("bn1.weight"), r"Missing key.*bn1\.weight"),
        (torch.zeros(3), "a Tensor that is no state dict"),
        ({"state_dict": 3}, "a dict that is no state dict"),
        (nn.Linear(2, 2), "UnpicklingError: Weights only load failed"),
    ],
)
def test_other_files(tmp_path, content, message):
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=rf"weights\.pt: expected the weights of a ResNet for CIFAR .*, got {message}"):
        load_resnet(tmp_path / "weights.pt")


def test_a_file_that_is_no_checkpoint(tmp_path):
    (tmp_path / "weights.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"weights\.pt: expected the weights of a ResNet"):
        load_resnet(tmp_path / "weights.pt")


def test_names(tmp_path):
    with pytest.raises(ValueError, match=r"expected a file of weights or one of cifar10_resnet20, .*, got 'resnet18'"):
        find_weights("resnet18", "")


def test_offline(offline):
    with pytest.raises(ConnectionError, match=r"could not fetch cifar10_resnet20-4118986f\.pt of chenyaofo"):
        find_weights("cifar10_resnet20", "--checkpoint FILE")


def test_what_torch_hub_has_is_not_fetched_again(tmp_path, offline):
    path = Path(torch.hub.get_dir()) / "checkpoints" / "cifar10_resnet20-4118986f.pt"
    path.parent.mkdir(parents=True)
    write_resnet(path)
    assert find_weights("cifar10_resnet20", "") == path


def test_a_download_is_checked(tmp_path, monkeypatch):
    """Through torch.hub, from a local address: weights that are not the published ones are refused."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(resnet, "ADDRESS", tmp_path.as_uri())
    source = tmp_path / "weights.pt"
    write_resnet(source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    for check, fits in (("00000000", False), (digest, True)):
        monkeypatch.setitem(resnet.WEIGHTS, "cifar10_resnet20", f"resnet20-{check}.pt")
        source.rename(tmp_path / f"resnet20-{check}.pt")
        source = tmp_path / f"resnet20-{check}.pt"
        if fits:
            assert find_weights("cifar10_resnet20", "").read_bytes() == source.read_bytes()
        else:
            with pytest.raises(ConnectionError, match="invalid hash value"):
                find_weights("cifar10_resnet20", "")
