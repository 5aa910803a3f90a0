"""What the numbers of a text say, in plain sentences."""

import math
from collections.abc import Iterator

from ..report.words import number, percent
from .text_words import NAMES, Numbers, signed

# A larger calibration error than this, beyond what chance explains, is worth a sentence that says so.
SMALL_ERROR = 0.02
# An AUROC at equal confidence that is nearer to 0.5 than this tells nothing worth a second number.
NOTHING = 0.03
# With fewer tokens than this, or where chance alone makes a larger calibration error than this, none is judged.
FEWEST = 100
LARGE_CHANCE = 0.05
FORCED = 0.99


def sentences(numbers: Numbers, num_classes: int) -> list[str]:
    """The verdict on a text, in plain sentences. Where no prediction counts, it says only that."""
    first = [invalid_sentence(numbers)] if numbers["invalid"] else []
    if not numbers["tokens"]:
        return first
    return [
        *first,
        _prediction(numbers),
        _calibration(numbers),
        _coins(numbers, num_classes),
        _separation(numbers),
        *_gap(numbers, num_classes),
    ]


def invalid_sentence(numbers: Numbers) -> str:
    """How many predictions the numbers leave out.

    >>> invalid_sentence({"tokens": 1990, "invalid": 10})
    '10 of 2,000 predictions were NaN or +inf and are left out.'
    """
    total = numbers["tokens"] + numbers["invalid"]
    return f"{numbers['invalid']:,} of {total:,} predictions were NaN or +inf and are left out."


def _prediction(numbers: Numbers) -> str:
    bits = numbers["bits_per_byte"]
    size = "" if bits != bits else f", which is {number(bits, 3)} bits per byte of text"
    return (
        f"The perplexity is {number(numbers['perplexity'], 1)} per token{size}. The next token was the likeliest one "
        f"in {percent(numbers['accuracy'])} of cases, and among the five likeliest in {percent(numbers['top_5'])}."
    )


def _calibration(numbers: Numbers) -> str:
    ece, chance = numbers["ece"], numbers["ece_chance"]
    sizes = f"the ECE is {number(ece)}, and chance alone would make about {number(chance)} of it"
    near = ece <= chance + SMALL_ERROR
    if numbers["tokens"] < FEWEST or (near and chance > LARGE_CHANCE):
        return f"There are too few tokens to judge calibration: {sizes}."
    if near:
        return f"The confidence in the next token is close to calibrated: {sizes}."
    sure = numbers["confidence"] > numbers["accuracy"]
    return (
        f"The confidence in the next token is not calibrated: the model is too {'sure' if sure else 'unsure'}, with a "
        f"mean confidence of {percent(numbers['confidence'])} where {percent(numbers['accuracy'])} are right; {sizes}."
    )


def _coins(numbers: Numbers, num_classes: int) -> str:
    return (
        f"Of its {num_classes - 1:,} coin flips, the likeliest token is expected to lose "
        f"{number(numbers['lost_coins_q50'], 2)} in the median and {number(numbers['lost_coins'], 2)} on average."
    )


def _separation(numbers: Numbers) -> str:
    overall = {name: numbers[f"auroc_{name}"] for name in NAMES}
    if any(math.isnan(auroc) for auroc in overall.values()):
        return f"All predictions were {'right' if numbers['accuracy'] else 'wrong'}, so nothing tells them apart."
    best = max(overall, key=lambda name: overall[name])
    auroc = number(overall[best], 3)
    first = f"Right and wrong next tokens are told apart best by {NAMES[best]}, with an AUROC of {auroc}"
    if best != "confidence":
        first += f"; confidence has {number(overall['confidence'], 3)}"
    own = numbers["auroc_confidence_at_equal_confidence"]
    if math.isnan(own):
        return f"{first}. No right prediction has about the confidence of a wrong one."
    within = {name: numbers[f"auroc_{name}_at_equal_confidence"] for name in NAMES}
    others = [name for name in NAMES if name != "confidence" and abs(within[name] - 0.5) > abs(own - 0.5) + NOTHING]
    if not others:
        return f"{first}. At equal confidence, no other score tells more."
    told = ", ".join(f"{signed(name)} {number(within[name], 3)}" for name in others)
    return f"{first}. At equal confidence there is more to see: {told} (0.5 tells nothing)."


def _gap(numbers: Numbers, num_classes: int) -> Iterator[str]:
    share = numbers["forced_share"]
    if share != share:
        return
    text = f"Confidence forces {100 * share:.{3 if share > FORCED else 1}f} % of the gap Δ"
    if share > FORCED:
        yield f"{text}: with {num_classes:,} tokens, Δ is about 1 − p̂ and says nothing of its own."
    else:
        yield f"{text}; the rest is free."
