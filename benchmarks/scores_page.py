"""The page `results/scores.md`, from the table that `benchmarks/scores.py` writes."""

import textwrap

import pandas as pd

from benchmarks.harness import markdown_table
from torch_boc.report.format import number, symbol

HEAD = (
    "Written by `python -m benchmarks.scores` from the logits in `torch_boc/zoo`; `scores.csv` has every number. "
    "Brackets are 95 % intervals: bootstrap for an AUROC, DeLong's for the difference of two on the same samples."
)
FIXED = (
    "AUROC of the test set against OOD data, and of correct against wrong predictions on the test set. No score is "
    "fitted. `log_odds` ranks as MSP, and −Δ and p\\* nearly do."
)
RULES = (
    "The coins q̄_T are won with probability σ((z_top − z_j) / T). T = 1 is the paper's q̄, and T → ∞ ranks as the "
    "logit gap. "
    "Three rules choose T from held-out in-distribution logits only. They were fixed before they were evaluated on "
    "an OOD set: `median` takes the T at which the median q̄_T is 0.9 (`choose_temperature`), `distance` half of the "
    "median logit gap, `spread` the T at which q̄_T varies most over the samples. Where a network has no held-out "
    "split, the first half of its test set chooses T, and everything in these tables is for the other half."
)
QUESTION = (
    "The paper leaves open (i) whether other scores in the style of BoC could exploit the geometry of the logits "
    "better. These conclusions follow from the intervals below, for these networks and sets only. T = 4 was known "
    "to do "
    "well on resnet20-cifar10, vit-cifar10 and roberta-agnews before the rules were fixed, so for these three T = 4 is "
    "chosen with OOD data, and the rules are not."
)
BASELINES = ("msp", "energy", "gen", "tempered_dominance")


def page(table: pd.DataFrame) -> str:
    """The page in Markdown."""
    everyone = table[table["samples"] == "all"]
    parts = ["# Scores on the zoo", _wrap(HEAD), _wrap(FIXED), _fixed_table(everyone)]
    chosen = table[table["samples"] == "test"]
    parts += ["## Coins at another temperature", _wrap(RULES), _wrap(QUESTION)]
    parts += ["\n".join(f"- {_wrap(line, 2)}" for line in conclusions(chosen))]
    for (entry, against), rows in chosen.groupby(["entry", "against"], sort=False):
        title = f"{entry}, correct against wrong predictions" if against == "wrong" else f"{entry} against {against}"
        parts += [f"### {title}", _rule_table(rows)]
    return "\n\n".join(parts) + "\n"


def conclusions(chosen: pd.DataFrame) -> list[str]:
    """What the intervals allow to say of each way to choose T."""
    ood, wrong = chosen[chosen["against"] != "wrong"], chosen[chosen["against"] == "wrong"]
    sentences = []
    for score in [x for x in chosen["score"].unique() if x not in BASELINES[:3]]:
        mine = ood[ood["score"] == score]
        against = "; ".join(f"{symbol(base)}: {_count(mine, base)}" for base in BASELINES if base != score)
        errors = _count(wrong[wrong["score"] == score], "msp")
        sentences.append(
            f"**{_name(score)}** ({_temperatures(mine)}), compared on OOD data with {against}. On wrong predictions, "
            f"compared with {symbol('msp')}: {errors}."
        )
    return sentences


def _count(rows: pd.DataFrame, base: str) -> str:
    """On how many sets the difference from `base` is shown to be above or below 0."""
    better = int((rows[f"versus_{base}_low"] > 0).sum())
    worse = int((rows[f"versus_{base}_high"] < 0).sum())
    same = len(rows) - better - worse
    counts = [(better, "better"), (worse, "worse"), (same, "not shown to differ")]
    return ", ".join(f"{what} on {count}" for count, what in counts if count)


def _temperatures(rows: pd.DataFrame) -> str:
    values = rows.drop_duplicates("entry")["temperature"].dropna()
    return "T = " + (", ".join(dict.fromkeys(number(x, 2) for x in values)) or "4")


def _fixed_table(rows: pd.DataFrame) -> str:
    pairs = list(rows.groupby(["entry", "against"], sort=False).groups)
    columns = ["score", *(f"{entry}: {'wrong' if other == 'wrong' else other}" for entry, other in pairs)]
    lines = []
    for score in rows["score"].unique():
        mine = rows[rows["score"] == score].set_index(["entry", "against"])
        lines.append([symbol(score), *(_value(mine.loc[pair]) for pair in pairs)])
    return markdown_table(columns, lines)


def _rule_table(rows: pd.DataFrame) -> str:
    columns = ["score", "T", "AUROC", *(f"minus {symbol(base)}" for base in BASELINES)]
    lines = []
    for _, row in rows.iterrows():
        differences = [_value(row, f"versus_{base}", sign=True) for base in BASELINES]
        temperature = "" if pd.isna(row["temperature"]) else number(row["temperature"], 2)
        lines.append([_name(row["score"]), temperature, _value(row), *differences])
    return markdown_table(columns, lines)


def _value(row: pd.Series, column: str = "auroc", *, sign: bool = False) -> str:
    if column == f"versus_{row.get('score')}":
        return ""  # a score against itself
    low, high = (number(row[f"{column}_{end}"], 3, sign=sign) for end in ("low", "high"))
    return f"{number(row[column], 3, sign=sign)} [{low}, {high}]"


def _name(score: str) -> str:
    rule = score.removeprefix("T: ")
    return symbol(score) if rule == score else "q̄ at T = 1" if rule == "1" else f"q̄ by {rule}"


def _wrap(text: str, indent: int = 0) -> str:
    return textwrap.fill(text, 120, subsequent_indent=" " * indent, break_on_hyphens=False)
