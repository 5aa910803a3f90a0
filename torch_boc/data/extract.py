"""The logits in what a model returns, and the targets in a batch: one rule for every loop.

Nothing is guessed. What fits no rule, or more than one, is an error that lists the candidates.
"""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

LOGIT_NAMES = ("logits", "out")  # "out" is the name in torchvision's segmentation models
TARGET_NAMES = ("labels", "label", "targets", "target", "y", "y_true", "ground_truth")
# The heads whose outputs have no softmax, as `config.problem_type` of transformers names them.
OTHER_HEADS = ("multi_label_classification", "regression")


def check_head(model: Any, *, binary: bool = False) -> None:
    """Raise if the configuration of a model of transformers rules out that its outputs are the logits of one softmax.

    A head with one label is for regression unless `problem_type` is another.

    With `binary`, a head with one label, whose single logit is that of a binary classifier, is accepted.
    """
    config = getattr(getattr(model, "module", model), "config", None)  # DistributedDataParallel has a `module`
    kind, outputs = getattr(config, "problem_type", None), getattr(config, "num_labels", None)
    if (kind in OTHER_HEADS or outputs == 1) and not (binary and outputs == 1 and kind != "regression"):
        raise ValueError(
            f"expected a classifier with one class per sample, got a head with problem_type={kind!r} and "
            f"num_labels={outputs}; for one label of a multi-label head, wrap the model in a module that returns the "
            "logits (0, z) of that label"
        )


def find_logits(output: Any) -> Tensor:
    """The logits in a model's output.

    If the output is a tensor, it is the logits. In a mapping or an object they are called "logits" or "out". In a tuple
    or list they are the only floating-point tensor with two or more axes, as in (loss, logits).

    >>> find_logits({"loss": torch.tensor(0.5), "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    named = output if isinstance(output, Mapping) else {name: getattr(output, name, None) for name in LOGIT_NAMES}
    candidates = {f"{name!r}": named[name] for name in LOGIT_NAMES if isinstance(named.get(name), Tensor)}
    if not candidates and isinstance(output, tuple | list):
        for i, x in enumerate(output):  # tuples, lists and mappings inside of it count too: they may hold logits
            nested = isinstance(x, tuple | list | Mapping) and len(x) > 0
            if nested or (isinstance(x, Tensor) and x.ndim > 1 and x.is_floating_point()):
                candidates[f"[{i}]"] = x
    first = next(iter(candidates.values()), None)
    if len(candidates) == 1 and isinstance(first, Tensor):
        return first
    several = f", in which {' and '.join(candidates)} may be the logits" if candidates else ""
    raise TypeError(
        "expected a model output that is a tensor, has one tensor called 'logits' or 'out', or is a tuple with one "
        f"tensor of logits, got {describe(output)}{several}; wrap the model in a module whose forward returns the "
        "logits, as in `return self.model(x)[0]`"
    )


def find_submodule(module: nn.Module, name: str) -> nn.Module:
    """The submodule of this name, or an error that names similar ones."""
    try:
        return module.get_submodule(name)
    except AttributeError:
        near = get_close_matches(name, [other for other, _ in module.named_modules() if other], 3, 0.4)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        kind = type(module).__name__
        raise ValueError(f"expected the name of a submodule of {kind}, got {name!r}{hint}") from None


def check_source(model: nn.Module, logits: Any, *, binary: bool = False) -> None:
    """Raise unless `call_model` can take the logits from there."""
    if isinstance(logits, str):
        find_submodule(model, logits)
    elif logits is None:
        check_head(model, binary=binary)
    elif not callable(logits):
        got = type(logits).__name__
        raise TypeError(f"expected logits as None, the name of a submodule or a function of the output, got {got}")


def call_model(
    model: nn.Module, logits: str | Callable[[Any], Any] | None, args: Any, kwargs: Mapping[str, Any]
) -> tuple[Any, Tensor]:
    """Call a model; return its output, and the logits.

    Args:
        model: the classifier.
        logits: None to find them in the output; the name of the submodule that returns them; or a function of the
            output.
        args: the positional arguments of the call.
        kwargs: its arguments by name.

    >>> model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Softmax(-1))
    >>> output, logits = call_model(model, "0", (torch.ones(2, 5),), {})
    >>> torch.equal(output, logits.softmax(-1))
    True
    """
    if not isinstance(logits, str):
        output = model(*args, **kwargs)
        return output, find_logits(output if logits is None else logits(output))
    outputs: list[Any] = []
    hook = find_submodule(model, logits).register_forward_hook(lambda module, args, output: outputs.append(output))
    try:
        output = model(*args, **kwargs)
    finally:
        hook.remove()
    if len(outputs) != 1:
        raise TypeError(
            f"expected one call of the submodule {logits!r}, got {len(outputs)}; give a function of the output"
        )
    return output, find_logits(outputs[0])


def split_batch(batch: Any, *, inputs: Collection[str] = ()) -> tuple[Any, Any]:
    """The inputs of a batch and its target, or None. A batch is x, (x,), (x, target) or a mapping with a named target.

    Args:
        batch: what a loader yields.
        inputs: names that the model requires as inputs. A value with such a name is never the target.

    >>> split_batch({"x": 1, "labels": 2})
    ({'x': 1}, 2)
    """
    if isinstance(batch, Mapping):
        named = {name: x for name, x in named_targets(batch).items() if name not in inputs}
        target = _only({name: x for name, x in named.items() if x is not None})
        return {name: x for name, x in batch.items() if name not in named}, target
    if isinstance(batch, list | tuple):
        if len(batch) == 1:
            return split_batch(batch[0], inputs=inputs)
        if len(batch) == 2:
            return batch[0], batch[1]
        raise ValueError(
            f"expected a batch x, (x, target) or a mapping, got a {type(batch).__name__} of {len(batch)}; "
            "with several inputs let the loader yield ((x1, x2), target) or a mapping; if the last are sample IDs, "
            "give the predictor id='name'"
        )
    return batch, None


def find_target(
    outputs: Any, batch: Any, logits: Tensor, *, dim: int | None = None, binary: bool = False
) -> Tensor | None:
    """The targets of a step, class indices with the shape of the logits without the class axis; None if there are none.

    They are looked for by name in the outputs and in the batch, and then as the second of a pair (x, y). A tensor in
    these places that does not fit is an error, because without its target a sample would count that should not.

    Args:
        outputs: what the step returned.
        batch: what the loader gave.
        logits: with the classes on `dim`, or on the second or last axis if it is None.
        dim: the class axis.
        binary: for single logits: targets may have any dtype, and an axis of size 1 for the class.
    """
    groups = [named_targets(x) for x in map(fields, (outputs, batch))]
    groups += [{"[1]": batch[1]}] if isinstance(batch, tuple | list) and len(batch) == 2 else []
    for named in groups:
        fitting, errors = dict[str, Tensor](), list[ValueError]()
        for name, x in named.items():
            try:
                fitting |= {name: fit_target(x, logits, name, dim=dim, binary=binary)} if isinstance(x, Tensor) else {}
            except ValueError as error:
                errors.append(error)
        if fitting:
            target: Tensor = _only(fitting)
            return target
        if errors:
            raise errors[0]
    return None


def fit_target(
    target: Any, logits: Tensor, name: str = "target", *, dim: int | None = None, binary: bool = False
) -> Tensor:
    """Return class indices with the shape of the logits without the class axis, or raise; axes of size 1 may differ.

    >>> fit_target(torch.zeros(8, 1, 4, 4, dtype=torch.long), torch.zeros(8, 3, 4, 4)).shape
    torch.Size([8, 4, 4])
    """
    shape = tuple(logits.shape)
    axes = {1, logits.ndim - 1} if dim is None else {dim % logits.ndim}
    shapes = sorted({(*shape[:axis], *shape[axis + 1 :]) for axis in axes})
    if isinstance(target, Tensor) and not target.is_complex():
        classes = binary or not (target.is_floating_point() or target.dtype == torch.bool)
        fitting = [x for x in shapes if _long(x) == _long(target.shape)]
        if classes and fitting:
            return target if binary or tuple(target.shape) in fitting else target.reshape(fitting[0])
    wanted = " or ".join(map(str, shapes))
    got = (
        f"{name} of shape {tuple(target.shape)}, dtype {target.dtype}"
        if isinstance(target, Tensor)
        else describe(target)
    )
    raise ValueError(f"expected targets of shape {wanted}, as integer class indices, got {got}")


def fields(x: Any) -> dict[str, Any]:
    """The entries of a mapping or of an object of the user's, such as a dataclass."""
    return dict(x) if isinstance(x, Mapping) else dict(getattr(x, "__dict__", ()))


def named_targets(batch: Mapping[Any, Any]) -> dict[str, Any]:
    """The entries of a mapping whose keys are names of targets."""
    return {name: batch[name] for name in TARGET_NAMES if name in batch}


def describe(value: Any) -> str:
    """What kind of thing a value is, and what it holds, for a message."""
    if isinstance(value, Mapping):
        parts = ", ".join(f"{key!r}: {_kind(x)}" for key, x in value.items())
        return f"a {type(value).__name__} with {parts or 'no keys'}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(dict.fromkeys(map(_kind, value))) or 'nothing'}"
    return "nothing" if value is None else f"a {_kind(value)}"


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)  # tensors, and arrays of any library
    return f"{type(value).__name__} {tuple(shape)}" if isinstance(shape, tuple) else type(value).__name__


def _only(targets: dict[str, Any]) -> Any:
    """The one target, or None. The same object under two names is one target."""
    different = {id(x): x for x in targets.values()}
    if len(different) > 1:
        got = " and ".join(map(repr, targets))
        raise ValueError(f"expected one target, got {got}; rename the one that is not the target")
    return next(iter(different.values()), None)


def _long(shape: Collection[int]) -> list[int]:
    return [size for size in shape if size != 1]
