"""The probe in the evaluation loop of `transformers.Trainer`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .functional.coins import Coins
from .functional.precision import widen
from .functional.samples import Samples, take_samples
from .functional.summary import LABELLED_KEYS, SHORT_KEYS, check_keys
from .metrics import BoCMetric

try:
    from transformers import EvalPrediction
except ImportError as error:
    raise ImportError(
        "expected the transformers library, got none; install it with pip install 'torch-boc[transformers]'"
    ) from error

# What `preprocess` makes of each sample, in this order; without labels the first four.
COLUMNS = ("prediction", "odds", "loss", "concentration", "target", "distance")
# Trainer fills up what it gathers with this value; no odds are negative, so it also marks what is ignored.
PADDING = -100
# How many samples are tallied at once: the tokens of a whole evaluation may be many.
BLOCK = 2**20


class BoCTrainerMetrics:
    """Logs `eval_boc_gap`, `eval_boc_free_gap`, ... from `transformers.Trainer`: `Trainer(..., **boc.arguments())`.

    `preprocess` makes six numbers of each row of logits, on the device and before anything is gathered, so that neither
    memory nor traffic grows with the number of classes; the call itself makes the metrics of them. These numbers are
    what `trainer.predict` returns as `predictions`, in the order of `COLUMNS`: the class is `predictions[..., 0]`.

    Logits have the classes on their last axis: (N, C), or (N, T, C) with one label for each token. Of several outputs
    or labels the first is taken. Labels of `ignore_index`, and the -100 with which Trainer pads, do not count.

    Without labels Trainer computes no metrics; `boc(trainer.predict(dataset))` then gives the keys that need none, over
    every position of every sequence, padding tokens included.

    Args:
        compute_metrics: your own function, as for Trainer; its results join those of the probe. The `predictions` that
            it receives are the predicted classes, of shape (N,) or (N, T), as from `logits.argmax(-1)`. With
            `batch_eval_metrics=True` it must take `compute_result`, as always.
        trials: the number of coin flips of the test.
        bins: equal bins for the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: tokens with this label do not count.
        causal: whether each position predicts the label of the next, as in causal language models.
        keys: which keys of `torch_boc.functional.boc_summary` to log; by default a short set.
        prefix: before each key, with an underscore; "" for none.

    Attributes:
        metric: a `BoCMetric` with all samples of the last evaluation: `boc.metric.compute()` has every key, and
            `boc.metric.plot()` draws them.

    >>> boc = BoCTrainerMetrics(keys=["gap", "accuracy"])
    >>> columns = boc.preprocess(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 2]))
    >>> results = boc(EvalPrediction(columns.numpy(), label_ids=None))
    >>> {key: round(value, 3) for key, value in results.items()}
    {'boc_gap': 0.086, 'boc_accuracy': 0.5}
    """

    def __init__(
        self,
        *,
        compute_metrics: Callable[..., Mapping[str, Any]] | None = None,
        trials: int = 100,
        bins: int = 15,
        alpha: float = 0.05,
        ignore_index: int = PADDING,
        causal: bool = False,
        keys: Sequence[str] | None = None,
        prefix: str = "boc",
    ) -> None:
        self.metric = _ColumnMetric(trials=trials, bins=bins, alpha=alpha, sync_on_compute=False)
        self.compute_metrics = compute_metrics
        self.ignore_index, self.causal = ignore_index, causal
        self.keys = check_keys(SHORT_KEYS if keys is None else keys)
        self.prefix = f"{prefix}_" if prefix else ""
        self._finished = True

    def arguments(self) -> dict[str, Any]:
        """The two arguments of Trainer that this object serves: `Trainer(..., **boc.arguments())`."""
        return {"compute_metrics": self, "preprocess_logits_for_metrics": self.preprocess}

    def preprocess(self, logits: Any, labels: Any = None) -> Tensor:
        """Trainer's `preprocess_logits_for_metrics`: (N, C) to (N, 6), or (N, T, C) to (N, T, 6), in float64.

        Nothing is read back. Without labels there are four columns.
        """
        logits, target = _first(logits), self._target(_first(labels))
        samples = take_samples(logits, target, ignore_index=PADDING, dim=-1)
        self.metric.num_classes = logits.shape[-1]
        return _to_columns(samples)

    def __call__(self, outcome: Any, compute_result: bool | None = None) -> dict[str, Any]:
        """Trainer's `compute_metrics`.

        Args:
            outcome: an `EvalPrediction`, or what `trainer.predict` returns, with the columns as `predictions`.
            compute_result: given with `batch_eval_metrics=True`: whether this batch is the last of the evaluation.

        Returns:
            Floats under prefix and key, and the results of your own `compute_metrics`; nothing before the last batch.
        """
        if self._finished or compute_result is None:
            self.metric.reset()
        for columns in _batches(outcome.predictions):
            self.metric.update(columns)
        self._finished = compute_result is not False
        own = self._own_results(outcome, compute_result)
        return {**self._results(), **own} if self._finished else {}

    def reset(self) -> None:
        """Forget an evaluation with `batch_eval_metrics=True` that was interrupted; otherwise never needed."""
        self._finished = True

    def _target(self, labels: Tensor | None) -> Tensor | None:
        """The label of each row of logits, or -100."""
        if labels is None:
            return None
        target = labels if self.ignore_index == PADDING else labels.masked_fill(labels == self.ignore_index, PADDING)
        if not self.causal:
            return target
        if target.ndim != 2:
            raise ValueError(f"expected labels of shape (N, T) with causal=True, got {tuple(target.shape)}")
        return pad(target[:, 1:], (0, 1), value=PADDING)

    def _results(self) -> dict[str, float]:
        summary = self.metric.compute()
        labelled = int(self.metric.total().counts[3]) > 0
        keys = [key for key in self.keys if labelled or key not in LABELLED_KEYS]
        return {self.prefix + key: summary[key].item() for key in keys}

    def _own_results(self, outcome: Any, compute_result: bool | None) -> Mapping[str, Any]:
        if self.compute_metrics is None or outcome.label_ids is None:
            return {}
        extras = {name: getattr(outcome, name, None) for name in ("inputs", "losses")}
        classes = EvalPrediction(_classes(outcome.predictions), outcome.label_ids, **extras)
        if compute_result is None:
            return self.compute_metrics(classes)
        return self.compute_metrics(classes, compute_result=compute_result)


class _ColumnMetric(BoCMetric):
    """`BoCMetric` over columns instead of logits; every process has the columns of all, so it is never synced."""

    def update(self, preds: Tensor, target: Tensor | None = None) -> None:  # type: ignore[override]
        if self.num_classes is None or preds.shape[-1] not in (4, 6):
            raise ValueError(
                f"expected predictions from BoCTrainerMetrics.preprocess, got shape {tuple(preds.shape)}; "
                "give Trainer both of its arguments: Trainer(..., **boc.arguments())"
            )
        if self.device != preds.device:
            self.to(preds.device)
        for block in preds.flatten(0, -2).split(BLOCK):
            super().update(_from_columns(widen(block)))


def _to_columns(samples: Samples) -> Tensor:
    coins = samples.coins
    odds = torch.where(samples.counted, coins.odds, PADDING)
    columns = [coins.prediction, odds, coins.loss, coins.concentration]
    if samples.target is not None and samples.distance is not None:
        columns += [samples.target, samples.distance]
    return torch.stack([widen(column) for column in columns], -1)


def _from_columns(columns: Tensor) -> Samples:
    prediction, odds, loss, concentration, *labels = columns.unbind(-1)
    coins = Coins(prediction.long(), odds, loss, concentration)
    counted = ~(odds < 0)  # a row without geometry has NaN for odds, and counts as invalid
    return Samples(coins, counted, labels[0].long(), labels[1]) if labels else Samples(coins, counted)


def _first(value: Any) -> Any:
    """The first of several outputs or labels; None of none."""
    return next(iter(value), None) if isinstance(value, tuple | list) else value


def _batches(predictions: Any) -> list[Tensor]:
    """The columns as Trainer holds them: one array or tensor, or a list with `eval_do_concat_batches=False`."""
    return [torch.as_tensor(x) for x in (predictions if isinstance(predictions, list | tuple) else [predictions])]


def _classes(predictions: Any) -> Any:
    if isinstance(predictions, list):
        return [_classes(batch) for batch in predictions]
    return predictions[..., 0].long() if isinstance(predictions, Tensor) else predictions[..., 0].astype("int64")
