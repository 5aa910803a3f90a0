"""Which arrays of a file are the logits, the targets and the scores, by their names; a note lists what is left out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .finding import LOGIT_NAMES, TARGET_NAMES
from .formats import ContentError, Text

LOGITS = (*LOGIT_NAMES, "logit", "output", "outputs")
PROBABILITIES = ("probabilities", "probability", "probs", "prob", "predictions", "prediction", "softmax", "scores")
PREDICTIONS = ("predictions", "prediction", "predicted", "preds", "pred")  # these are classes, not scores
# Columns that libraries add when they save a table. They hold row numbers, not scores.
ROW_NUMBERS = ("", "index", "unnamed: 0", "__index_level_0__")


class Selection(NamedTuple):
    """The content of a file that a LogitSet is made of, and a note about the rest ("" if there is nothing to say)."""

    content: Any
    note: str = ""


class Choice(NamedTuple):
    """Which parts of a file are used, as keys of `parts_of`.

    Attributes:
        logits: the logits.
        target: the targets, or None.
        scores: the scores.
        named: whether the parts have names, so that targets can be names of classes and messages name the part.
        note: which array is used as what, if there is something to say.
    """

    logits: Any
    target: Any = None
    scores: tuple[str, ...] = ()
    named: bool = False
    note: str = ""


def parts_of(content: Any) -> Mapping[Any, Any]:
    """The parts of a mapping by their names, and those of a pair or of one array by their places."""
    if isinstance(content, Mapping):
        return content
    return dict(enumerate(content)) if isinstance(content, tuple) else {0: content}


def choose(content: Any, *, from_probabilities: bool = False) -> Choice:
    """Decide by names, shapes and dtypes alone, so that tensors without values do as well as others."""
    if not isinstance(content, Mapping):
        return Choice(0, 1 if isinstance(content, tuple) else None)
    if set(content) == {"arr_0", "arr_1"}:
        return Choice("arr_0", "arr_1")
    logits = _choose_logits(content, from_probabilities)
    targets = [name for name in content if folded(name) in TARGET_NAMES and name != logits]
    if len(targets) > 1:
        raise ContentError(f"expected one of {', '.join(TARGET_NAMES)}, got {' and '.join(targets)}")
    taken = {logits, *targets, *(name for name in content if folded(name) in ROW_NUMBERS)}
    scores = [name for name, values in content.items() if name not in taken and _is_score(name, values)]
    left = [name for name in content if name not in taken and name not in scores]
    note = _note(content, logits, targets, scores, left, "probabilities" if from_probabilities else "logits")
    return Choice(logits, targets[0] if targets else None, tuple(scores), True, note)


def select(content: Any, *, from_probabilities: bool = False, classes: Sequence[str] | None = None) -> Selection:
    """A tensor or a pair unchanged; of a mapping, the logits, the target and the scores."""
    if not isinstance(content, Mapping):
        return Selection(content)
    choice = choose(content, from_probabilities=from_probabilities)
    if not choice.named:
        return Selection((content[choice.logits], content[choice.target]))
    found = {"logits": content[choice.logits], **{name: content[name] for name in choice.scores}}
    if choice.target is not None:
        found["target"] = as_target(content[choice.target], choice.target, classes)
    return Selection(found, choice.note)


def folded(name: str) -> str:
    """The form in which names are compared: without spaces around them, in lower case."""
    return name.strip().casefold()


def _choose_logits(content: Mapping[str, Any], from_probabilities: bool) -> str:
    """The name of the array with the logits.

    Names for the expected kind (logits or probabilities) come first, then names for the other kind, then the only array
    that can be logits.
    """
    if "logits" in content and not from_probabilities:
        return "logits"
    found = [name for name, x in content.items() if _is_matrix(x) and folded(name) not in TARGET_NAMES]
    for usual in (PROBABILITIES, LOGITS) if from_probabilities else (LOGITS, PROBABILITIES):
        named = [name for name in found if folded(name) in usual]
        if len(named) == 1:
            return named[0]
        found = named or found
    if "logits" in content:  # its shape or type is wrong, which is reported later
        return "logits"
    if len(found) == 1:
        return found[0]
    if found:
        raise ContentError(
            f"expected logits, got several arrays that could be logits: {list_arrays(content, found)}; "
            "call the right one 'logits'"
        )
    raise ContentError(f"expected an array 'logits' of shape (N, C), got {list_arrays(content, list(content))}")


def _is_matrix(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2 and value.is_floating_point()


def _is_score(name: str, value: Any) -> bool:
    numeric = isinstance(value, Tensor) and not value.is_complex() and value.dtype != torch.bool
    return numeric and value.ndim == 1 and folded(name) not in PREDICTIONS


def _note(
    content: Mapping[str, Any], logits: str, targets: list[str], scores: list[str], left: list[str], kind: str
) -> str:
    """Which array is used as what, if an array is left out or has an unusual name; otherwise ""."""
    if not left and folded(logits) in (*LOGITS, *PROBABILITIES):
        return ""
    taken = [f"{logits!r} as {kind}", *(f"{name!r} as targets" for name in targets)]
    taken += [f"{name!r} as a score" for name in scores]
    missing = "" if targets else f"; no targets, which are called {', '.join(TARGET_NAMES)}"
    return f"took {', '.join(taken)}{missing}" + (f"; left out {list_arrays(content, left)}" if left else "")


def as_target(values: Any, name: str, classes: Sequence[str] | None, *, first: int = 0) -> Any:
    """Class indices, also from names of classes, and from a column vector. `first` is the number of the first row."""
    if isinstance(values, Tensor):
        if classes is not None and any(_is_number(x) and x != str(i) for i, x in enumerate(classes)):
            raise ContentError(
                f"expected names of classes that are not numbers, got some that are: the numbers in {name!r} could be "
                "names or indices of classes; rename the classes, or leave the names out"
            )
        return values.squeeze(1) if values.ndim == 2 and values.shape[1] == 1 else values
    names = values.tolist() if getattr(values, "ndim", 0) == 1 else values
    if not isinstance(names, list) or not all(isinstance(x, str) for x in names):
        return values
    if classes is None:
        raise ContentError(f"expected numbers of classes in {name!r}, got text such as {names[0]!r}; {NAMING}")
    places = {x: i for i, x in enumerate(classes)}
    for row, x in enumerate(names, first):
        if x not in places:
            raise ContentError(f"expected names of classes in {name!r}, got {x!r} in row {row}")
    return torch.tensor([places[x] for x in names])


def check_plain(values: Any, what: str, shown: Any = None) -> None:
    """Raise unless the values are a plain tensor of real numbers. `shown` is what the message describes instead."""
    if not isinstance(values, Tensor) or values.is_complex() or values.layout != torch.strided:
        got = describe_array(values if shown is None else shown)
        raise ContentError(f"expected a plain array of numbers {what}, got {got}")


NAMING = "name the classes in their order with classes=[...] (--classes on the command line)"


def check_class_names(classes: Iterable[str]) -> list[str]:
    """Names of classes, or an error."""
    names = [classes] if isinstance(classes, str) else list(classes)
    if len(names) < 2 or not all(isinstance(name, str) and name for name in names):
        raise ContentError(f"expected at least two names of classes as strings, got {', '.join(map(repr, names))}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ContentError(f"expected classes with different names, got {name!r} twice")
        seen.add(name)
    return names


def list_arrays(content: Mapping[str, Any], names: list[str], most: int = 8) -> str:
    """The first few of the named values, with what they are."""
    texts = [f"{' '.join(name.split())} {describe_array(content[name])}" for name in names[:most]]
    return ", ".join(texts) + (f" and {len(names) - most} more" if len(names) > most else "") if texts else "nothing"


def describe_array(value: Any) -> str:
    """What a value is, in brackets."""
    if isinstance(value, Text):
        return f"({value.kind})"
    if getattr(value, "dtype", None) is None:
        return f"(a {type(value).__name__})"
    layout = f" {value.layout}" if isinstance(value, Tensor) and value.layout != torch.strided else ""
    return f"({' x '.join(map(str, value.shape)) or 'one value'}, {value.dtype}{layout})".replace("torch.", "")


def _is_number(text: str, parse: Callable[[str], object] = float) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
