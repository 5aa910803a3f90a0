"""The scores of other people's detectors. All have the same sign: higher = more in-distribution."""

from typing import Any

import torch
from torch import Tensor, nn

from .._optional import require
from ..core.chunking import map_chunks
from ..core.dtypes import accumulation_dtype, to_wide
from ..data.extract import find_logits
from ..data.logit_set import LogitSet
from ..inference.device import device_of, evaluating
from ..inference.indexing import as_loader
from .inputs import row_blocks

BATCH_SIZE = 128
COLUMN = (
    "compute its scores from the model's inputs (higher = more in-distribution) and give them alongside the logits of "
    "each set, as in {'logits': logits, 'vim': -detector(inputs)}; for ODIN there is odin_scores(model, loader)"
)
# The ridge of pytorch-ood. A direction whose variance is below this part of the largest has rounding errors only.
RIDGE, NO_VARIANCE = 1e-6, 1e-10


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
        batches: a loader of x or (x, ...), a dataset, or a tensor of all inputs.
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
    library = require("pytorch_ood", "detector", purpose="ODIN needs").detector
    detector = library.ODIN(lambda x: to_wide(find_logits(model(x))), eps=epsilon, temperature=temperature)
    parts = []
    # pytorch-ood warns in inference mode, and needs gradients.
    with evaluating(model), torch.inference_mode(False):
        for batch in as_loader(batches, BATCH_SIZE):
            inputs = batch[0] if isinstance(batch, list | tuple) and batch else batch
            if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
                got = f"dtype {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
                expected = "expected batches x or (x, ...) of floating-point tensors, which ODIN can perturb"
                raise TypeError(f"{expected}, got {got}")
            parts.append(_checked(-detector.predict(inputs.to(place)), len(inputs), "ODIN"))
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
    predict = getattr(detector, "predict_logits", None) or getattr(detector, "predict_features", None)
    needs_inputs = hasattr(detector, "predict")
    if predict is None and (needs_inputs or not callable(detector)):
        raise TypeError(
            "expected a callable on logits or a pytorch-ood detector with predict_logits or predict_features, "
            f"got {name}" + (f", which needs the model's inputs; {COLUMN}" if needs_inputs else "")
        )
    try:
        with torch.no_grad():
            if predict is None:
                values = detector(logits.to(accumulation_dtype(logits.dtype)))
            else:
                values = -predict(logits.float())
    except Exception as error:
        error.add_note(f"in detector {name!r}, on logits of shape {tuple(logits.shape)}")
        if predict is not None:
            error.add_note(f"a detector must be fitted before, and on logits; for one of features or inputs, {COLUMN}")
        raise
    return _checked(values, len(logits), name)


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


def mahalanobis_scores(train: LogitSet, *sets: Tensor) -> list[Tensor]:
    """Minus half the squared Mahalanobis distance of logits to the nearest class mean.

        -½ min_c (z - μ_c)ᵀ S⁻¹ (z - μ_c),    S = Σ_i (z_i - μ_{y_i})(z_i - μ_{y_i})ᵀ + 1e-6 I

    with the means μ_c and the scatter S (a sum, not divided by N) of the training logits. This is the definition of
    `pytorch_ood.detector.Mahalanobis`, in float64. pytorch-ood works in float32, which is not enough here: the rows of
    logits of a trained network have almost the same sum, so S is nearly singular. On the zoo's ResNet-20 its scores are
    wrong by up to 18 %. For the same reason all logits should have the same precision. A direction in which the
    training logits do not vary is left out, because there the ridge would turn rounding errors into large distances. A
    class without training samples has no mean and is not considered.

    Args:
        train: training logits with targets. All logits must be finite.
        sets: logits to score, each (M, C) and finite.

    Returns:
        For each set, its scores (M,) in float64 on the CPU, higher = more in-distribution.

    >>> train = LogitSet(torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 2.0], [1.0, 3.0]]), torch.tensor([0, 0, 1, 1]))
    >>> mahalanobis_scores(train, torch.tensor([[2.5, 0.0], [9.0, 9.0]]))[0].round(decimals=2).tolist()
    [-0.0, -46.25]
    """
    if train.target is None:
        raise ValueError(f"{train.name}: expected training logits with targets, got none; give (logits, target)")
    _check_finite(train.logits, train.name)
    classes, target = train.num_classes, train.target.cpu().long()
    means = torch.zeros(classes, classes, dtype=torch.float64)
    for rows, labels in row_blocks(train.logits, target):
        means.index_add_(0, labels, _wide(rows))
    means /= torch.bincount(target, minlength=classes).unsqueeze(1)  # NaN for a class without samples
    scatter = torch.zeros_like(means)
    for rows, labels in row_blocks(train.logits, target):
        centred = _wide(rows) - means[labels]
        scatter += centred.T @ centred
    variance, directions = torch.linalg.eigh(scatter)
    if variance.amax() <= 0:
        raise ValueError(f"{train.name}: expected training logits that differ within a class, got {len(train)} rows")
    kept = variance > NO_VARIANCE * variance.amax()
    whitening: Tensor = directions[:, kept] / (variance[kept] + RIDGE).sqrt()  # W with W Wᵀ = S⁻¹
    means = means[~means.isnan().any(1)]
    origin = means.mean(0)  # without a shift that all logits have, the products lose fewer digits
    centres = (means - origin) @ whitening

    def score(logits: Tensor) -> tuple[Tensor]:
        nearest = torch.cdist((_wide(logits) - origin) @ whitening, centres).amin(1)
        return (-0.5 * nearest.square(),)

    for logits in sets:
        if logits.ndim != 2 or logits.shape[1] != classes:
            raise ValueError(f"expected logits of shape (M, {classes}) as in training, got {tuple(logits.shape)}")
        _check_finite(logits, "logits to score")
    return [map_chunks(score, logits)[0] for logits in sets]


def _wide(logits: Tensor) -> Tensor:
    return logits.detach().to("cpu", torch.float64)


def _check_finite(logits: Tensor, name: str) -> None:
    bad = ~logits.isfinite().all(1)
    if bool(bad.any()):
        got = f"{int(bad.sum())} of {len(bad)} rows with inf or NaN; leave out classes that are masked with -inf"
        raise ValueError(f"{name}: expected finite logits for Mahalanobis, got {got}")
