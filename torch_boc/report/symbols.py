"""What symbols and short names mean, said where each first appears."""

import re
from collections.abc import Iterable

GLOSSARY = (
    ("p̂", "confidence: the largest softmax probability."),
    ("MSP", "plain confidence p̂, the maximum softmax probability, as a method or a score."),
    ("ECE", "expected calibration error: how far confidence is from the share that is right, on average."),
    ("NLL", "negative log-likelihood of the right class, on average."),
    ("Brier", "the mean squared difference between confidence and being right (1) or wrong (0)."),
    ("T", "the temperature that the logits are divided by."),
    ("AUROC", "the chance that a sample of the test set scores higher than an out-of-distribution sample."),
    ("FPR95", "the share of out-of-distribution samples that pass when 95 % of the test set do."),
    ("AUPR", "area under the curve of precision against recall, the test set being positive."),
    ("q̄", "dominance: the mean chance that the predicted class beats a rival in a coin flip weighted by their logits."),
    ("BoC", "Bag of Coins: as a method, dominance q̄ taken for a confidence, as in the paper."),
    ("Δ", "coherence gap, q̄ − p̂. It is never negative, and 0 for two classes."),
    ("forced", "the part of Δ that follows from p̂ and the number of classes: Δ if all rivals were equally strong."),
    ("free", "the rest of Δ: what the geometry of the logits adds."),
    (
        "R²",
        "1 − Var(free) / Var(Δ) over the samples of a set: how much of what Δ varies follows the forced part.",
    ),
    ("ρ", "concentration: 0 when the rivals share the rest evenly, 1 when it sits on as few rivals as possible."),
    ("k", "number of coin flips."),
    ("p*", "the p-value of the expected wins in k coin flips, Pr{Binomial(k, p̂) ≥ round(k q̄)}."),
    ("rejected", "the share of samples with p* of at most 0.05; the column p-value is their mean p*."),
    (
        "s_BoC",
        "the paper’s score, 1 − p*. Higher means less confident, which is upside down for a score of familiarity.",
    ),
)
_PATTERNS = {name: re.compile(rf"(?<![\w’'-]){re.escape(name)}(?![\w-])") for name, _ in GLOSSARY}


class Introductions:
    """Remembers what has been introduced, so that each symbol is explained once: where it first appears.

    >>> reader = Introductions()
    >>> [name for name, _ in reader.of(["Best is BoC: ECE 0.01"])], reader.of(["The ECE again"])
    (['ECE', 'q̄', 'BoC'], [])
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """The symbols in these texts that are new to the reader, and what they mean, in the glossary's order.

        A meaning may use other symbols, which are then introduced as well.
        """
        fresh = _within(texts) - self._known
        while more := _within(text for name, text in GLOSSARY if name in fresh) - self._known - fresh:
            fresh |= more
        self._known |= fresh
        return [(name, text) for name, text in GLOSSARY if name in fresh]


def _within(texts: Iterable[str]) -> set[str]:
    whole = "\n".join(texts)
    return {name for name, pattern in _PATTERNS.items() if pattern.search(whole)}
