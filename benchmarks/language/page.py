"""The page, from the table of numbers only: a test makes it again from `numbers.csv`."""

import textwrap
from typing import Any

import pandas as pd

from benchmarks.harness import markdown_table
from benchmarks.language.analysis import CONTRASTS, NATURAL, SCORES
from benchmarks.language.figures import SIGNED, of
from benchmarks.language.sentences import answers
from benchmarks.language.texts import SETS
from torch_boc.report.format import number

MAIN = "SmolLM2-135M"
HEAD = (
    "A real language model on real text, by the functions of `python -m benchmarks.language FOLDER --gguf FILE`. The "
    "committed numbers were computed by these functions in several runs with a cache, and not yet by one run of "
    "the command. `numbers.csv` has every number, and a test remakes this page from it. `python -m "
    "benchmarks.language.fetch FOLDER` gets the model. Brackets are 95 % intervals by the bootstrap over documents, "
    "because the tokens of one document depend on each other."
)
HOW = (
    "The model reads each document separately, cut after 128 tokens; every token but the first is predicted from "
    "those before it (Gemma: every token, after its token for the beginning). “Correct” means that the likeliest "
    "token is "
    "the next one. At equal confidence, only predictions in the same of 50 quantiles of confidence are compared."
)
CALIBRATION = (
    "“Brier, prediction” is that of the event that the likeliest token comes; “all tokens” is the sum over the whole "
    "vocabulary. Bits per byte compare models with different tokens."
)
GAP = "Confidence determines the forced part; ρ measures the rest."
CORRECT = (
    "AUROC of correct against wrong next tokens. Lost coins, entropy and ρ count with a minus sign. A value below "
    "0.5 at "
    "equal confidence means that the sign is reversed."
)
OTHER = (
    "AUROC of natural text (the first name) against the other, for single tokens and for the means of documents. The "
    "words of the shuffled news are the same; the German manuals are translations of the English ones; code and help "
    "are both about Python."
)
TINTED = (
    "The page of a generated text, its tokens tinted by their lost coins, is written by `torch-boc trace --model FILE "
    "--prompt TEXT -o trace.html`, and its picture by `python -m benchmarks.language.picture trace.html`."
)


def page(table: pd.DataFrame, *, tinted: bool = False) -> str:
    """The whole page in Markdown; `tinted` says whether the folder has the picture of a tinted page."""
    models = [*table["model"].unique()]
    sets = [name for name in SETS if of(table, MAIN, name)]
    parts = ["# A language model on text", _wrap(HEAD), "## Findings"]
    parts.append("\n".join(f"- {_wrap(line, 2)}" for line in answers(table, MAIN, models)))
    parts += ["## Setup", _wrap(HOW), _sets(table, models)]
    parts += ["## Next-token calibration", _wrap(CALIBRATION), *_calibration(table, models)]
    parts += ["![Accuracy against confidence in the next token](reliability.png)"]
    parts += ["## The gap is forced", _wrap(GAP), _gap(table, models)]
    parts += ["## Correct and wrong next tokens", _wrap(CORRECT), _separation(table, sets, "auroc")]
    parts += ["At equal confidence:", _separation(table, sets, "within")]
    parts += ["![AUROC of correct against wrong next tokens; one panel per set](separation.png)"]
    parts += ["## Natural and other text", _wrap(OTHER), _contrasts(table)]
    parts += ["![AUROC of natural against other text; one panel per pair](contrasts.png)"]
    parts += ["## A tinted page", _wrap(TINTED)]
    return "\n\n".join([*parts, *(["![A generated text, tinted by lost coins](tinted.png)"] if tinted else [])]) + "\n"


def cell(row: Any, digits: int = 3) -> str:
    """A value, with its interval if it has one."""
    if row is None:
        return "–"
    if row.low != row.low:
        return number(row.value, digits)
    return f"{number(row.value, digits)} [{number(row.low, digits)}, {number(row.high, digits)}]"


def _present(table: pd.DataFrame, models: list[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Every model and set that was run."""
    pairs = [(model, name, of(table, model, name)) for model in models for name in SETS]
    return [(model, name, rows) for model, name, rows in pairs if rows]


def _sets(table: pd.DataFrame, models: list[str]) -> str:
    rows = [
        [model, name, SETS[name].what, f"{x['documents'].value:,.0f}", f"{x['tokens'].value:,.0f}"]
        for model, name, x in _present(table, models)
    ]
    return markdown_table(["model", "set", "what it is", "documents", "tokens scored"], rows)


def _calibration(table: pd.DataFrame, models: list[str]) -> list[str]:
    first = {"perplexity": 1, "bits_per_byte": 3, "accuracy": 3, "confidence": 3, "ece": 3}
    second = {"brier_confidence": 3, "brier_all": 3, "entropy": 2, "lost_coins": 2, "lost_coins_median": 2}
    titles = [["perplexity", "bits per byte", "accuracy", "mean confidence", "ECE"]]
    titles += [["Brier, prediction", "Brier, all tokens", "mean entropy", "mean lost coins", "median lost coins"]]
    return [
        markdown_table(
            ["model", "set", *head],
            [[m, s, *(cell(x[key], digits) for key, digits in keys.items())] for m, s, x in _present(table, models)],
        )
        for head, keys in zip(titles, (first, second), strict=True)
    ]


def _gap(table: pd.DataFrame, models: list[str]) -> str:
    rows = []
    for model, name, estimates in _present(table, models):
        share, rest = estimates["forced_share"], 1 - estimates["forced_variance"].value
        rows.append([model, name, *(f"{100 * x:.4f} %" for x in (share.value, share.low)), f"{rest:.1e}"])
    return markdown_table(
        ["model", "set", "forced part of the mean gap", "at least", "part of the variance not forced"], rows
    )


def _separation(table: pd.DataFrame, sets: list[str], way: str) -> str:
    by_set = {name: of(table, MAIN, name) for name in sets}
    rows = [[SIGNED[score], *(cell(by_set[name][f"{way}_{score}"]) for name in sets)] for score in SCORES]
    return markdown_table(["score", *sets], rows)


def _contrasts(table: pd.DataFrame) -> str:
    rows = []
    for one, other in CONTRASTS:
        estimates = of(table, MAIN, f"{one} / {other}")
        for name in NATURAL if estimates else ():
            values = [cell(estimates[f"{way}_{name}"]) for way in ("token", "document")]
            rows.append([f"{one} / {other}", SIGNED[name], *values])
    return markdown_table(["sets", "score", "by token", "by document"], rows)


def _wrap(text: str, indent: int = 0) -> str:
    return textwrap.fill(text, 120, subsequent_indent=" " * indent, break_on_hyphens=False)
