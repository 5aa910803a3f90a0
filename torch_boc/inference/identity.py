"""Digests of a model, by which a later run knows whether it has the same model."""

import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from ..nn import ConformalTest
from .values import PLAIN_TYPES, ValueDigest

# The attributes that every module has: its registries, and the mode, which is eval in every run.
OURS = frozenset(vars(nn.Module()))


class ModelIdentity(NamedTuple):
    """Digests of a model, and the names of the values that could not be read for them."""

    weights: str
    code: str
    attributes: str
    unknown: list[str]

    def described(self) -> dict[str, str]:
        """The digests, under the names that errors use."""
        return {"weights": self.weights, "code of the model": self.code, "attributes of the model": self.attributes}


def identify(model: nn.Module) -> ModelIdentity:
    """Read all weights of a model once, and as much of its code and attributes as can be read.

    - Weights: parameters, buffers (also those that no checkpoint keeps) and everything else in the state dict.
    - Code: the classes of the modules, their settings (`extra_repr`), and the bytecode of classes outside of torch. The
      functions, numbers, texts and tensors of the same file that this code uses by name are part of it.
    - Attributes: plain values of the modules, such as `model.temperature = 2.0` (numbers, texts, tensors, functions,
      and lists and dicts of these), and the hooks of the forward.

    Modules in lists or dicts, which are in no checkpoint, count like registered ones. Metrics are left out, because
    they take no part in the forward.
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
    """The modules of a model by name, without metrics. Unregistered modules are added when they are found.

    Attributes:
        found: name and module, each module once.
    """

    def __init__(self, model: nn.Module) -> None:
        self.found: list[tuple[str, nn.Module]] = []
        self._names: dict[int, str] = {}
        self._roots: dict[str, nn.Module] = {}
        self.name_of("", model)

    def name_of(self, where: str, module: nn.Module) -> str:
        """The name of a module. A new module gets the name `where`, with a mark for each earlier one found there."""
        if id(module) not in self._names and not _is_metric(module):
            while where in self._roots:
                where += "'"
            self._roots[where] = module
            self._add(where, module)
        return self._names.get(id(module), "")

    def weights(self, name: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
        """The weights of the module itself; for a root module, also the other entries of its state dict."""
        for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield _joined(name, key), value
        if self._roots.get(name) is module:
            yield from ((_joined(name, key), value) for key, value in _extra_state(module))

    def _add(self, name: str, module: nn.Module) -> None:
        if id(module) in self._names or _is_metric(module):
            return
        self._names[id(module)] = name
        self.found.append((name, module))
        for key, child in module.named_children():
            self._add(_joined(name, key), child)


def warn_of(unknown: list[str]) -> None:
    """Warn about the parts of the model that could not be compared with the earlier session."""
    if unknown:
        names = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        warnings.warn(
            f"resume cannot tell whether {names} changed since the earlier session; if it did, start over. "
            "If you give a run_id=, which names the model and the data, there is no such warning",
            stacklevel=3,
        )


def _extra_state(root: nn.Module) -> Iterator[tuple[str, Any]]:
    """The entries of a state dict that are neither parameters nor buffers: extra state, packed quantised weights."""
    metrics = tuple(f"{name}." for name, x in root.named_modules() if _is_metric(x))
    named = {name for name, _ in root.named_parameters(remove_duplicate=False)}
    named |= {name for name, _ in root.named_buffers(remove_duplicate=False)}
    for name, value in root.state_dict().items():
        if name not in named and not name.startswith(metrics):
            yield name, value


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The attributes of a module that are neither weights nor submodules, and the hooks of its forward."""
    for key, value in sorted(vars(module).items()):
        if key not in OURS and not (_has_private_state(module) and key.startswith("_") and key != "_hparams"):
            yield key, value
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    if hooks:
        yield "forward hooks", hooks


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _has_private_state(module: nn.Module) -> bool:
    """Whether private attributes change while the module runs: those of Lightning's modules, and what a test remembers.

    What a test answers depends on its buffers and public attributes.
    """
    return isinstance(module, ConformalTest) or any(x.__name__ == "LightningModule" for x in type(module).__mro__)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The functions and plain values of a class and its bases, without those of torch."""
    for base in kind.__mro__:
        if base is object or base.__module__.partition(".")[0] == "torch":
            continue
        for name, value in sorted(vars(base).items()):
            value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(value, types.FunctionType) or (not name.startswith("__") and isinstance(value, PLAIN_TYPES)):
                yield name, value


def _is_metric(module: Any) -> bool:
    """Whether a module is a metric of torchmetrics. If nobody has imported it, which takes seconds, nothing is one."""
    kind = getattr(sys.modules.get("torchmetrics"), "Metric", None)
    return kind is not None and isinstance(module, kind)
