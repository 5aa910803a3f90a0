"""Does the geometry of the logits tell anything beyond confidence? Rows and a sentence for the comparison of models."""

from collections.abc import Callable
from functools import partial
from typing import Any

from .claims import shown
from .parts import NOTHING, Cell, value_cell
from .results import SPLINE
from .words import interval_text, listed, number, symbol, value_text

BEYOND_NOTE = (
    "Does the geometry of the logits tell anything that confidence does not? “At equal p̂” compares only samples of "
    "about the same confidence: 0.5 means that ρ tells nothing, and below 0.5 the OOD samples have the more evenly "
    "matched rivals. Two models are also fitted to tell both sets apart, one by p̂ alone and one by p̂ and ρ. They are "
    "judged on samples that they have not seen; “gained by ρ” is the difference. It is biased downwards, because the "
    "second model has more to learn from the same samples. Therefore a small true gain is found at equal p̂ long "
    "before it shows here, and an interval below 0 does not mean that ρ does harm. Such a model has learnt from OOD "
    "samples; scores that have learnt nothing, such as the energy and GEN, may still rank better than p̂ and ρ do. Two "
    "more models therefore know the energy as well, without ρ and with it."
)
WITH_ENERGY = "energy_concentration"
BeyondContrast = tuple[Cell, Callable[[Any], Cell]]


def beyond_rows() -> list[BeyondContrast]:
    """The names of the rows, each with a function from a table of `beyond_confidence`, or None, to a cell."""
    return [
        (Cell("AUROC at equal p̂, −ρ"), _within),
        (Cell("AUROC, model of p̂"), _alone),
        (Cell("AUROC, model of p̂ and ρ"), partial(_added, "auroc")),
        (Cell("gained by ρ"), partial(_added, "versus_confidence")),
        (Cell("AUROC, p̂ and energy"), partial(_with_energy, "energy", "auroc")),
        (Cell("AUROC, p̂, energy and ρ"), partial(_with_energy, WITH_ENERGY, "auroc")),
        (Cell("gained by ρ over both"), partial(_with_energy, WITH_ENERGY, "versus_without")),
    ]


def beyond_sentence(table: Any) -> str:
    """Whether the concentration helps to tell both sets apart if the confidence is known: in strata, and in a model."""
    row = _models(table, "concentration").iloc[0]
    tells = "tells more" if row["versus_confidence_low"] > 0 else "is not shown to tell more"
    values = f"AUROC {number(row['auroc'])} against {_alone(table).text} of p̂ alone"
    model = (
        f"In a model that knows p̂, ρ {tells}: {values}, a difference of "
        f"{value_text(row, 'versus_confidence', sign=True)}, which is biased downwards."
    )
    strata, unsupervised = _strata(table), _unsupervised(table, row["auroc"])
    said = [_at_equal_confidence(strata.iloc[0])] if len(strata) else []
    return " ".join([*said, model, *unsupervised, *_beside_energy(table)])


def _unsupervised(table: Any, auroc: float) -> list[str]:
    """Which scores that have learnt nothing rank better than the model of confidence and concentration."""
    alone = table[(table["how"] == "alone") & table["what"].isin(["energy", "gen"]) & (table["auroc_low"] > auroc)]
    names = [f"{symbol(row['what'])} ({number(row['auroc'])})" for _, row in alone.iterrows()]
    if not names:
        return []
    ranks = "ranks" if len(names) == 1 else "rank"
    return [f"That model has learnt from OOD samples, and still {listed(names)}, which learnt nothing, {ranks} better."]


def _beside_energy(table: Any) -> list[str]:
    """What the concentration adds to confidence and energy together."""
    found = _models(table, WITH_ENERGY)
    if not len(found) or found["versus_without"].isna().any():
        return []
    row = found.iloc[0]
    adds = "adds" if row["versus_without_low"] > 0 else "is not shown to add anything"
    return [f"To p̂ and energy together, ρ {adds}: {value_text(row, 'versus_without', sign=True)}."]


def _at_equal_confidence(row: Any) -> str:
    """What is shown for samples of about the same confidence."""
    (sign,) = shown(row.to_frame().T, "auroc", 0.5)
    rivals = {-1: "more evenly matched rivals", 1: "more concentrated rivals"}
    found = f"OOD samples have {rivals[sign]}" if sign else "ρ is not shown to tell anything"
    return f"At equal p̂, {found} (AUROC of −ρ {number(row['auroc'])}, {interval_text(row, 'auroc')})."


def _alone(table: Any) -> Cell:
    """The better of the two models that know confidence alone."""
    known = None if table is None else _models(table, "confidence", SPLINE)
    return NOTHING if known is None else value_cell(known.sort_values("auroc", ascending=False), "auroc")


def _within(table: Any) -> Cell:
    return NOTHING if table is None else value_cell(_strata(table), "auroc")


def _strata(table: Any) -> Any:
    return table[(table["how"] == "strata") & (table["what"] == "concentration") & table["auroc"].notna()]


def _added(column: str, table: Any) -> Cell:
    return NOTHING if table is None else value_cell(_models(table, "concentration"), column, sign=column != "auroc")


def _with_energy(what: str, column: str, table: Any) -> Cell:
    return NOTHING if table is None else value_cell(_models(table, what), column, sign=column != "auroc")


def _models(table: Any, *quantities: str) -> Any:
    return table[(table["how"] == "model") & table["what"].isin(quantities)]
