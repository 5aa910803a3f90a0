"""What the modules return: named tensors that torch.export can take apart and save."""

import warnings
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import _register_namedtuple


class ProbeOutput(NamedTuple):
    """The numbers of the probe for each row of logits, without the class axis.

    Attributes:
        prediction: the top class, int64.
        confidence: the largest softmax probability.
        dominance: the mean chance that the top class beats a rival.
        gap: the coherence gap, dominance - confidence.
        forced_gap: the part of the gap that the confidence alone forces.
        free_gap: the part that the geometry of the logits adds. This is the part that tells more than the confidence.
        concentration: where the dominance lies between the bounds that the confidence forces, in [0, 1].
        p_value: the p-value of the expected wins, float64.
        log_p_value: the logarithm of the p-value, float64; higher = more in-distribution.
    """

    prediction: Tensor
    confidence: Tensor
    dominance: Tensor
    gap: Tensor
    forced_gap: Tensor
    free_gap: Tensor
    concentration: Tensor
    p_value: Tensor
    log_p_value: Tensor


class ScreenedOutput(NamedTuple):
    """The numbers of the probe and of a conformal test for each row of logits, without the class axis.

    Attributes:
        prediction: this and the fields after it, up to `log_p_value`, are those of `ProbeOutput`.
        p_in_distribution: the p-value of `ConformalTest`, float64: small for samples that score lower than almost all
            held-out samples; NaN for rows with NaN or +inf.
        review: whether a person should look at the sample: its `p_in_distribution` is at most alpha, or NaN.
    """

    prediction: Tensor
    confidence: Tensor
    dominance: Tensor
    gap: Tensor
    forced_gap: Tensor
    free_gap: Tensor
    concentration: Tensor
    p_value: Tensor
    log_p_value: Tensor
    p_in_distribution: Tensor
    review: Tensor


@dataclass
class BoCOutput:
    """What a wrapped classifier returns.

    Attributes:
        logits: the classifier's logits, as found in its output.
        probe: what the probe says of them, and the test if there is one.
        output: the classifier's own output, unchanged.
    """

    logits: Tensor
    probe: ProbeOutput | ScreenedOutput | dict[str, Tensor]
    output: Any

    def __getattr__(self, name: str) -> Any:
        """Short names for the fields of the probe: `result.gap` is `result.probe.gap`."""
        probe = self.__dict__.get("probe", ())
        known = probe._asdict() if isinstance(probe, ProbeOutput | ScreenedOutput) else dict(probe)
        if name in known:
            return known[name]
        names = [field.name for field in fields(self)] + list(known or ProbeOutput._fields)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; it has {', '.join(names)}")


# torch.export can return only types that it knows how to take apart, and can save only those with a registered name.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # torch 2.7 warns that it calls its own old name
    torch.export.register_dataclass(BoCOutput, serialized_type_name="torch_boc.nn.BoCOutput")
_register_namedtuple(ProbeOutput, serialized_type_name="torch_boc.nn.ProbeOutput")
_register_namedtuple(ScreenedOutput, serialized_type_name="torch_boc.nn.ScreenedOutput")
