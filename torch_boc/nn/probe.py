"""Modules that put the probe after a classifier, or around one."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from ..data.finding import classes_last, find_logits
from ..functional.checks import check_trials
from ..functional.columns import check_columns, probe_columns


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


class BoCProbe(nn.Module):
    """Turns logits into a `ProbeOutput`, or into a dict of chosen columns. It has no parameters and no buffers.

    Args:
        trials: the number of coin flips of the test.
        columns: which columns of `torch_boc.functional.sample_columns` to return, as a dict in this order, instead of a
            `ProbeOutput`. Other columns are not computed.

    >>> BoCProbe()(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).free_gap
    tensor([0.0105])
    >>> BoCProbe(columns=["prediction", "energy"])(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    {'prediction': tensor([0]), 'energy': tensor([2.4402])}
    """

    def __init__(self, trials: int = 100, *, columns: Sequence[str] | None = None) -> None:
        super().__init__()
        self.trials = check_trials(trials)
        self.columns = None if columns is None else check_columns(columns)

    def forward(self, logits: Tensor) -> ProbeOutput | dict[str, Tensor]:
        """Probe logits of shape (..., C)."""
        found = probe_columns(logits, trials=self.trials, columns=self.columns or ProbeOutput._fields)
        return ProbeOutput(**found) if self.columns is None else found

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return f"trials={self.trials}" + ("" if self.columns is None else f", columns={list(self.columns)}")


@dataclass
class BoCOutput:
    """What a wrapped classifier returns.

    Attributes:
        logits: the classifier's logits, as found in its output.
        probe: what the probe says of them.
        output: the classifier's own output, unchanged.
    """

    logits: Tensor
    probe: ProbeOutput | dict[str, Tensor]
    output: Any

    def __getattr__(self, name: str) -> Any:
        """Short names for the fields of the probe: `result.gap` is `result.probe.gap`."""
        probe = self.__dict__.get("probe", ())
        known = probe._asdict() if isinstance(probe, ProbeOutput) else dict(probe)
        if name in known:
            return known[name]
        names = [field.name for field in fields(self)] + list(known or ProbeOutput._fields)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; it has {', '.join(names)}")


# torch.export can return only types that it knows how to take apart, and can save only those with a registered name.
torch.export.register_dataclass(BoCOutput, serialized_type_name="torch_boc.nn.BoCOutput")
_register_namedtuple(ProbeOutput, serialized_type_name="torch_boc.nn.ProbeOutput")


class BoCClassifier(nn.Module):
    """A classifier that also returns the probe of its logits. All arguments of a call go to `model`.

    The names of the weights do not change: `classifier.model.load_state_dict` takes a checkpoint of the model.

    To deploy it: `torch.export.export(classifier, (x,), dynamic_shapes={"args": ({0: torch.export.Dim.DYNAMIC},)})`.
    `torch.onnx.export` takes the same, with `dynamo=True` and `output_names=["logits", *ProbeOutput._fields]`; in the
    ONNX model the model's own output comes after these.

    Args:
        model: returns logits, in any form that `torch_boc.data.finding.find_logits` knows.
        trials: the number of coin flips of the test.
        dim: the class axis; by default the last. Logits with four axes or more need it: 1 for segmentation.
        columns: as for `BoCProbe`.

    >>> classifier = BoCClassifier(torch.nn.Linear(5, 3))
    >>> result = classifier(torch.ones(2, 5))
    >>> result.logits.shape, result.gap.shape
    (torch.Size([2, 3]), torch.Size([2]))
    """

    def __init__(
        self, model: nn.Module, trials: int = 100, *, dim: int | None = None, columns: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        self.model, self.dim = model, dim
        self.probe = BoCProbe(trials, columns=columns)

    def forward(self, *args: Any, **kwargs: Any) -> BoCOutput:
        """The model's output, its logits, and what the probe says of them."""
        output = self.model(*args, **kwargs)
        logits = find_logits(output)
        return BoCOutput(logits, self.probe(classes_last(logits, self.dim)), output)
