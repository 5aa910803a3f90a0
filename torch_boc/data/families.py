"""Which columns of a table hold one class each: logit_0, logit_1, ..., or columns under the names of the classes."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .formats import ContentError
from .selection import NAMING, PROBABILITIES, folded

CLASS = re.compile(r"(?:(logits?|prob(?:s|ability|abilities)?|softmax|scores?|predictions?)[_.\- ]?)?0*(\d+)")
WANTED = "expected columns logit_0, logit_1, ... (or 0, 1, ...; or 'logits' of lists)"


class Column(NamedTuple):
    """The column of one class: its family, such as "logit_", and the number of the class."""

    name: str
    family: str
    place: int


def find_families(names: Sequence[str], classes: Sequence[str] | None = None) -> dict[str, list[str]]:
    """The columns of each family in the order of the classes, under "logits" and "probabilities".

    Args:
        names: the names of all columns.
        classes: names of the classes. Columns may have these names, with or without "logit_" in front.

    >>> find_families(["y", "logit_1", "logit_0", "prob_0", "prob_1"])
    {'logits': ['logit_0', 'logit_1'], 'probabilities': ['prob_0', 'prob_1']}
    """
    _check_different(names)
    if classes is not None and (named := _named(names, classes)):
        return {"logits": named}
    found = [column for name in names if (column := _class_column(name))]
    families = {column.family: [x for x in found if x.family == column.family] for column in _firsts(found)}
    whole = [name for name in names if folded(name) == "logits"]
    kinds = [f"{x[0].family}0, {x[0].family}1, ..." for x in families.values() if _group(x) == "logits"] + whole
    if len(kinds) > 1:
        raise ContentError(f"{WANTED}, got both {' and '.join(kinds)}")
    if not families and not whole:
        got = f"{', '.join(names[:8])}{', ...' * (len(names) > 8)}"
        raise ContentError(f"{WANTED}, got {got}; if columns have the names of the classes, {NAMING}")
    result = {"logits": whole} if whole else {}
    for columns in families.values():
        result.setdefault(_group(columns), _in_order(columns))
    return result


def _check_different(names: Sequence[str]) -> None:
    """Raise if two names are equal, or differ only in the spaces around them."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.strip(), name)
        if other is not name:
            shown = f"{name!r} twice" if other == name else f"{other!r} and {name!r}"
            raise ContentError(f"expected columns with different names, got {shown}; rename one or leave it out")


def _named(names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """The columns that have the names of the classes: one for every class, or none at all."""
    known = {name.strip(): name for name in names}
    found = [known.get(x.strip()) or known.get(f"logit_{x.strip()}") for x in classes]
    missing = [x for x, name in zip(classes, found, strict=True) if name is None]
    if missing and len(missing) < len(classes):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ContentError(f"expected a column for every class, got none for {missing[0]!r}{more}")
    return [name for name in found if name is not None]


def _class_column(name: str) -> Column | None:
    match = CLASS.fullmatch(folded(name))
    return Column(name, folded(name)[: match.end(1) + 1] if match[1] else "", int(match[2])) if match else None


def _firsts(columns: Sequence[Column]) -> list[Column]:
    """The first column of each family."""
    firsts: dict[str, Column] = {}
    for column in columns:
        firsts.setdefault(column.family, column)
    return list(firsts.values())


def _group(columns: Sequence[Column]) -> str:
    word = columns[0].family.rstrip("_.- ")
    return "probabilities" if word in (*PROBABILITIES, "prob", "score") else "logits"


def _in_order(columns: Sequence[Column]) -> list[str]:
    """The names of a family's columns by class; each class must have one."""
    places: dict[int, str] = {}
    for column in columns:
        if column.place in places:
            raise ContentError(
                f"expected one column for each class, got {places[column.place]!r} and {column.name!r} for class "
                f"{column.place}; rename one or leave it out"
            )
        places[column.place] = column.name
    family, last = columns[0].family, max(places)
    missing = [i for i in range(len(places)) if i not in places]
    if missing:
        total = last + 1 - len(places)
        which = (
            f"{family}{missing[0]} is missing" if total == 1 else f"{total} are missing, such as {family}{missing[0]}"
        )
        raise ContentError(f"expected columns {family}0 to {family}{last}, got {len(places)} of them: {which}")
    return [places[i] for i in range(len(places))]
