"""The classifiers of the experiments: found, fetched and loaded."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._optional import quiet_transformers, require
from .cache import digest_files
from .fetch import TIMEOUT, fetching
from .protocol import Experiment
from .resnet import NORMALISATION, find_weights, load_resnet
from .samples import Inputs

WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin")
# One file of each group must exist.
NEEDED = {
    "images": (("config.json",), WEIGHT_FILES, ("preprocessor_config.json", "processor_config.json")),
    "texts": (("config.json",), WEIGHT_FILES, ("tokenizer.json", "vocab.json")),
}
LOADED = ("*.json", "*.txt", *WEIGHT_FILES)


class Classifier(NamedTuple):
    """A model in eval mode and what belongs to it.

    Attributes:
        model: answers with logits.
        prepare: makes the model's arguments, by name, from inputs.
        columns: for each class of the data, its place among the model's classes; None if the order is the same.
    """

    model: nn.Module
    prepare: Callable[[Inputs], dict[str, Tensor]]
    columns: list[int] | None = None


def find_model(experiment: Experiment, model: str | None = None, checkpoint: Path | None = None) -> Path:
    """The folder or the file from which a model is loaded; it is downloaded if it is not on this machine.

    Args:
        experiment: the experiment to which the model belongs.
        model: a name on the hub, a folder of `save_pretrained`, or, for a ResNet, a file; by default that of the
            experiment.
        checkpoint: a file with the weights of a ResNet.
    """
    if experiment.name != "resnet":
        if checkpoint is not None:
            raise ValueError(
                f"expected --checkpoint for resnet alone, got it for {experiment.name}; use --model FOLDER"
            )
        return _find_pretrained(experiment, model or experiment.model)
    if model is not None and checkpoint is not None:
        raise ValueError("expected either --model or --checkpoint, got both")
    if checkpoint is not None and not checkpoint.is_file():
        raise FileNotFoundError(f"{checkpoint}: no such file")
    return find_weights(str(checkpoint or model or experiment.model), experiment.local)


def digest_model(path: Path) -> str:
    """A short text that is different for different models at `path`."""
    if path.is_file():
        return digest_files([path])
    return digest_files({file for pattern in LOADED for file in path.glob(pattern)})


def load_model(experiment: Experiment, path: Path, device: torch.device | str = "cpu") -> Classifier:
    """The classifier at `path`, on `device`."""
    load = {"vit": _load_vit, "resnet": _load_resnet, "roberta": _load_roberta}[experiment.name]
    model, prepare = load(path)
    columns = match_classes(getattr(getattr(model, "config", None), "id2label", None), experiment.classes)
    return Classifier(model.float().eval().to(device), prepare, columns)


def match_classes(names: dict[int, str] | None, classes: Sequence[str]) -> list[int] | None:
    """The place of each class of the data among the classes of a model.

    None if the order is the same, or if the names of the classes do not tell.

    >>> match_classes({0: "Sports", 1: "World"}, ("World", "Sports"))
    [1, 0]
    >>> match_classes({0: "LABEL_0", 1: "LABEL_1"}, ("World", "Sports"))
    """
    known = [str(name).lower() for _, name in sorted((names or {}).items())]
    wanted = [name.lower() for name in classes]
    if known == wanted or sorted(known) != sorted(wanted):
        return None
    return [known.index(name) for name in wanted]


def _load_resnet(path: Path) -> tuple[nn.Module, Any]:
    model = load_resnet(path)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in NORMALISATION[model.head])
    return model, lambda pixels: {"x": (pixels / 255 - mean) / std}


def _load_vit(folder: Path) -> tuple[nn.Module, Any]:
    model, processor = _load_pretrained(folder, "AutoModelForImageClassification", "AutoImageProcessor")

    def prepare(pixels: Inputs) -> dict[str, Tensor]:
        found = processor(images=list(pixels), input_data_format="channels_first", return_tensors="pt")
        return {"pixel_values": found["pixel_values"]}

    return model, prepare


def _load_roberta(folder: Path) -> tuple[nn.Module, Any]:
    model, tokenizer = _load_pretrained(folder, "AutoModelForSequenceClassification", "AutoTokenizer")
    # RoBERTa counts positions from the padding index on. The tokenizers of some checkpoints have no limit of their own.
    longest = model.config.max_position_embeddings - (model.config.pad_token_id or 0) - 1
    options = {"truncation": True, "padding": True, "max_length": min(longest, tokenizer.model_max_length)}

    def prepare(texts: Inputs) -> dict[str, Tensor]:
        found = tokenizer(list(texts), return_tensors="pt", **options)
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    return model, prepare


def _load_pretrained(folder: Path, kind: str, companion: str) -> tuple[Any, Any]:
    transformers = require("transformers", purpose="vit and roberta need")
    try:
        with quiet_transformers(transformers):
            other = getattr(transformers, companion).from_pretrained(folder, local_files_only=True)
            model, info = getattr(transformers, kind).from_pretrained(
                folder, local_files_only=True, output_loading_info=True
            )
    except Exception as error:  # for a damaged file, each library raises its own errors
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{folder}: expected a folder of save_pretrained, got {type(error).__name__}: {reason}"
        ) from error
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:2])
        raise ValueError(f"{folder}: expected the weights of a trained classifier, got none for {missing}")
    return model, other


def _find_pretrained(experiment: Experiment, name: str) -> Path:
    folder, needed = Path(name), NEEDED[experiment.kind]
    if folder.is_dir():
        lacking = _lacking(folder, needed)
        if lacking:
            raise ValueError(f"{folder}: expected a folder of save_pretrained, got one without {lacking}")
        return folder
    hub = require("huggingface_hub", purpose="the hub needs")
    try:
        cached = Path(hub.snapshot_download(name, local_files_only=True))
    except ValueError as error:
        raise ValueError(f"expected --model as a folder or a name on the hub, got {name!r}") from error
    except OSError:
        cached = None
    return cached if cached is not None and not _lacking(cached, needed) else _fetch_pretrained(hub, name, experiment)


def _fetch_pretrained(hub: Any, name: str, experiment: Experiment) -> Path:
    with fetching(f"{name} from the Hugging Face hub", experiment.local):
        # One request without repetition. A download would try again for minutes, with a message each time.
        files = [file.rfilename for file in hub.HfApi().model_info(name, timeout=TIMEOUT).siblings or ()]
        weights = WEIGHT_FILES[0 if any(file.endswith(".safetensors") for file in files) else 1]
        folder = Path(hub.snapshot_download(name, allow_patterns=["*.json", "*.txt", weights]))
    lacking = _lacking(folder, NEEDED[experiment.kind])
    if lacking:
        raise ValueError(f"{name}: expected a model of transformers for {experiment.kind}, got one without {lacking}")
    return folder


def _lacking(folder: Path, needed: Sequence[Sequence[str]]) -> str:
    return ", ".join(" or ".join(group) for group in needed if not any(any(folder.glob(name)) for name in group))
