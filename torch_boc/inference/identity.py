"""What makes two runs the same: the model, as far as it can be known."""

import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torchmetrics import Metric

from .values import PLAIN, ValueDigest

OURS = frozenset(vars(nn.Module()))  # what every module has: its registries, and the mode, which is eval in every run


class ModelIdentity(NamedTuple):
    """Digests of a model, and the names of what they say nothing about."""

    weights: str
    code: str
    attributes: str
    unknown: list[str]

    def described(self) -> dict[str, str]:
        """The digests by the name that an error gives them."""
        return {"weights": self.weights, "code of the model": self.code, "attributes of the model": self.attributes}


def identify(model: nn.Module) -> ModelIdentity:
    """Read all weights and buffers once, and what else of a model can be read.

    The weights are parameters, buffers (those that no checkpoint keeps too) and whatever else is in the state dict. The
    code is the classes of the modules, their settings (`extra_repr`) and the compiled functions of classes outside of
    torch. The attributes are plain values (numbers, texts, tensors, functions, and lists and the like of them) that
    modules hold, such as `model.temperature = 2.0`. Metrics are left out, since they do not take part in the forward.
    """
    unknown: list[str] = []
    metrics = [name for name, x in model.named_modules() if isinstance(x, Metric)]
    modules = {name: x for name, x in model.named_modules() if not _is_within(name, metrics)}
    weights, attributes, code = ValueDigest(unknown), ValueDigest(unknown), ValueDigest([])
    for name, value in _weights(model, modules):
        if not _is_within(name, metrics):
            weights.add(name, value)
    for name, module in modules.items():
        code.add(name, (type(module), module.extra_repr()))
        if isinstance(module, torch.jit.ScriptModule):
            unknown.append(f"{name or 'model'} (TorchScript)")
            continue
        for key, value in sorted(vars(module).items()):
            if key not in OURS and not (_is_lightning(module) and key.startswith("_") and key != "_hparams"):
                attributes.add(f"{name}.{key}".lstrip("."), value)
    for kind in dict.fromkeys(map(type, modules.values())):
        for member, value in _members(kind):
            code.add(f"{kind.__qualname__}.{member}", value)
    return ModelIdentity(weights.text(), code.text(), attributes.text(), list(dict.fromkeys(unknown)))


def warn_of(unknown: list[str]) -> None:
    """Say what of the model was not compared with the earlier session."""
    if unknown:
        names = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        warnings.warn(
            f"resume cannot tell whether {names} changed since the earlier session; if so, start over. "
            "A run_id= of your own says which model and data it is, and ends this warning",
            stacklevel=3,
        )


def _weights(model: nn.Module, modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, Any]]:
    """Every weight under every one of its names."""
    seen = set()
    for prefix, module in modules.items():
        for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            seen.add(name := f"{prefix}.{key}".lstrip("."))
            yield name, value
    for name, value in model.state_dict().items():
        if name not in seen:  # extra state, and packed weights of quantised layers
            yield name, value


def _is_within(name: str, others: Iterable[str]) -> bool:
    """Whether a module or a weight belongs to one of other modules."""
    return any(name == other or name.startswith(f"{other}.") for other in others)


def _is_lightning(module: nn.Module) -> bool:
    """Whether the private attributes are those of Lightning, which change as its trainer runs."""
    return any(x.__name__ == "LightningModule" for x in type(module).__mro__)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The functions and plain values of a class and its bases, but for those of torch."""
    for base in kind.__mro__:
        if base is object or base.__module__.partition(".")[0] == "torch":
            continue
        for name, value in sorted(vars(base).items()):
            value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(value, types.FunctionType) or (not name.startswith("__") and isinstance(value, PLAIN)):
                yield name, value
