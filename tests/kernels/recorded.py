"""Launches that are recorded in place of being made, and compiled as Triton would compile them for a GPU."""

import sys
from typing import Any, NamedTuple

from torch_boc.kernels.triton import launch


class Launch(NamedTuple):
    """A kernel, its grid, its arguments in order, and its constants and options by name."""

    kernel: Any
    grid: tuple
    arguments: tuple
    options: dict


def record(monkeypatch) -> list[Launch]:
    """A list that every launch is added to from now on; nothing runs."""
    launches = []

    def add(kernel, grid, like, *arguments, **options):
        launches.append(Launch(kernel, grid, arguments, options))

    _replace(monkeypatch, add)
    return launches


def watch(monkeypatch) -> list[str]:
    """A list that the name of every kernel is added to when it starts."""
    names, start = [], launch.launch

    def add(kernel, *arguments, **options):
        names.append(kernel.__name__)
        start(kernel, *arguments, **options)

    _replace(monkeypatch, add)
    return names


def _replace(monkeypatch, function) -> None:
    """Put `function` in the place of `launch.launch` wherever it was imported."""
    start = launch.launch
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_boc.kernels") and getattr(module, "launch", None) is start:
            monkeypatch.setattr(module, "launch", function)


def bind(found: Launch, target: tuple):
    """The source of a kernel for one GPU with what Triton finds of its arguments, the options, and the key of both."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    kernel, backend = found.kernel, make_backend(GPUTarget(*target))
    options = {**found.options, "debug": False}
    bound, specialization, rest = create_function_from_signature(kernel.signature, kernel.params, backend)(
        *found.arguments, **options
    )
    parsed, signature, constants, attributes = kernel._pack_args(backend, options, bound, specialization, rest)
    key = (kernel.__name__, str(specialization), str(sorted(found.options.items())))
    return ASTSource(kernel, signature, constants, attributes), parsed, key


def compile_launch(found: Launch, target: tuple) -> dict:
    """What becomes of a kernel, from its first form to the code of the GPU."""
    import triton
    from triton.backends.compiler import GPUTarget

    source, options, _ = bind(found, target)
    return triton.compile(source, target=GPUTarget(*target), options=options.__dict__).asm
