"""The classifiers of the experiments: found on this machine or on their hubs, fetched and loaded.

ResNets for CIFAR-10 come in two published layouts; only their weights are downloaded, no code. Those of
chenyaofo/pytorch-cifar-models have projections in their shortcuts (`downsample`) and a head called `fc`. Those of
akamaster/pytorch_resnet_cifar10 have shortcuts without parameters and a head called `linear`. The two were trained
with different normalisations of the images.
"""

import fnmatch
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from benchmarks.paper.sources import TIMEOUT, fetching

RESNET20 = "cifar10_resnet20"
WEIGHTS = "https://github.com/chenyaofo/pytorch-cifar-models/releases/download/resnet/cifar10_resnet20-4118986f.pt"
# The mean and the standard deviation of the channels in training, by the name of the head.
NORMALISATION = {
    "fc": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "linear": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
WIDTHS = (16, 16, 32, 64)
# The files of a model on the hub: what belongs to it, and its weights in the one format or the other.
COMPANIONS, FORMATS = ("*.json", "*.txt"), ("model*.safetensors", "pytorch_model*.bin")


class Block(nn.Module):
    """Two convolutions and a shortcut.

    Where the width changes, the shortcut takes every second pixel. If `projected`, a convolution makes the new
    channels; otherwise they are zeros.
    """

    def __init__(self, inside: int, outside: int, *, projected: bool) -> None:
        super().__init__()
        self.stride, self.added = (1 if inside == outside else 2), outside - inside
        self.conv1 = nn.Conv2d(inside, outside, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample: nn.Module | None = None
        if projected and self.added:
            convolution = nn.Conv2d(inside, outside, 1, self.stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inside, H, W) to (N, outside, H / stride, W / stride)."""
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            return relu(y + self.downsample(x))
        filled = self.added // 2
        return relu(y + pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, filled, filled)))


class CifarResNet(nn.Module):
    """Three stages of `blocks` blocks: normalised images (N, 3, 32, 32) to logits (N, C).

    Args:
        blocks: the number of blocks in each stage; 3 for ResNet-20.
        num_classes: the number of classes, C.
        head: "fc" with projected shortcuts, or "linear" with shortcuts without parameters.
    """

    def __init__(self, blocks: int = 3, num_classes: int = 10, head: str = "fc") -> None:
        super().__init__()
        self.head = head
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        for stage, (inside, outside) in enumerate(pairwise(WIDTHS), 1):
            sizes = [(inside, outside), *[(outside, outside)] * (blocks - 1)]
            layer = nn.Sequential(*(Block(*size, projected=head == "fc") for size in sizes))
            self.add_module(f"layer{stage}", layer)
        self.add_module(head, nn.Linear(WIDTHS[-1], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        x = relu(self.bn1(self.conv1(x)))
        for stage in ("layer1", "layer2", "layer3"):
            x = self.get_submodule(stage)(x)
        return self.get_submodule(self.head)(x.mean((2, 3)))


def load_resnet(path: Path) -> CifarResNet:
    """The model of a checkpoint. This is a state dict, or holds one as "state_dict"; names may begin with `module.`."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    state = {name.removeprefix("module."): value for name, value in content.get("state_dict", content).items()}
    head = next((head for head in NORMALISATION if f"{head}.weight" in state), None)
    if head is None:
        got = f"{len(state)} names such as {list(state)[:2]}"
        raise ValueError(f"{path}: expected the weights of a ResNet for CIFAR (conv1, ..., fc), got {got}")
    blocks = len({name.split(".")[1] for name in state if name.startswith("layer1.")})
    model = CifarResNet(blocks, len(state[f"{head}.weight"]), head)
    model.load_state_dict(state)
    return model


def find_model(name: str) -> Path | None:
    """The file or the folder of a model on this machine, if it is there: a path, or a name that was fetched before."""
    if Path(name).exists():
        return Path(name)
    if name == RESNET20:
        return _resnet_path() if _resnet_path().exists() else None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    for weights in FORMATS:
        try:
            folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=[*COMPANIONS, weights]))
        except LocalEntryNotFoundError:
            continue
        except HFValidationError as error:
            raise ValueError(f"expected a file, a folder or a name on the hub as the model, got {name!r}") from error
        if any(folder.glob(weights)):
            return folder
    return None


def list_model(name: str) -> dict[str, float]:
    """The files of a model that is not on this machine, and their megabytes."""
    if name == RESNET20:
        return {WEIGHTS: 1.1}
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    listing = None
    with fetching(f"{name} from the Hugging Face hub"), suppress(RepositoryNotFoundError):
        # One request without repetition. A download would try again for minutes, with a message each time.
        listing = HfApi().model_info(name, timeout=TIMEOUT, files_metadata=True).siblings
    if listing is None:
        raise ValueError(f"expected a public model, got {name!r}, which the Hugging Face hub does not know")
    sizes = {file.rfilename: (file.size or 0) / 1e6 for file in listing}
    weights = next((pattern for pattern in FORMATS if fnmatch.filter(sizes, pattern)), None)
    if weights is None:
        raise ValueError(f"{name}: expected weights as {' or '.join(FORMATS)}, got none on the hub")
    return {file: sizes[file] for pattern in (*COMPANIONS, weights) for file in fnmatch.filter(sizes, pattern)}


def fetch_model(name: str, files: Iterable[str]) -> None:
    """Download the files of a model, to the folder in which `find_model` looks."""
    with fetching(name):
        if name == RESNET20:
            path = _resnet_path()
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(WEIGHTS, str(path), path.stem.split("-")[1], progress=False)
        else:
            from huggingface_hub import snapshot_download

            snapshot_download(name, allow_patterns=list(files))


def _resnet_path() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(WEIGHTS).name


def digest_model(path: Path) -> str:
    """A short text that is different for different models at `path`."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    digests = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


class Classifier(NamedTuple):
    """A model in eval mode and what belongs to it.

    Attributes:
        model: answers with logits.
        prepare: makes the model's arguments, by name, from images (N, 3, 32, 32) in uint8 or from texts.
        columns: for each class of the data, its place among the model's classes; None if the order is the same.
    """

    model: nn.Module
    prepare: Callable[[Any], dict[str, Tensor]]
    columns: list[int] | None = None


def load_model(kind: str, path: Path, classes: Sequence[str], device: torch.device | str = "cpu") -> Classifier:
    """The classifier at `path` of the experiment `kind`, on `device`."""
    model, prepare = {"vit": _load_vit, "resnet": _load_cifar_resnet, "roberta": _load_roberta}[kind](path)
    columns = match_classes(getattr(getattr(model, "config", None), "id2label", None), classes)
    return Classifier(model.float().eval().to(device), prepare, columns)


def match_classes(names: dict[int, str] | None, classes: Sequence[str]) -> list[int] | None:
    """The place of each class of the data among the classes of a model.

    None if the order is the same, or if the names of the classes do not tell.

    >>> match_classes({0: "Sports", 1: "World"}, ("World", "Sports"))
    [1, 0]
    >>> match_classes({0: "LABEL_0", 1: "LABEL_1"}, ("World", "Sports"))
    """
    given = [str(name).lower() for _, name in sorted((names or {}).items())]
    wanted = [name.lower() for name in classes]
    if given == wanted or sorted(given) != sorted(wanted):
        return None
    return [given.index(name) for name in wanted]


def _load_cifar_resnet(path: Path) -> tuple[nn.Module, Any]:
    model = load_resnet(path)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in NORMALISATION[model.head])
    return model, lambda pixels: {"x": (pixels / 255 - mean) / std}


def _load_vit(folder: Path) -> tuple[nn.Module, Any]:
    model, processor = _load_pretrained(folder, "AutoModelForImageClassification", "AutoImageProcessor")

    def prepare(pixels: Tensor) -> dict[str, Tensor]:
        inputs = processor(images=list(pixels), input_data_format="channels_first", return_tensors="pt")
        return {"pixel_values": inputs["pixel_values"]}

    return model, prepare


def _load_roberta(folder: Path) -> tuple[nn.Module, Any]:
    model, tokenizer = _load_pretrained(folder, "AutoModelForSequenceClassification", "AutoTokenizer")
    # RoBERTa counts positions from the padding index on. The tokenizers of some checkpoints have no limit of their own.
    longest = model.config.max_position_embeddings - (model.config.pad_token_id or 0) - 1
    options = {"truncation": True, "padding": True, "max_length": min(longest, tokenizer.model_max_length)}

    def prepare(texts: list[str]) -> dict[str, Tensor]:
        batch = tokenizer(texts, return_tensors="pt", **options)
        return {name: batch[name] for name in ("input_ids", "attention_mask")}

    return model, prepare


def _load_pretrained(folder: Path, kind: str, companion: str) -> tuple[Any, Any]:
    import transformers

    other = getattr(transformers, companion).from_pretrained(folder, local_files_only=True)
    model, info = getattr(transformers, kind).from_pretrained(folder, local_files_only=True, output_loading_info=True)
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:2])
        raise ValueError(f"{folder}: expected the weights of a trained classifier, got none for {missing}")
    return model, other
