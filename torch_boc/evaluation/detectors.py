"""The scores of other people's detectors. All have the same sign: higher = more in-distribution."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._optional import require
from ..core.precision import accumulator, widen
from ..data.finding import find_logits
from ..inference.device import device_of, evaluating
from ..inference.loaders import as_loader
from .mahalanobis import mahalanobis_scores

BATCH_SIZE = 128
COLUMN = (
    "compute its scores from the model's inputs (higher = more in-distribution) and give them beside the logits of "
    "each set, as in {'logits': logits, 'vim': -detector(inputs)}; for ODIN there is odin_scores(model, loader)"
)

__all__ = ["detector_scores", "mahalanobis_scores", "odin_scores"]


def odin_scores(
    model: nn.Module,
    batches: Any,
    *,
    temperature: float = 1000.0,
    epsilon: float = 0.0014,
    device: torch.device | str | int | None = None,
) -> Tensor:
    """ODIN: the largest softmax probability at a high temperature, after a small step towards the prediction.

        max_c softmax(f(x')/T)_c,    x' = x - ε sign ∇_x (-log softmax(f(x)/T)_ŷ)

    It is computed by `pytorch_ood.detector.ODIN`, without its `norm_std`: ε is in the units of the inputs as the model
    takes them, after any normalisation. The softmax is computed in float64, because at T = 1000 all scores are close to
    1/C. The model runs in eval mode, and afterwards its modules have their earlier modes again; its gradients do not
    change.

    Args:
        model: a classifier that takes one floating-point tensor and returns logits (N, C), in any form that
            `BoCClassifier` takes.
        batches: a loader of x or (x, ...), a data set, or a tensor of all inputs.
        temperature: T.
        epsilon: ε.
        device: where to run; the model is moved there. By default it stays where its first parameter is.

    Returns:
        (N,) scores in float64 on the CPU, higher = more in-distribution.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
    if not temperature > 0 or not epsilon >= 0:
        raise ValueError(f"expected temperature > 0 and epsilon >= 0, got {temperature} and {epsilon}")
    model = model if device is None else model.to(device)
    place = device_of(model)
    detector = _pytorch_ood().ODIN(_WideLogits(model), eps=epsilon, temperature=temperature)
    parts = []
    # pytorch-ood warns in inference mode, and needs gradients.
    with evaluating(model), torch.inference_mode(False):
        for batch in as_loader(batches, BATCH_SIZE):
            inputs = _inputs(batch).to(place)
            parts.append(_checked(-detector.predict(inputs), len(inputs), "ODIN"))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def detector_scores(detector: Any, logits: Tensor, name: str | None = None) -> Tensor:
    """The scores that a callable or a fitted detector of pytorch-ood gives to logits.

    Args:
        detector: a callable that takes logits (N, C), at least in float32, and returns N scores, higher = more
            in-distribution. Or a detector of pytorch-ood with `predict_logits`, or with `predict_features` if it was
            fitted on logits; it is given float32, and its scores are negated, because higher scores of pytorch-ood
            mean more out-of-distribution.
        logits: (N, C).
        name: the name of the detector in messages; by default its own name.

    Returns:
        (N,) in float64 on the CPU, higher = more in-distribution.

    >>> detector_scores(lambda logits: logits.amax(1), torch.tensor([[2.0, 1.0], [0.0, 5.0]]))
    tensor([2., 5.], dtype=torch.float64)
    """
    name = name or str(getattr(detector, "__name__", type(detector).__name__))
    predict = _predict(detector)
    with torch.no_grad():
        if predict is not None:
            return _checked(-_answer(predict, logits.float(), name), len(logits), name)
        needs_inputs = hasattr(detector, "predict")
        if needs_inputs or not callable(detector):
            raise TypeError(
                "expected a callable on logits or a pytorch-ood detector with predict_logits or predict_features, "
                f"got {name}" + (f", which needs the model's inputs; {COLUMN}" if needs_inputs else "")
            )
        return _checked(detector(logits.to(accumulator(logits.dtype))), len(logits), name)


class _WideLogits(nn.Module):
    """The logits of a model in float64."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return widen(find_logits(self.model(x)))


def _pytorch_ood() -> Any:
    return require("pytorch_ood", "detector", purpose="ODIN needs").detector


def _inputs(batch: Any) -> Tensor:
    inputs = batch[0] if isinstance(batch, list | tuple) and batch else batch
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        got = f"dtype {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise TypeError(f"expected batches x or (x, ...) of floating-point tensors, which ODIN can perturb, got {got}")
    return inputs


def _predict(detector: Any) -> Callable[[Tensor], Tensor] | None:
    for name in ("predict_logits", "predict_features"):
        method: Callable[[Tensor], Tensor] | None = getattr(detector, name, None)
        if method is not None:
            return method
    return None


def _answer(predict: Callable[[Tensor], Tensor], logits: Tensor, name: str) -> Tensor:
    try:
        return predict(logits)
    except Exception as error:
        if type(error).__name__ == "RequiresFittingException":
            raise ValueError(f"expected a fitted detector, got {name}; fit it on training logits first") from error
        on_features = getattr(predict, "__name__", "") == "predict_features"
        if not on_features or not isinstance(error, RuntimeError | TypeError | ValueError):
            raise
        raise ValueError(
            f"expected a detector fitted on logits, here of shape {tuple(logits.shape)}, got {name}, which cannot take "
            f"them for its features ({error}); {COLUMN}"
        ) from error


def _checked(scores: Any, samples: int, name: str) -> Tensor:
    """The scores in float64 on the CPU; an error unless there is one finite score for each sample."""
    try:
        values = torch.as_tensor(scores, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected {samples} scores, got a {type(scores).__name__} ({error})") from None
    if values.shape != (samples,):
        raise ValueError(f"{name}: expected scores of shape ({samples},), got {tuple(values.shape)}")
    bad = ~values.isfinite()
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise ValueError(f"{name}: expected finite scores, got {int(bad.sum())} with NaN or inf, first in row {first}")
    return values
