"""The numbers of the page: rows of (model, set, what, value, low, high), from the columns of the tokens."""

import math
from collections.abc import Iterator, Mapping

import torch

from benchmarks.language.collect import Columns
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

BINS, STRATA = 15, 50
# Higher is more confident; what the page calls each is in `page.py`.
SCORES = {
    "confidence": lambda x: -x["odds"],
    "lost_coins": lambda x: -x["lost_coins"],
    "entropy": lambda x: -x["entropy"],
    "logit_gap": lambda x: x["logit_gap"],
    "energy": lambda x: x["energy"],
    "concentration": lambda x: -x["concentration"],
}
# What natural text is told from other text by, higher for natural text.
NATURAL = {"log_probability": lambda x: x["log_probability"], **{k: SCORES[k] for k in list(SCORES)[:3]}}
NATURAL["concentration"] = SCORES["concentration"]
CONTRASTS = (("news", "news, shuffled"), ("Python help", "code"), ("manuals", "manuals, German"))
Row = dict[str, object]


def rows_of(model: str, sets: Mapping[str, Columns]) -> list[Row]:
    """All rows of one model."""
    rows = []
    for name, columns in sets.items():
        print(f"resampling {model}, {name}", flush=True)
        rows += [_row(model, name, what, value) for what, value in set_numbers(columns)]
        rows += [_row(model, name, what, value) for what, value in bin_numbers(columns)]
    for one, other in CONTRASTS:
        if one in sets and other in sets:
            numbers = contrast_numbers(sets[one], sets[other])
            rows += [_row(model, f"{one} / {other}", what, value) for what, value in numbers]
    return rows


def _row(model: str, name: str, what: str, estimate: Estimate | float) -> Row:
    value, low, high = estimate if isinstance(estimate, Estimate) else (estimate, math.nan, math.nan)
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
    for name, score in NATURAL.items():
        values = torch.cat([score(one), score(other)])
        yield f"token_{name}", estimate(auroc(values, natural), document)
        yield f"document_{name}", estimate(auroc(document_means(values, document), each < documents), each)
