"""A digest of values of many kinds, the same in another process."""

import argparse
import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .hashing import hash_tensor

PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.Size, torch.layout, torch.memory_format)
DEPTH = 16  # of values in values; only what contains itself is deeper


class ValueDigest:
    """A running digest of named values, which collects the names of values that it cannot read."""

    def __init__(self, unknown: list[str]) -> None:
        self._state, self._unknown = hashlib.sha256(), unknown

    def add(self, name: str, value: Any) -> None:
        """Count a value in."""
        self._state.update(f"|{name}=".encode())
        self._feed(name, value, DEPTH)

    def text(self) -> str:
        """What came of it."""
        return self._state.hexdigest()[:16]

    def _feed(self, name: str, value: Any, depth: int) -> None:
        read = self._scalar(value)
        if read is None and depth:
            read = self._container(name, value, depth - 1)
        if read is None:
            self._unknown.append(f"{name} ({type(value).__name__})")
            read = type(value).__qualname__
        self._state.update(f"{type(value).__name__}:{read};".encode())

    def _scalar(self, value: Any) -> str | None:
        """The value as text, if it is one value."""
        if value is None or isinstance(value, PLAIN):
            return repr(value)
        if isinstance(value, enum.Enum | type):
            return f"{value!r}" if isinstance(value, enum.Enum) else f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, Tensor):
            known = hash_tensor(value)
            return None if known is None else known.hex()
        if isinstance(value, torch.device | torch.Generator | nn.Module):
            return ""  # where it runs is no part of what it is; modules are visited by themselves
        return None

    def _container(self, name: str, value: Any, depth: int) -> str | None:
        """Reads the parts of the value, if it has any."""
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)
        if isinstance(value, Mapping):
            value = list(value.items())
        if isinstance(value, functools.partial):
            value = (value.func, value.args, value.keywords)
        if isinstance(value, types.MethodType):
            value = value.__func__
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
    """Whether all that an object is stands in its public attributes: settings, as of Hugging Face or of argparse."""
    known = dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace | argparse.Namespace)
    return known or (callable(getattr(value, "to_dict", None)) and hasattr(value, "__dict__"))


def _code(function: types.FunctionType) -> Any:
    """What a function does, as plain values; the same in another process."""
    held = [_content(cell) for cell in function.__closure__ or ()]
    return _code_values(function.__code__), function.__defaults__, function.__kwdefaults__, held


def _code_values(code: types.CodeType) -> Any:
    constants = [_code_values(x) if isinstance(x, types.CodeType) else x for x in code.co_consts]
    return code.co_code, code.co_names, constants


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
