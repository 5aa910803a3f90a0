"""The probe as modules: after a classifier, and around one."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from .. import functional
from ..finding import classes_last, find_logits
from ..functional.checks import check_trials


class ProbeOutput(NamedTuple):
    """What the probe says of each row of logits, without the class axis.

    Attributes:
        prediction: the top class, int64.
        confidence: the largest softmax probability.
        dominance: the mean chance that the top class beats a rival.
        gap: the coherence gap, dominance - confidence.
        concentration: where the dominance lies between the bounds that the confidence forces, in [0, 1].
        p_value: of the expected wins, float64.
        score: log of the p-value, float64; higher = more in-distribution.
    """

    prediction: Tensor
    confidence: Tensor
    dominance: Tensor
    gap: Tensor
    concentration: Tensor
    p_value: Tensor
    score: Tensor


class BoCProbe(nn.Module):
    """Logits in, `ProbeOutput` out. It has no parameters and no buffers.

    Args:
        trials: the number of coin flips of the test.

    >>> BoCProbe()(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).gap
    tensor([0.2109])
    """

    def __init__(self, trials: int = 100) -> None:
        super().__init__()
        self.trials = check_trials(trials)

    def forward(self, logits: Tensor) -> ProbeOutput:
        """Probe logits of shape (..., C)."""
        coins = functional.bag_of_coins(logits)
        score = functional.log_p_value(coins, self.trials)
        return ProbeOutput(
            coins.prediction,
            coins.confidence,
            coins.dominance,
            coins.gap,
            coins.concentration,
            score.exp(),
            score,
        )

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return f"trials={self.trials}"


@dataclass
class BoCOutput:
    """What a wrapped classifier returns.

    Attributes:
        logits: the classifier's logits, as found in its output.
        probe: what the probe says of them.
        output: the classifier's own output, untouched.
    """

    logits: Tensor
    probe: ProbeOutput
    output: Any

    def __getattr__(self, name: str) -> Any:
        """The fields of the probe under their own names: `result.gap` is `result.probe.gap`."""
        if name in ProbeOutput._fields:
            return getattr(self.probe, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; it has {_names()}")


# torch.export returns only what it knows how to take apart, and saves only what has a name.
torch.export.register_dataclass(BoCOutput, serialized_type_name="torch_boc.nn.BoCOutput")
_register_namedtuple(ProbeOutput, serialized_type_name="torch_boc.nn.ProbeOutput")


def _names() -> str:
    return ", ".join([field.name for field in fields(BoCOutput)] + list(ProbeOutput._fields))


class BoCClassifier(nn.Module):
    """A classifier that answers with its coherence: calls `model` with whatever it takes, and probes the logits.

    The weights stay where they are: `classifier.model.load_state_dict` takes a checkpoint of the model as it is.

    To deploy it: `torch.export.export(classifier, (x,), dynamic_shapes={"args": ({0: torch.export.Dim.DYNAMIC},)})`.
    `torch.onnx.export` takes the same, with `dynamo=True` and `output_names=["logits", *ProbeOutput._fields]`; in the
    ONNX model the model's own output comes after these.

    Args:
        model: returns logits, in any form that `torch_boc.finding.find_logits` knows.
        trials: the number of coin flips of the test.
        dim: the class axis; by default the last. Logits with four axes or more need it: 1 for segmentation.

    >>> classifier = BoCClassifier(torch.nn.Linear(5, 3))
    >>> result = classifier(torch.ones(2, 5))
    >>> result.logits.shape, result.gap.shape
    (torch.Size([2, 3]), torch.Size([2]))
    """

    def __init__(self, model: nn.Module, trials: int = 100, *, dim: int | None = None) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        self.model, self.dim = model, dim
        self.probe = BoCProbe(trials)

    def forward(self, *args: Any, **kwargs: Any) -> BoCOutput:
        """The model's output, its logits, and what the probe says of them."""
        output = self.model(*args, **kwargs)
        logits = find_logits(output)
        return BoCOutput(logits, self.probe(classes_last(logits, self.dim)), output)
