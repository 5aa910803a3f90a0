"""What makes two runs the same: the model, as far as it can be known."""

import types
import warnings
from collections.abc import Iterator
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
    torch, with the functions, numbers, texts and tensors of the same file that these use by name. The attributes are
    plain values (numbers, texts, tensors, functions, and lists and the like of them) that modules hold, such as
    `model.temperature = 2.0`, and the hooks of the forward. Modules in such lists, which no checkpoint knows, count as
    the others do. Metrics are left out, since they do not take part in the forward.
    """
    unknown: list[str] = []
    modules = _Modules(model)
    weights, attributes = ValueDigest(unknown, modules.name_of), ValueDigest(unknown, modules.name_of)
    code, kinds = ValueDigest([], modules.name_of), set()
    for name, module in modules.found:  # the list grows while values are read
        for key, value in modules.weights(name, module):
            weights.add(key, value)
        code.add(name, (type(module), module.extra_repr()))
        if isinstance(module, torch.jit.ScriptModule):
            unknown.append(f"{name or 'model'} (TorchScript)")
            continue
        for key, value in _attributes(module):
            attributes.add(_joined(name, key), value)
        for member, value in _members(type(module)) if type(module) not in kinds else ():
            code.add(f"{type(module).__qualname__}.{member}", value)
        kinds.add(type(module))
    return ModelIdentity(weights.text(), code.text(), attributes.text(), list(dict.fromkeys(unknown)))


class _Modules:
    """The modules of a model by name, without metrics; those that are not registered join when they are met.

    Attributes:
        found: name and module, each module once.
    """

    def __init__(self, model: nn.Module) -> None:
        self.found: list[tuple[str, nn.Module]] = []
        self._names: dict[int, str] = {}
        self._roots: dict[str, nn.Module] = {}
        self.name_of("", model)

    def name_of(self, where: str, module: nn.Module) -> str:
        """The name of a module: if it was not known, `where` and a sign for each module that was met there before."""
        if id(module) not in self._names and not isinstance(module, Metric):
            while where in self._roots:
                where += "'"
            self._roots[where] = module
            self._add(where, module)
        return self._names.get(id(module), "")

    def weights(self, name: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
        """Every weight of a module itself; at a root, also what else is in its state dict."""
        for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield _joined(name, key), value
        if self._roots.get(name) is module:
            yield from ((_joined(name, key), value) for key, value in _extra_state(module))

    def _add(self, name: str, module: nn.Module) -> None:
        if id(module) in self._names or isinstance(module, Metric):
            return
        self._names[id(module)] = name
        self.found.append((name, module))
        for key, child in module.named_children():
            self._add(_joined(name, key), child)


def warn_of(unknown: list[str]) -> None:
    """Say what of the model was not compared with the earlier session."""
    if unknown:
        names = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        warnings.warn(
            f"resume cannot tell whether {names} changed since the earlier session; if so, start over. "
            "A run_id= of your own says which model and data it is, and ends this warning",
            stacklevel=3,
        )


def _extra_state(root: nn.Module) -> Iterator[tuple[str, Any]]:
    """What is in a state dict beside parameters and buffers: extra state, and packed weights of quantised layers."""
    metrics = tuple(f"{name}." for name, x in root.named_modules() if isinstance(x, Metric))
    named = {name for name, _ in root.named_parameters(remove_duplicate=False)}
    named |= {name for name, _ in root.named_buffers(remove_duplicate=False)}
    for name, value in root.state_dict().items():
        if name not in named and not name.startswith(metrics):
            yield name, value


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module holds beside its weights and submodules, and the hooks of its forward."""
    for key, value in sorted(vars(module).items()):
        if key not in OURS and not (_is_lightning(module) and key.startswith("_") and key != "_hparams"):
            yield key, value
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    if hooks:
        yield "forward hooks", hooks


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


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
