"""`BoCTrainerMetrics`, for two arguments of `transformers.Trainer`, and the predictions that it leaves."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import EvalPrediction

from ..core.coins import Coins
from ..core.dtypes import to_wide
from ..core.schema import Counts
from ..core.tally import empty_tally
from ..data.extract import check_head, describe
from ..data.label_shift import predicts_next
from ..functional.checks import ProbabilityCheck, as_indices
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.summary import CLASSWISE, DEFAULT_KEYS, LABELLED_KEYS, RISK_KEYS, check_keys, summarize
from ..metrics import BoCMetric

_log = logging.getLogger(__name__)
# Trainer pads with this value. Odds are never negative, and it also marks samples that are ignored.
PADDING = -100
# How many samples are counted at once. The tokens of a whole evaluation may be too many.
BLOCK_SAMPLES = 2**20
# Up to so many classes, logits are kept for your own metrics: 4 kB in float32 for a row, a sample or a labelled token.
KEPT_CLASSES = 1024


class BoCTrainerMetrics:
    """Logs `eval_boc_gap`, `eval_boc_free_gap`, ... from `Trainer(model, ..., **boc.arguments(model))`.

    `preprocess` computes seven numbers for each row of logits, on the device, before anything is gathered. The call of
    the object computes the metrics from these numbers. Neither memory nor traffic grows with the number of classes,
    unless the logits are kept, for a `compute_metrics` of your own.

    `trainer.predict(...).predictions` is a `Predictions`: `predictions.prediction` are the predicted classes.

    Logits have the classes on their last axis: (N, C), or (N, T, C) with one label for each token. If there are several
    outputs or labels, the first is used. The predictions are then a tuple, as without the probe, and `predictions[0]`
    is the `Predictions`. Rows with the label -100, with which Trainer also pads, do not count.

    Without labels, Trainer computes no metrics. `boc(trainer.predict(dataset))` then gives the keys that need no
    labels, over every position of every sequence, padding tokens included.

    Args:
        compute_metrics: your own function, as for Trainer; its results are added to those of the probe. It receives the
            logits, exactly as from Trainer; for more than 1,024 classes give a `preprocess_logits_for_metrics`, too.
            With `batch_eval_metrics=True` it must take `compute_result`, as without the probe, and after an interrupted
            evaluation both need a reset: `boc.reset()`.
        preprocess_logits_for_metrics: your own function, as for Trainer. What it returns is gathered, given to
            `compute_metrics` instead of the logits, and is `predictions["own"]` after `predict`.
        trials: the number of coin flips of the test.
        bins: the number of equal bins for the calibration errors.
        alpha: the level of `rejection_rate`.
        causal: whether each position predicts the label of the next position, as in causal language models, or its own
            label, as in token classification. By default the model given to `arguments` decides. For labels of shape
            (N, T) and a model of an unknown kind it must be given.
        keys: which keys of `BoCMetric` to log; by default `accuracy`, `ece` and `nll`, if there are labels, then
            `confidence`, `dominance`, `gap` and `free_gap`. For `ece_classwise` the logits are kept.
        prefix: stands before each key, with an underscore; "" for no prefix.

    Attributes:
        metric: a `BoCMetric` with all samples of the last evaluation: `boc.metric.compute()` has all keys of
            `boc_summary` but those of p-values, and those of `keys`; `boc.metric.plot()` draws them.

    >>> boc = BoCTrainerMetrics(keys=["gap", "accuracy"])
    >>> predictions = boc.preprocess(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 2]))
    >>> predictions.prediction
    tensor([0, 1])
    >>> results = boc(EvalPrediction(predictions, label_ids=None))
    >>> {key: round(value, 3) for key, value in results.items()}
    {'boc_gap': 0.086, 'boc_accuracy': 0.5}
    """

    def __init__(
        self,
        *,
        compute_metrics: Callable[..., Mapping[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        trials: int = 100,
        bins: int = 15,
        alpha: float = 0.05,
        causal: bool | None = None,
        keys: Sequence[str] | None = None,
        prefix: str = "boc",
    ) -> None:
        self.keys = check_keys(DEFAULT_KEYS if keys is None else keys)
        more: Any = {"keys": (*summarize(empty_tally(), p_values=False), *self.keys), "dim": -1, "validate_args": False}
        # Every process has the columns of all, and nothing is synced.
        self.metric = BoCMetric(trials=trials, bins=bins, alpha=alpha, sync_on_compute=False, **more)
        self._extras = () if {*RISK_KEYS}.isdisjoint(self.keys) else ("log_odds",)
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.compute_metrics = compute_metrics
        self.causal, self._told = causal, False
        self._model: nn.Module | None = None
        self.prefix = f"{prefix}_" if prefix else ""
        self._first = ProbabilityCheck(remedy="let the model return logits, or the logarithms of its probabilities")
        self._finished = True

    def arguments(self, model: nn.Module | None = None) -> dict[str, Any]:
        """The two arguments for Trainer: `Trainer(model, ..., **boc.arguments(model))`.

        Args:
            model: the model of this Trainer. Its class decides about `causal`, unless you gave it. Multi-label and
                regression heads are refused; without `config.problem_type`, by the labels of the first evaluation.
        """
        check_head(model)
        self._model = model
        return {"compute_metrics": self, "preprocess_logits_for_metrics": self.preprocess}

    def preprocess(self, logits: Any, labels: Any = None) -> Any:
        """Trainer's `preprocess_logits_for_metrics`: (N, C) to (N, 7), or (N, T, C) to (N, T, 7), in float64.

        Nothing is read back from the device. Without labels there are five columns. Several outputs stay a tuple: the
        first becomes a `Predictions`, and the others are kept for a `compute_metrics` of your own.
        """
        outputs, logits = logits, first_of(logits)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            raise TypeError(
                f"expected floating-point logits, got {describe(logits)}; with predict_with_generate=True Trainer "
                "gives the generated tokens, which have no logits: leave it out for the evaluation with the probe"
            )
        if logits.ndim not in (2, 3):
            raise ValueError(f"expected logits of shape (N, C) or (N, T, C), got shape {tuple(logits.shape)}")
        self._first.check(logits.detach())
        target = self._target(logits, first_of(labels))
        stats = sample_stats(
            logits.detach(), target, extras=() if target is None else self._extras, ignore_index=PADDING
        )
        coins, counted = stats.coins, stats.counted
        odds = coins.odds if counted is None else torch.where(counted, coins.odds, PADDING)
        columns = [coins.prediction, odds, coins.loss, coins.concentration, coins.free_gap]
        columns += [x for x in (stats.target, stats.distance, stats.log_odds) if x is not None]
        classes = logits.shape[-1]
        number = torch.full(logits.shape[:1], classes, device=logits.device)
        ours = {"columns": torch.stack([to_wide(column) for column in columns], -1), "classes": number}
        own = self.preprocess_logits_for_metrics
        if own is None and self.compute_metrics is not None and classes > KEPT_CLASSES:
            raise ValueError(
                f"expected preprocess_logits_for_metrics= for a compute_metrics of {classes} classes, got none; it "
                "chooses what is kept, such as logits.argmax(-1)"
            )
        if CLASSWISE in self.keys or (own is None and self.compute_metrics is not None):
            ours["logits"] = logits.detach()
        if own is not None:
            outputs = own(outputs, labels)
            ours["own"] = first_of(outputs)
        predictions = Predictions(ours)
        if not isinstance(outputs, tuple | list):
            return predictions
        return (predictions, *outputs[1:]) if len(ours) > 2 else (predictions,)

    def __call__(self, outcome: Any, compute_result: bool | None = None) -> dict[str, Any]:
        """Trainer's `compute_metrics`.

        Args:
            outcome: an `EvalPrediction`, or what `trainer.predict` returns, with `Predictions` as `predictions`.
            compute_result: given with `batch_eval_metrics=True`: whether this batch is the last of the evaluation.

        Returns:
            A dict of floats under prefix and key, and the results of your own `compute_metrics`. With
            `batch_eval_metrics=True` it is empty before the last batch.
        """
        self._first.raise_if_found()
        if self._finished or compute_result is None:
            self.metric.reset()
        self._finished = compute_result is not False
        batches = outcome.predictions if isinstance(outcome.predictions, list) else [outcome.predictions]
        for batch in map(first_of, batches):  # several with `eval_do_concat_batches=False`
            if not isinstance(batch, Predictions):
                raise TypeError(
                    f"expected Predictions from BoCTrainerMetrics.preprocess, got {describe(outcome.predictions)}; "
                    "give Trainer both of its arguments: Trainer(model, ..., **boc.arguments(model))"
                )
            if len(batch["classes"]):
                self.metric.num_classes = int(batch["classes"][0])
            columns = torch.as_tensor(batch["columns"]).flatten(0, -2)
            self.metric.to(columns.device)
            if CLASSWISE in self.keys and columns.shape[-1] > 5:
                self.metric.update(torch.as_tensor(batch["logits"]).flatten(0, -2), columns[:, 5].long())
                continue
            for block in columns.split(BLOCK_SAMPLES):
                prediction, odds, loss, concentration, free_gap, *labels = to_wide(block).unbind(-1)
                coins = Coins(prediction.long(), odds, loss, concentration, free_gap)
                # A row without geometry has NaN for odds, and counts as invalid.
                stats = SampleStats(coins, self.metric.num_classes or 0, counted=~(odds < 0))
                if labels:
                    names = ("target", "distance", *self._extras)
                    stats = stats._replace(**dict(zip(names, [labels[0].long(), *labels[1:]], strict=True)))
                self.metric.update(stats)
        theirs: Mapping[str, Any] = {}
        if self.compute_metrics is not None and outcome.label_ids is not None:
            extras = {name: getattr(outcome, name, None) for name in ("inputs", "losses")}
            prediction = EvalPrediction(without_columns(outcome.predictions), outcome.label_ids, **extras)
            by_batch = {} if compute_result is None else {"compute_result": compute_result}
            theirs = self.compute_metrics(prediction, **by_batch)
        if compute_result is False:
            return {}
        summary = self.metric.compute()
        labelled = int(Counts(*self.metric.total().counts).labelled) > 0
        keys = [key for key in self.keys if labelled or key not in LABELLED_KEYS]
        return {**{self.prefix + key: summary[key].item() for key in keys}, **theirs}

    def reset(self) -> None:
        """Forget the batches of an evaluation that was interrupted, which counts with `batch_eval_metrics=True`."""
        self._finished = True

    def _target(self, logits: Tensor, labels: Tensor | None) -> Tensor | None:
        """The label of each row of logits, or -100."""
        if labels is None:
            return None
        target, causal = as_indices(labels), self.causal
        if target.is_floating_point():
            check_head(self._model)  # transformers sets `problem_type` by the first labels
        if causal is None and logits.ndim == 3 and self._model is not None:
            causal = predicts_next(self._model, logits.shape[-1])
        if causal is None and logits.ndim == 3:
            raise ValueError(
                f"expected causal=True or causal=False for logits of shape {tuple(logits.shape)}, got neither, nor a "
                "model of a known kind; give boc.arguments(model), or BoCTrainerMetrics(causal=True) if each position "
                "predicts the next label (GPT, Llama), causal=False if its own (token classification, masked language "
                "models, sequence to sequence)"
            )
        if logits.ndim == 3 and not self._told:
            self._told = True
            shifts = "the next label, as in causal language models" if causal else "its own label"
            _log.info("BoCTrainerMetrics: each position predicts %s (causal=%s)", shifts, bool(causal))
        if not causal:
            return target
        if target.ndim != 2:
            raise ValueError(f"expected labels of shape (N, T) with causal=True, got {tuple(target.shape)}")
        return nn.functional.pad(target[..., 1:], (0, 1), value=PADDING)


class Predictions(dict[str, Any]):
    """The predictions of a Trainer with the probe, which are gathered, padded and joined as tensors are.

    `predictions["columns"]` has the numbers of the probe on its last axis: prediction, odds, loss, concentration and
    free_gap, and with labels target and distance. `predictions["classes"]` is the number of classes, for each sample.
    `predictions["logits"]` are the logits if they were kept for your own `compute_metrics`, and `predictions["own"]` is
    the result of your own `preprocess_logits_for_metrics`.
    """

    @property
    def prediction(self) -> Any:
        """The predicted classes; -100 where Trainer padded."""
        prediction = self["columns"][..., 0]
        return prediction.long() if isinstance(prediction, Tensor) else prediction.astype("int64")


def first_of(value: Any) -> Any:
    """The first of several outputs or labels; None if there are none. A single value is returned unchanged."""
    return next(iter(value), None) if isinstance(value, tuple | list) else value


def without_columns(predictions: Any) -> Any:
    """The predictions without our columns: what Trainer would give to your own function, if that was kept."""
    if isinstance(predictions, list):
        return [without_columns(batch) for batch in predictions]
    if isinstance(predictions, tuple):
        return (without_columns(predictions[0]), *predictions[1:])
    return predictions.get("own", predictions.get("logits", predictions))
