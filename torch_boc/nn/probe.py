"""Modules that put the probe after a classifier, or around one."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..data.finding import classes_last, find_logits
from ..functional.checks import check_trials
from ..functional.columns import check_columns, probe_columns
from .conformal import ConformalTest
from .outputs import BoCOutput, ProbeOutput, ScreenedOutput
from .passing import make_output, passes
from .screening import SCREENED, check_screened_columns, check_test, screen


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


@passes
class BoCClassifier(nn.Module):
    """A classifier that also returns the probe of its logits. All arguments of a call go to `model`.

    The names of the weights do not change: `classifier.model.load_state_dict` takes a checkpoint of the model.

    With a `test`, the result has `p_in_distribution` and `review` as well, which is True where a person should look.
    The test is a part of the module, and is saved, moved and exported with it. It may be calibrated later, for example
    by `load_state_dict`, but before the first call.

    Around a model of transformers it works in pipelines, as in `pipeline("text-classification", model=classifier,
    tokenizer=tokenizer)`, which log that they do not know this class: `config`, `device`, `dtype`, `generate` and other
    attributes that they ask for are those of the model, and the result is a mapping with the entries of the model's own
    output and the columns of the probe.

    To deploy it: `torch.export.export(classifier, (x,), dynamic_shapes={"args": ({0: torch.export.Dim.DYNAMIC},)})`.
    `torch.onnx.export` takes the same, with `dynamo=True` and `output_names=["logits", *ProbeOutput._fields]`, or with
    a test `["logits", *ScreenedOutput._fields]`; in the ONNX model the model's own output comes after these.

    Args:
        model: returns logits, in any form that `torch_boc.data.finding.find_logits` knows.
        trials: the number of coin flips of the paper's p-value.
        dim: the class axis; by default the last. Logits with four axes or more need it: 1 for segmentation.
        columns: as for `BoCProbe`; with a test, its columns can be chosen too.
        test: a `ConformalTest`, calibrated with held-out samples of this model.
        alpha: the largest share of in-distribution samples that `review` may expect to flag.

    >>> classifier = BoCClassifier(torch.nn.Linear(5, 3))
    >>> result = classifier(torch.ones(2, 5))
    >>> result.logits.shape, result.gap.shape
    (torch.Size([2, 3]), torch.Size([2]))
    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 99)[:, None] * torch.eye(3)[0])
    >>> result = BoCClassifier(torch.nn.Identity(), test=test, alpha=0.05)(torch.tensor([[0.9, 0, 0], [3.1, 0, 0]]))
    >>> result.p_in_distribution, result.review
    (tensor([0.0100, 0.5300], dtype=torch.float64), tensor([ True, False]))
    """

    def __init__(
        self,
        model: nn.Module,
        trials: int = 100,
        *,
        dim: int | None = None,
        columns: Sequence[str] | None = None,
        test: ConformalTest | None = None,
        alpha: float = 0.05,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected model as a torch.nn.Module, got {type(model).__name__}")
        self.model, self.dim = model, dim
        self.test, self.alpha = check_test(test, alpha), alpha
        self.columns = None if columns is None else check_screened_columns(columns, test)
        own = None if self.columns is None else [name for name in self.columns if name not in SCREENED]
        self.probe = None if own == [] else BoCProbe(trials, columns=own)

    def forward(self, *args: Any, **kwargs: Any) -> BoCOutput:
        """The model's output, its logits, and what the probe and the test say of them."""
        output = self.model(*args, **kwargs)
        logits = find_logits(output)
        rows = classes_last(logits, self.dim)
        found = {} if self.probe is None else self.probe(rows)
        return make_output(logits, found if self.test is None else self._with_test(found, rows), output)

    def _with_test(self, found: Any, rows: Tensor) -> ScreenedOutput | dict[str, Tensor]:
        """The result of the probe, and that of the test."""
        assert self.test is not None
        tested = screen(self.test, rows, self.alpha)
        if self.columns is None:
            return ScreenedOutput(*found, **tested)
        every = {**found, **tested}
        return {name: every[name] for name in self.columns}
