"""A digest of values of many kinds, which is the same in every process."""

import argparse
import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .hashing import hash_tensor

PLAIN_TYPES = (bool, int, float, complex, str, bytes, torch.dtype, torch.Size, torch.layout, torch.memory_format)
DEPTH = 16  # how deep nested values are read; only values that contain themselves are deeper


class ValueDigest:
    """A running digest of named values, which collects the names of values that it cannot read.

    Args:
        unknown: the list in which these names are collected.
        module_name: called for a value that is a module, with the name and the module. The text that it returns stands
            for the module, which is read elsewhere.
    """

    def __init__(self, unknown: list[str], module_name: Callable[[str, nn.Module], str] | None = None) -> None:
        self._state, self._unknown, self._module_name = hashlib.sha256(), unknown, module_name

    def add(self, name: str, value: Any) -> None:
        """Add a value to the digest."""
        self._state.update(f"|{name}=".encode())
        self._feed(name, value, DEPTH)

    def text(self) -> str:
        """The digest as text."""
        return self._state.hexdigest()[:16]

    def _feed(self, name: str, value: Any, depth: int) -> None:
        read = self._scalar(value)
        if isinstance(value, nn.Module) and self._module_name is not None:
            read = self._module_name(name, value)
        if read is None and depth:
            read = self._container(name, value, depth - 1)
        if read is None:
            self._unknown.append(f"{name} ({type(value).__name__})")
            read = type(value).__qualname__
        self._state.update(f"{type(value).__name__}:{read};".encode())

    def _scalar(self, value: Any) -> str | None:
        """The value as text, if it is a single value."""
        if value is None or isinstance(value, PLAIN_TYPES):
            return repr(value)
        if isinstance(value, enum.Enum | type):
            return f"{value!r}" if isinstance(value, enum.Enum) else f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, Tensor):
            known = hash_tensor(value)
            return None if known is None else known.hex()
        if isinstance(value, torch.device | torch.Generator):
            return ""  # where a model runs is not part of what it is
        if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
            return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        return None

    def _container(self, name: str, value: Any, depth: int) -> str | None:
        """Add the parts of the value, if it has any."""
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)
        if isinstance(value, Mapping):
            value = list(value.items())
        if isinstance(value, functools.partial):
            value = (value.func, value.args, value.keywords)
        if isinstance(value, types.MethodType):
            value = (value.__func__, value.__self__)
        if isinstance(value, types.FunctionType):
            value = _code(value)
        if isinstance(value, types.BuiltinFunctionType | torch._C.ScriptFunction):
            return str(getattr(value, "__qualname__", type(value)))
        if isinstance(value, list | tuple):
            for part in value:
                self._feed(name, part, depth)
            return str(len(value))
        if not _is_record(value):
            return None
        return self._container(name, {key: x for key, x in vars(value).items() if not key.startswith("_")}, depth)


def _is_record(value: Any) -> bool:
    """Whether the public attributes of an object say all about it, as for settings of Hugging Face or argparse."""
    known = dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace | argparse.Namespace)
    return known or (callable(getattr(value, "to_dict", None)) and hasattr(value, "__dict__"))


def _code(function: types.FunctionType) -> Any:
    """The code of a function as plain values, which are the same in every process.

    It includes the functions and the plain values of the same file that the function uses by name, and in turn those
    that these functions use.
    """
    waiting, parts = [function], []
    for current in waiting:  # the list grows in the loop
        used = {name: current.__globals__.get(name) for name in sorted(_names(current.__code__))}
        called = [x for x in used.values() if isinstance(x, types.FunctionType)]
        waiting += [x for x in called if x.__globals__ is current.__globals__ and x not in waiting]
        plain = [(name, x) for name, x in used.items() if isinstance(x, (*PLAIN_TYPES, Tensor))]
        held = [_content(cell) for cell in current.__closure__ or ()]
        parts.append((_code_values(current.__code__), current.__defaults__, current.__kwdefaults__, held, plain))
    return parts


def _names(code: types.CodeType) -> set[str]:
    """The names that a function looks up, including the functions that are defined inside of it."""
    inner = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return {x for x in code.co_names if not x.startswith("__")}.union(*map(_names, inner))


def _code_values(code: types.CodeType) -> Any:
    constants = [_code_values(x) if isinstance(x, types.CodeType) else x for x in code.co_consts]
    return code.co_code, code.co_names, constants


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a closure variable without a value yet
        return None
