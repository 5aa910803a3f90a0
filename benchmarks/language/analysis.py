"""The numbers of the page: rows of (model, set, what, value, low, high), from the columns of the tokens."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from benchmarks.language.collect import KEPT, Columns, bound_columns
from benchmarks.language.resampling import (
    Estimate,
    auroc,
    beyond,
    calibration_error,
    document_means,
    equal_strata,
    estimate,
    estimates,
    explained,
    mean,
    ratio,
)
from torch_boc.functional import bag_of_coins

BINS, STRATA = 15, 50
LEVELS = (0.05, 0.5, 0.95, 0.99)
RANDOM_ROWS, RANDOM_CLASSES, BLOCK = 100_000, 1_000, 2_000
# Higher is more sure; what the page calls each is in `page.py`.
SCORES = {
    "confidence": lambda x: -x["odds"],
    "lost_coins": lambda x: -x["lost_coins"],
    "entropy": lambda x: -x["entropy"],
    "logit_gap": lambda x: x["logit_gap"],
    "energy": lambda x: x["energy"],
    "concentration": lambda x: -x["concentration"],
}
# What natural text is told from other text by, higher for natural text.
FAMILIAR = {"log_probability": lambda x: x["log_probability"], **{k: SCORES[k] for k in list(SCORES)[:3]}}
FAMILIAR["concentration"] = SCORES["concentration"]
CONTRASTS = (("news", "news, shuffled"), ("Python help", "code"), ("manuals", "manuals, German"))
Row = dict[str, object]


def rows_of(model: str, sets: Mapping[str, Columns]) -> list[Row]:
    """All rows of one model."""
    found = []
    for name, columns in sets.items():
        print(f"resampling {model}, {name}", flush=True)
        found += [_row(model, name, what, value) for what, value in set_numbers(columns)]
        found += [_row(model, name, what, value) for what, value in bin_numbers(columns)]
    for one, other in CONTRASTS:
        if one in sets and other in sets:
            numbers = contrast_numbers(sets[one], sets[other])
            found += [_row(model, f"{one} / {other}", what, value) for what, value in numbers]
    everything = {key: torch.cat([x[key].double() for x in sets.values()]) for key in next(iter(sets.values()))}
    found += [_row(model, "all", what, value) for what, value in width_numbers(everything)]
    return found


def _row(model: str, name: str, what: str, found: Estimate | float) -> Row:
    value, low, high = found if isinstance(found, Estimate) else (found, math.nan, math.nan)
    return {"model": model, "set": name, "what": what, "value": value, "low": low, "high": high}


def set_numbers(x: Columns) -> Iterator[tuple[str, Estimate | float]]:
    """Prediction, calibration, gap, and what tells right from wrong tokens, of one set."""
    document, right, nll = x["document"], x["right"], -x["log_probability"]
    yield "documents", float(document.max()) + 1
    yield "tokens", float(len(document))
    perplexity = estimate(mean(nll), document)
    yield "perplexity", Estimate(*(math.exp(value) for value in perplexity))
    yield "bits_per_byte", estimate(ratio(nll / math.log(2), x["bytes"].double()), document)
    yield "accuracy", estimate(mean(right), document)
    yield "confidence", estimate(mean(x["confidence"]), document)
    yield "ece", estimate(calibration_error(x["confidence"], right, BINS), document)
    yield "brier_confidence", estimate(mean((x["confidence"] - right).square()), document)
    yield "brier_all", estimate(mean(x["squares"] - 2 * x["log_probability"].exp() + 1), document)
    yield "entropy", estimate(mean(x["entropy"]), document)
    yield "lost_coins", estimate(mean(x["lost_coins"]), document)
    yield "lost_coins_median", float(x["lost_coins"].median())
    yield "forced_share", estimate(ratio(x["forced_gap"], x["gap"]), document)
    yield "forced_variance", estimate(explained(x["gap"], x["free_gap"]), document)
    strata, positive = equal_strata(x["confidence"], STRATA), right > 0.5
    baseline = auroc(SCORES["confidence"](x), positive, strata)
    for name, score in SCORES.items():
        statistics = beyond(auroc(score(x), positive), auroc(score(x), positive, strata), baseline)
        ways = ("auroc", "within", "over", "under")
        yield from zip((f"{way}_{name}" for way in ways), estimates(statistics, document), strict=True)


def bin_numbers(x: Columns) -> Iterator[tuple[str, float]]:
    """Confidence, accuracy and share of tokens in each bin that has some."""
    place = ((x["confidence"] * BINS).ceil() - 1).clamp(0, BINS - 1).long()
    for i in place.unique().tolist():
        inside = place == i
        yield f"bin_{i}_confidence", float(x["confidence"][inside].mean())
        yield f"bin_{i}_accuracy", float(x["right"][inside].mean())
        yield f"bin_{i}_share", float(inside.double().mean())


def contrast_numbers(one: Columns, other: Columns) -> Iterator[tuple[str, Estimate]]:
    """How well natural text is told from other text, by token and by the mean of a document."""
    documents = one["document"].max() + 1
    document = torch.cat([one["document"], other["document"] + documents])
    natural = torch.cat([torch.ones_like(one["document"]), torch.zeros_like(other["document"])]) > 0
    each = torch.arange(int(document.max()) + 1)
    for name, score in FAMILIAR.items():
        values = torch.cat([score(one), score(other)])
        yield f"token_{name}", estimate(auroc(values, natural), document)
        yield f"document_{name}", estimate(auroc(document_means(values, document), each < documents), each)


def width_numbers(x: Columns) -> Iterator[tuple[str, float]]:
    """The relative width of the bounds from the top k by quantiles, and how many rows they contain the truth of."""
    for k in KEPT:
        yield f"rows_{k}", float(len(x[f"inside_{k}"]))
        yield f"inside_{k}", float(x[f"inside_{k}"].sum())
        for level in LEVELS:
            yield f"width_{k}_{level}", float(x[f"width_{k}"].quantile(level))


def random_numbers() -> list[Row]:
    """Whether the bounds contain the truth for random rows of many shapes."""
    random = torch.Generator().manual_seed(0)
    inside = dict.fromkeys(KEPT, 0)
    for start in range(0, RANDOM_ROWS, BLOCK):
        found = bound_columns(*random_rows(start / RANDOM_ROWS, random))
        for k in KEPT:
            inside[k] += int(found[f"inside_{k}"].sum())
    rows = [_row("random rows", "all", f"rows_{k}", float(RANDOM_ROWS)) for k in KEPT]
    return rows + [_row("random rows", "all", f"inside_{k}", float(inside[k])) for k in KEPT]


def random_rows(position: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Log-probabilities from nearly equal ones to very sharp ones, a third of them with heavy tails, and their loss."""
    shape = (BLOCK, RANDOM_CLASSES)
    logits = torch.randn(shape, generator=random, dtype=torch.float64)
    heavy = torch.rand(BLOCK, 1, generator=random) < 1 / 3
    logits = torch.where(heavy, logits * logits.square(), logits) * 10 ** (2.5 * position - 1)
    log_p = logits.log_softmax(-1)
    return log_p, bag_of_coins(log_p).loss
