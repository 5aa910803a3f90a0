"""Check the arguments of the metrics, and bring them into the form that the metrics use."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..functional.registry import scores


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is a string, or raise."""
    if not isinstance(prefix, str):
        raise TypeError(f"expected prefix as a string such as 'boc_', got {type(prefix).__name__}")
    return prefix


def with_prefix(prefix: str, result: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The result under keys that begin with `prefix`."""
    return {f"{prefix}{key}": value for key, value in result.items()}


def check_scores(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` if all are names of scores, or raise."""
    if isinstance(names, str) or not names or not set(names) <= set(scores):
        raise ValueError(f"expected scores as names among {', '.join(scores)}, got {names!r}")
    return tuple(names)


def check_thresholds(thresholds: int | None) -> int | None:
    """Return `thresholds` if it is None or a valid number of bins, or raise."""
    if thresholds is not None and not (2 <= thresholds <= 2**24 and thresholds.bit_count() == 1):
        raise ValueError(f"expected thresholds as None or a power of two from 2 to 2**24, got {thresholds}")
    return thresholds


def flat_flags(ood: Tensor | bool, shape: torch.Size, device: torch.device) -> Tensor:
    """One flag for each row of logits, as a tensor with one axis."""
    if isinstance(ood, bool):
        return torch.full((shape.numel(),), ood, device=device)
    if not isinstance(ood, Tensor) or ood.dtype != torch.bool:
        kind = f"dtype {ood.dtype}" if isinstance(ood, Tensor) else type(ood).__name__
        raise TypeError(f"expected ood as a bool or a tensor of booleans, got {kind}; convert with ood.bool()")
    if ood.ndim and ood.shape != shape:
        raise ValueError(f"expected ood as one boolean or of shape {tuple(shape)}, got shape {tuple(ood.shape)}")
    if ood.ndim == 1 and ood.device == device:
        return ood
    return ood.to(device).expand(shape).reshape(-1)


def state_suffix(*, dim: int, **arguments: object) -> str:
    """The arguments as part of a state's name. It has no dots, because a state dict reads a dot as a path.

    The class axis is included only if it is not 1, the default.
    """
    named = arguments if dim == 1 else {**arguments, "dim": dim}
    return "_".join(f"{name}_{value}" for name, value in named.items()).replace(".", "p").replace("-", "m")
