"""Modules that put the probe after a classifier, or around one, and their outputs."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from ..core.dtypes import accumulation_dtype
from ..data.extract import call_model, check_head, check_source
from ..functional.checks import ProbabilityCheck, as_binary, check_trials, classes_last
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.registry import required_extras
from ..functional.table_columns import check_columns, column_extras, columns_of
from .acceptance import Acceptance
from .conformal import ConformalTest
from .decision_columns import DECISION_COLUMNS, check_decision_columns, check_levels, decision_columns


class ProbeOutput(NamedTuple):
    """The numbers of the probe for each row of logits, without the class axis.

    Attributes:
        prediction: the top class, int64.
        confidence: the largest softmax probability.
        dominance: the mean chance that the top class beats a rival.
        gap: the coherence gap, dominance - confidence.
        forced_gap: the part of the gap that the confidence forces.
        free_gap: the part that the geometry of the logits adds.
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


@dataclass
class BoCOutput:
    """The output of a wrapped classifier: three attributes, and by name all columns of the probe.

    `logits, probe, output = result` and `result[0]` use the attributes; `result["gap"]`, `result.keys()` and
    `dict(result)` the names of the logits and the columns.

    Attributes:
        logits: the classifier's logits, as found in its output.
        probe: the columns of the probe. It is a dict if columns are chosen, or if a test or an acceptance adds some.
        output: the classifier's own output, unchanged.
    """

    logits: Tensor
    probe: ProbeOutput | dict[str, Tensor]
    output: Any

    def __getattr__(self, name: str) -> Any:
        """Short names for the fields of the probe: `result.gap` is `result.probe.gap`."""
        probe = self.__dict__.get("probe", ())
        columns = probe._asdict() if isinstance(probe, ProbeOutput) else dict(probe)
        if name in columns:
            return columns[name]
        names = [field.name for field in fields(self)] + list(columns or ProbeOutput._fields)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; it has {', '.join(names)}")

    def keys(self) -> list[str]:
        """The names of the logits and of the columns of the probe."""
        return ["logits", *(self.probe if isinstance(self.probe, dict) else self.probe._fields)]

    def __getitem__(self, key: Any) -> Any:
        """An entry by name, or attributes by index."""
        if isinstance(key, str) and key not in self.keys():
            raise KeyError(f"{key!r}, expected one of {', '.join(self.keys())}")
        return getattr(self, key) if isinstance(key, str) else (self.logits, self.probe, self.output)[key]

    def __iter__(self) -> Iterator[Any]:
        """The attributes, for `logits, probe, output = result`."""
        return iter(self[:])


# torch.export can return only types that it knows how to take apart, and can save only those with a registered name.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # torch 2.7 warns that it calls its own old name
    torch.export.register_dataclass(BoCOutput, serialized_type_name="torch_boc.nn.BoCOutput")
_register_namedtuple(ProbeOutput, serialized_type_name="torch_boc.nn.ProbeOutput")


class BoCProbe(nn.Module):
    """Turns logits into a `ProbeOutput`, or into a dict of chosen columns. It has no parameters and no buffers.

    Args:
        trials: the number of coin flips of the test.
        dim: the class axis; 1 for segmentation, -1 for tokens. Logits of shape (C,) or (N, C) do not need it.
        columns: which columns of `torch_boc.functional.sample_columns` to return, as a dict in this order, instead of a
            `ProbeOutput`. Other columns are not computed.
        binary: whether logits of shape (N,) or (N, 1) are the single logits z of a binary classifier, read as (0, z).
        validate_args: whether to reject probabilities in the first batch: at once on a CPU, elsewhere at the second
            call, which waits once for the device. Compiled and exported modules do not check.

    >>> BoCProbe()(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).free_gap
    tensor([0.0105])
    >>> BoCProbe(columns=["prediction", "energy"])(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    {'prediction': tensor([0]), 'energy': tensor([2.4402])}
    """

    def __init__(
        self,
        trials: int = 100,
        *,
        dim: int | None = None,
        columns: Sequence[str] | None = None,
        binary: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        self.trials, self.dim, self.validate_args = check_trials(trials), dim, validate_args
        self.binary, self._first = binary, ProbabilityCheck(binary=binary)
        self.columns = None if columns is None else check_columns(columns)

    def forward(self, logits: Tensor) -> ProbeOutput | dict[str, Tensor]:
        """Probe logits; the result has their shape without the class axis."""
        rows = as_binary(logits, dim=self.dim)[0] if self.binary else classes_last(logits, self.dim)
        columns, _ = self._probe(rows)
        return ProbeOutput(**columns) if self.columns is None else columns

    def _probe(self, rows: Tensor, more: Sequence[str] | None = None) -> tuple[dict[str, Tensor], SampleStats]:
        """The columns, and the statistics that they are computed from: in float64 if a test needs `more` extras."""
        if self.validate_args:
            self._first.check(rows, waits=True)
        names, keep_dtype = ProbeOutput._fields if self.columns is None else self.columns, more is None
        extras = (*column_extras(names), *(more or ()))
        stats = sample_stats(rows, trials=self.trials, extras=extras, keep_dtype=keep_dtype)
        columns, dtype = columns_of(stats, names), accumulation_dtype(rows.dtype)
        if not keep_dtype:
            kept = ("prediction", "p_value", "log_p_value")
            columns = {name: x if name in kept else x.to(dtype) for name, x in columns.items()}
        return columns, stats

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return f"trials={self.trials}" + ("" if self.columns is None else f", columns={list(self.columns)}")


class BoCClassifier(nn.Module):
    """A classifier that also returns the probe of its logits. All arguments of a call go to `model`.

    `load_state_dict` loads a checkpoint of the classifier, or one of the model, even inside another module.

    With a `conformal_test`, the result has `p_in_distribution` and `review` as well: samples to review have a p-value
    of at most `alpha`, or NaN, as for rows with NaN or +inf. `probe` is then a dict of columns, which begins with those
    of `ProbeOutput`. The test is a part of the module, and is saved, moved and exported with it. It may be calibrated
    later, for example by `load_state_dict`, but before the first call.

    To deploy it: `torch.export.export(classifier, (x,), dynamic_shapes={"args": ({0: torch.export.Dim.DYNAMIC},)})`.
    `torch.onnx.export` takes the same, with `dynamo=True` and `output_names=["logits", *ProbeOutput._fields]`, and
    with a test also `"p_in_distribution", "review"`; in the ONNX model the model's own output comes after these.

    Args:
        model: returns logits, in any form that `torch_boc.data.find_logits` knows.
        trials: the number of coin flips of the paper's p-value.
        dim: the class axis; 1 for segmentation, -1 for tokens. Logits of shape (C,) or (N, C) do not need it.
        logits: where they are: None to find them in the output; the name of a submodule that returns them, called once
            by the model; or a function of the output. With a name, `torch.compile(fullgraph=True)` and strict export
            do not work.
        binary: as for `BoCProbe`; `result.logits` stay single.
        columns: as for `BoCProbe`; with a test, its columns can be chosen too.
        conformal_test: a `ConformalTest`, calibrated with held-out samples of this model.
        alpha: the false-positive rate of `review`.
        acceptance: an `Acceptance`, calibrated with held-out samples of this model. `probe` is then a dict of columns,
            with `accepted`: whether the prediction is accepted.
        max_error: the largest error rate among the accepted predictions, with probability 95 % over the draw of the
            held-out set.
        validate_args: as for `BoCProbe`.

    >>> classifier = BoCClassifier(torch.nn.Linear(5, 3))
    >>> result = classifier(torch.ones(2, 5))
    >>> result.logits.shape, result.gap.shape
    (torch.Size([2, 3]), torch.Size([2]))
    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 99)[:, None] * torch.eye(3)[0])
    >>> screened = BoCClassifier(torch.nn.Identity(), conformal_test=test, alpha=0.05)
    >>> result = screened(torch.tensor([[0.9, 0, 0], [3.1, 0, 0]]))
    >>> result.p_in_distribution, result.review
    (tensor([0.0100, 0.5300], dtype=torch.float64), tensor([ True, False]))
    """

    def __init__(
        self,
        model: nn.Module,
        trials: int = 100,
        *,
        dim: int | None = None,
        logits: str | Callable[[Any], Any] | None = None,
        binary: bool = False,
        columns: Sequence[str] | None = None,
        conformal_test: ConformalTest | None = None,
        alpha: float = 0.05,
        acceptance: Acceptance | None = None,
        max_error: float = 0.01,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        check_source(model, logits, binary=binary)
        self.model, self.dim, self.logits, self.binary = model, dim, logits, binary
        check_levels(conformal_test, alpha, acceptance, max_error)
        self.conformal_test, self.alpha = conformal_test, alpha
        self.acceptance, self.max_error = acceptance, max_error
        self.columns = None if columns is None else check_decision_columns(columns, conformal_test, acceptance)
        self.probe = BoCProbe(trials, dim=-1, validate_args=validate_args)
        if self.columns is not None:
            self.probe.columns = tuple(name for name in self.columns if name not in DECISION_COLUMNS)
        self.probe._first.binary = binary  # the logits come as pairs
        self.register_load_state_dict_pre_hook(_add_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> BoCOutput:
        """The model's output, its logits, and the columns of the probe, the test and the acceptance."""
        output, logits = call_model(self.model, self.logits, args, kwargs)
        if self.logits is None:  # transformers names the kind of the head when it sees the first labels
            check_head(self.model, binary=self.binary)
        rows = as_binary(logits, dim=self.dim)[0] if self.binary else classes_last(logits, self.dim)
        parts = self.conformal_test, self.alpha, self.acceptance, self.max_error
        scores = [x.scoring.name for x in (self.conformal_test, self.acceptance) if x is not None]
        columns, stats = self.probe._probe(rows, required_extras(scores) if scores else None)
        if self.columns is None and not scores:
            return BoCOutput(logits, ProbeOutput(**columns), output)
        columns |= decision_columns(parts, stats)
        return BoCOutput(logits, {name: columns[name] for name in self.columns or columns}, output)


def _add_prefix(module: Any, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Load a state of the model as a part of the classifier, whose test and acceptance do not change."""
    part, names = f"{prefix}model.", module.model.state_dict().keys()
    of_model, whole = ({start + name for name in names} & state_dict.keys() for start in (prefix, part))
    if len(of_model) > len(whole):
        moved = {part + key.removeprefix(prefix): state_dict.pop(key) for key in of_model}
        rest = {key: x for key, x in module.state_dict(prefix=prefix).items() if not key.startswith(part)}
        state_dict |= rest | moved
