"""`BoCTrainerMetrics`, for two arguments of `transformers.Trainer`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import EvalPrediction

from ..data.finding import describe
from ..functional.checks import as_indices
from ..functional.evidence import gather
from ..functional.summary import LABELLED_KEYS, SHORT_KEYS, check_keys
from ..functional.tallies import Counts
from .causality import Causality, find_causality
from .columns import PADDING, ColumnMetric, to_columns
from .loop import Loop
from .predictions import Predictions, checked_predictions, first_of, without_columns

# With at most this many classes, logits are kept for your own metrics: at most 4 kB in float32 for a row. A row is a
# sample, or a token if every token has a label.
KEPT_CLASSES = 1024


class BoCTrainerMetrics:
    """Logs `eval_boc_gap`, `eval_boc_free_gap`, ... from `Trainer(model, ..., **boc.arguments(model))`.

    `preprocess` computes seven numbers for each row of logits, on the device, before anything is gathered. The call of
    the object computes the metrics from these numbers. Neither memory nor traffic grows with the number of classes,
    unless the logits are kept.

    `trainer.predict(...).predictions` is a `Predictions`: `predictions.argmax(-1)` and `np.argmax(predictions, -1)` are
    always the predicted classes. If the logits were kept, it behaves like their array. If not, all other operations
    (`softmax`, indexing, comparisons) raise an error that says so.

    Logits have the classes on their last axis: (N, C), or (N, T, C) with one label for each token. If there are several
    outputs or labels, the first is used. The predictions are then a tuple, as without the probe, and `predictions[0]`
    is the `Predictions`. Rows with the label `ignore_index`, and rows that Trainer pads with -100, do not count.

    Without labels, Trainer computes no metrics. `boc(trainer.predict(dataset))` then gives the keys that need no
    labels, over every position of every sequence, padding tokens included.

    Args:
        compute_metrics: your own function, as for Trainer; its results are added to those of the probe. It receives the
            logits if they are kept, exactly as from Trainer, otherwise a `Predictions`. With `batch_eval_metrics=True`
            it must take `compute_result`, as without the probe. After an interrupted evaluation the probe forgets the
            earlier batches; your function must do so itself.
        keep_logits: whether to gather and keep the logits too, as Trainer does without the probe. By default they are
            kept if there is a `compute_metrics` and there are at most 1,024 classes.
        trials: the number of coin flips of the test.
        bins: the number of equal bins for the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: tokens with this label do not count.
        causal: whether each position predicts the label of the next position, as in causal language models, or its own
            label, as in token classification. By default the model given to `arguments` decides. For labels of shape
            (N, T) and a model of an unknown kind it must be given.
        keys: which keys of `torch_boc.functional.boc_summary` to log; by default a short set.
        prefix: stands before each key, with an underscore; "" for no prefix.

    Attributes:
        metric: a `BoCMetric` with all samples of the last evaluation: `boc.metric.compute()` has every key, and
            `boc.metric.plot()` draws them.

    >>> boc = BoCTrainerMetrics(keys=["gap", "accuracy"])
    >>> predictions = boc.preprocess(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 2]))
    >>> predictions.argmax(-1)
    tensor([0, 1])
    >>> results = boc(EvalPrediction(predictions, label_ids=None))
    >>> {key: round(value, 3) for key, value in results.items()}
    {'boc_gap': 0.086, 'boc_accuracy': 0.5}
    """

    def __init__(
        self,
        *,
        compute_metrics: Callable[..., Mapping[str, Any]] | None = None,
        keep_logits: bool | None = None,
        trials: int = 100,
        bins: int = 15,
        alpha: float = 0.05,
        ignore_index: int = PADDING,
        causal: bool | None = None,
        keys: Sequence[str] | None = None,
        prefix: str = "boc",
    ) -> None:
        self.metric = ColumnMetric(trials=trials, bins=bins, alpha=alpha, sync_on_compute=False)
        self.compute_metrics, self.keep_logits = compute_metrics, keep_logits
        self.ignore_index, self.causal = ignore_index, causal
        self._causality = Causality()
        self.keys = check_keys(SHORT_KEYS if keys is None else keys)
        self.prefix = f"{prefix}_" if prefix else ""
        self._loop = Loop()

    def arguments(self, model: nn.Module | None = None) -> dict[str, Any]:
        """The two arguments for Trainer: `Trainer(model, ..., **boc.arguments(model))`.

        Args:
            model: the model of this Trainer. Its class or its config decides about `causal`, unless you gave it.
        """
        self._causality = Causality() if model is None else find_causality(model)
        return {"compute_metrics": self, "preprocess_logits_for_metrics": self.preprocess}

    def preprocess(self, logits: Any, labels: Any = None) -> Any:
        """Trainer's `preprocess_logits_for_metrics`: (N, C) to (N, 7), or (N, T, C) to (N, T, 7), in float64.

        Nothing is read back from the device. Without labels there are five columns. If the logits are kept, they are
        part of the result. Several outputs stay a tuple: the first becomes a `Predictions`, and the others are kept if
        the logits are.
        """
        outputs, logits = logits, _checked_logits(first_of(logits))
        evidence = gather(logits.detach(), self._target(logits, first_of(labels)), ignore_index=PADDING)
        self.metric.num_classes = classes = logits.shape[-1]
        kept = {"logits": logits.detach()} if self._keeps(classes) else {}
        number = torch.full(logits.shape[:1], classes, device=logits.device)
        predictions = Predictions({"columns": to_columns(evidence), "classes": number, **kept})
        if not isinstance(outputs, tuple | list):
            return predictions
        return (predictions, *(outputs[1:] if kept else ()))

    def __call__(self, outcome: Any, compute_result: bool | None = None) -> dict[str, Any]:
        """Trainer's `compute_metrics`.

        Args:
            outcome: an `EvalPrediction`, or what `trainer.predict` returns, with `Predictions` as `predictions`.
            compute_result: given with `batch_eval_metrics=True`: whether this batch is the last of the evaluation.

        Returns:
            A dict of floats under prefix and key, and the results of your own `compute_metrics`. With
            `batch_eval_metrics=True` it is empty before the last batch.
        """
        if self._loop.begins(compute_result):
            self.metric.reset()
        batches = outcome.predictions if isinstance(outcome.predictions, list) else [outcome.predictions]
        for batch in map(checked_predictions, batches):  # several with `eval_do_concat_batches=False`
            if compute_result is None and len(batch):  # otherwise `preprocess` has just seen its logits
                self.metric.num_classes = int(batch["classes"][0])
            self.metric.update(torch.as_tensor(batch["columns"]))
        own = self._own_results(outcome, compute_result)
        return {**self._results(), **own} if compute_result is not False else {}

    def reset(self) -> None:
        """Forget an interrupted evaluation with `batch_eval_metrics=True`. With Trainer itself this is never needed."""
        self._loop = Loop()

    def _keeps(self, classes: int) -> bool:
        if self.keep_logits is None:
            return self.compute_metrics is not None and classes <= KEPT_CLASSES
        return self.keep_logits

    def _target(self, logits: Tensor, labels: Tensor | None) -> Tensor | None:
        """The label of each row of logits, or -100."""
        if labels is None:
            return None
        labels = as_indices(labels)
        target = labels if self.ignore_index == PADDING else labels.masked_fill(labels == self.ignore_index, PADDING)
        if not self._predicts_next(logits):
            return target
        if target.ndim != 2:
            raise ValueError(f"expected labels of shape (N, T) with causal=True, got {tuple(target.shape)}")
        return pad(target[:, 1:], (0, 1), value=PADDING)

    def _predicts_next(self, logits: Tensor) -> bool:
        """Whether a row of logits predicts the next label, and not its own."""
        if self.causal is not None or logits.ndim != 3:
            return bool(self.causal)
        if (answer := self._causality.of(logits.shape[-1])) is None:
            raise ValueError(
                f"expected causal=True or causal=False for logits of shape {tuple(logits.shape)}, got neither, nor a "
                "model of a known kind; give boc.arguments(model), or BoCTrainerMetrics(causal=True) if each position "
                "predicts the next label (GPT, Llama), causal=False if its own (token classification, masked language "
                "models, sequence to sequence)"
            )
        return answer

    def _results(self) -> dict[str, float]:
        summary = self.metric.compute()
        labelled = int(Counts(*self.metric.total().counts).labelled) > 0
        keys = [key for key in self.keys if labelled or key not in LABELLED_KEYS]
        return {self.prefix + key: summary[key].item() for key in keys}

    def _own_results(self, outcome: Any, compute_result: bool | None) -> Mapping[str, Any]:
        if self.compute_metrics is None or outcome.label_ids is None:
            return {}
        extras = {name: getattr(outcome, name, None) for name in ("inputs", "losses")}
        theirs = EvalPrediction(without_columns(outcome.predictions), outcome.label_ids, **extras)
        if compute_result is None:
            return self.compute_metrics(theirs)
        return self.compute_metrics(theirs, compute_result=compute_result)


def _checked_logits(logits: Any) -> Tensor:
    if isinstance(logits, Tensor) and logits.is_floating_point():
        return logits
    raise TypeError(
        f"expected floating-point logits, got {describe(logits)}; with predict_with_generate=True Trainer gives the "
        "generated tokens, which have no logits: leave it out for the evaluation with the probe"
    )
