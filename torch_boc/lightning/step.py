"""A step of a strategy, observed from outside: its losses, and the outputs of the modules that it calls."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from torch import nn
from torch.jit import ScriptModule
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

# The warning of torch about a compiled module while `ModuleCalls` is active; no hook fires twice here.
GLOBAL_HOOKS = "Using `torch.compile.module.` when there are global hooks"


class StepShadow:
    """A step of a strategy that runs inside of the contexts of all callbacks that watch it.

    Other callbacks' losses are outside of it, and so are the backward pass and the optimizer.
    """

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner, self.watchers = inner, list[Callable[..., AbstractContextManager[Any]]]()

    def __call__(self, *args: Any) -> Any:
        """Run the step."""
        with ExitStack() as stack:
            for watch in self.watchers:
                stack.enter_context(watch(*args))
            return self.inner(*args)


def watch_step(strategy: Any, step: str, watch: Callable[..., AbstractContextManager[Any]]) -> Callable[[], None]:
    """Run each `step` of a strategy inside of `watch(*args)`; returns a function that ends this, without a trace."""
    shadow = vars(strategy).get(step)
    if not isinstance(shadow, StepShadow):
        shadow = StepShadow(getattr(strategy, step))
        setattr(strategy, step, shadow)
    shadow.watchers.append(watch)

    def end() -> None:
        shadow.watchers.remove(watch)
        if not shadow.watchers and vars(strategy).get(step) is shadow:
            delattr(strategy, step)
            if getattr(strategy, step) != shadow.inner:  # a patch of another library
                setattr(strategy, step, shadow.inner)

    return end


class ModuleCalls(ExitStack):
    """Records what the modules return that a step calls itself, while it runs. Compiled code sees no hook of it.

    Args:
        wrapped: whether the step runs inside of a call of a wrapper, such as that of DDP, which is none of its calls.
        compiled: whether it may call a module of `torch.compile`, which warns of the hook. Hiding a warning makes
            Python repeat others, so it is done only for these.
    """

    def __init__(self, *, wrapped: bool, compiled: bool) -> None:
        super().__init__()
        self._wrapped, self._compiled = wrapped, compiled
        self.outputs: list[tuple[nn.Module, Any]] = []

    def __enter__(self) -> Self:
        if self._compiled:
            self.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", GLOBAL_HOOKS)
        self._handle = register_module_forward_pre_hook(self._before)
        self.callback(lambda: self._handle.remove())
        return self

    def _before(self, module: nn.Module, args: Any) -> None:
        if self._wrapped:
            self._wrapped = getattr(module.forward, "__name__", "") != "wrapped_forward"  # Lightning's redirection
            return
        self._handle.remove()  # not for the modules inside of this one
        scripted = isinstance(module, ScriptModule)  # it takes no hook of its own, and calls none inside
        register = register_module_forward_hook if scripted else module.register_forward_hook
        self._handle = register(self._after, always_call=True)  # after an error that the step catches, too

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        self._handle.remove()
        self.outputs.append((module, output))
        self._handle = register_module_forward_pre_hook(self._before)
