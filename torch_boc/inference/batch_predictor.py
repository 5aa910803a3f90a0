"""A classifier as a function of batches of arrays, for engines that cut a dataset into batches and send them out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..data.parquet import CLASSES_KEY
from ..data.tables import as_tensor, numpy
from .batches import check_id
from .predictor import BoCPredictor

Arrays = Mapping[str, Any]  # NumPy arrays of one length, by the names of their columns
REMEDY = "give preprocess=, a function that makes tensors of the batch"


class BoCBatchPredictor:
    """A callable that makes the columns of a batch: NumPy arrays by name in, NumPy arrays by name out.

    It is small until it is called: it holds a function that makes the classifier, and not the classifier. So it can be
    pickled and sent to the workers of Ray, Spark or Daft, and each worker makes the classifier once, at its first
    batch. What it computes is what `BoCPredictor` computes, batch by batch: eval and inference mode, autocast, any
    output that `torch_boc.data.find_logits` knows, no probabilities, and smaller pieces if a batch does not fit in
    memory.

    The result has one row per row of the batch, in the same order: the `id` and the columns to `keep` as they came,
    `target` and `target_log_probability` if you name a target, and the columns of `BoCPredictor`. It has the logits
    only with `keep_logits=True`.

    Args:
        factory: a function without arguments that returns the classifier, a `torch.nn.Module`.
        inputs: what the model gets: the name of a column, for its first argument, or a list of names, for arguments of
            these names. By default the only column that is no id, no target and not kept. Arrays that are read-only are
            copied, because torch has no such tensors. The dtype stays: a float64 column needs a float64 model.
        target: the name of the column of targets, which are class indices.
        id: the name of a column that says which sample a row is, such as "path".
        keep: the names of further columns to pass on.
        preprocess: a function of the batch, a dict of the arrays of `inputs` (by default of all columns), that returns
            the model's arguments: a tensor, a tuple of tensors, or a dict of tensors by name.
        options: further arguments of `BoCPredictor`: `device`, `dtype`, `compile`, `columns`, `trials`,
            `conformal_test`, `alpha`, `top_k`, `class_names`, `keep_logits` and so on.

    Attributes:
        columns: the names of the columns of the result.
        passed: the first of these, which are taken unchanged from the batch: the id and the columns to keep.

    >>> import numpy
    >>> predictor = BoCBatchPredictor(lambda: torch.nn.Linear(5, 3), id="path", columns=["prediction", "gap"])
    >>> table = predictor({"x": numpy.zeros((2, 5), "float32"), "path": numpy.array(["a.png", "b.png"])})
    >>> {name: column.shape for name, column in table.items()}
    {'path': (2,), 'prediction': (2,), 'gap': (2,)}
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        *,
        inputs: str | Sequence[str] | None = None,
        target: str | None = None,
        id: str | None = None,
        keep: Sequence[str] = (),
        preprocess: Callable[[dict[str, Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(factory, nn.Module) or not callable(factory):
            raise TypeError(f"expected factory as a function that returns the model, got {type(factory).__name__}")
        # Bad options are refused here, before workers start. A compiled module could not be pickled.
        self._blank = BoCPredictor(nn.Identity(), progress=False, **options | {"compile": False})
        labelled = target is not None
        made = (*(["target"] if labelled else []), *self._blank.empty(labelled=labelled))
        check_id(id, ("target", *made))
        if isinstance(keep, str) or {*keep} & {"target", *made, id} or len({*keep}) < len(keep):
            raise ValueError(f"expected keep as a list of different names, none of another column, got {keep!r}")
        self.factory, self.preprocess, self.inputs, self.target, self.id = factory, preprocess, inputs, target, id
        self._options = options | {"conformal_test": self._blank.conformal_test}
        self.passed = tuple(name for name in (id, *keep) if name is not None)
        self.columns = (*self.passed, *made)
        self._predictor: BoCPredictor | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """Texts for the metadata of a file of the rows: the number of classes, once a batch has been predicted."""
        number = self._predictor and self._predictor.num_classes
        return {} if number is None else {CLASSES_KEY: str(number)}

    @property
    def settings(self) -> dict[str, object]:
        """What the values depend on, apart from the model and the samples."""
        return {**self._blank.settings, "columns": list(self.columns)}

    def __call__(self, batch: Arrays) -> dict[str, Any]:
        """The columns of a batch."""
        inputs = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        for name in (*self.passed, self.target, *(inputs or ())):
            if name is not None and name not in batch:
                raise ValueError(f"expected a column {name!r} in the data, got {', '.join(batch) or 'no columns'}")
        size = len(next(iter(batch.values()), ()))
        table: dict[str, Any] = {} if self.target is None else {"target": torch.arange(0)}
        if size == 0:
            table |= self._blank.empty(labelled=self.target is not None)
        else:
            if self._predictor is None:
                self._predictor = BoCPredictor(self.factory().eval(), progress=False, **self._options)
            target = None if self.target is None else column_tensor(self.target, batch[self.target])
            table |= self._predictor.predict_batch((self._arguments(batch, inputs), target))
        if (rows := len(table[self._blank.columns[0]])) != size:
            raise ValueError(f"expected preprocess to return {size} samples, as many as the batch has, got {rows}")
        arrays = {name: x.numpy() if isinstance(x, Tensor) else numpy().array(x, object) for name, x in table.items()}
        return {name: batch[name] for name in self.passed} | arrays

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: everything but the classifier."""
        return {**vars(self), "_predictor": None}

    def _arguments(self, batch: Arrays, names: Sequence[str] | None) -> Any:
        """What the model gets: a tensor, a tuple of tensors or a dict of tensors."""
        if self.preprocess is not None:
            return self.preprocess({name: _writable(batch[name]) for name in (batch if names is None else names)})
        if names is None:
            names = [name for name in batch if name not in (*self.passed, self.target)]
            if len(names) != 1:
                raise ValueError(f"expected inputs=, the column that the model gets, got none of {', '.join(batch)}")
        tensors = {name: column_tensor(name, batch[name]) for name in names}
        return tensors[names[0]] if self.inputs is None or isinstance(self.inputs, str) else tensors


def _writable(array: Any) -> Any:
    """The array with memory that may be written to: Ray's arrays are read-only."""
    return numpy().require(array, requirements=["C", "W"])


def column_tensor(name: str, array: Any) -> Tensor:
    """A column as a tensor. Arrays of one shape, one for each row, are stacked."""
    if isinstance(array, Tensor):
        return array
    if getattr(getattr(array, "dtype", None), "kind", "") == "O":
        try:
            array = numpy().stack([numpy().asarray(x) for x in array])
        except ValueError as error:
            raise ValueError(f"expected arrays of one shape in column {name!r}, got {error}; {REMEDY}") from error
    tensor = as_tensor(_writable(array))
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected numbers in column {name!r}, got {getattr(array, 'dtype', type(array))}; {REMEDY}")
    return tensor
