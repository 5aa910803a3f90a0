"""Which score ranks best on the networks of the zoo, and can the coins get a temperature without OOD samples?

    python -m benchmarks.scores        # writes results/scores.csv and results/scores.md

The rules that choose a temperature were written down here before any of them was tried on an OOD set. Each sees
held-out in-distribution logits only, without their targets:

    median      T at which the median of q_T is 0.9; the rule of `choose_temperature`
    distance    half of the median `logit_gap`: the rivals of a typical sample are two temperatures below the top
    spread      T at which the standard deviation of q_T over the samples is largest, among 2^-2, 2^-1.875, ..., 2^6

T = 1, which is the paper's dominance, and T = 4, which is the score `tempered_dominance`, choose nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
from torch import Tensor

from benchmarks.harness import RESULTS, write_page
from benchmarks.scores_page import page
from torch_boc import zoo
from torch_boc.data.atomic import replacing
from torch_boc.data.logit_set import LogitSet
from torch_boc.evaluation.detection import Separation, paired_difference, rank_scores, separate, separation_intervals
from torch_boc.evaluation.intervals import random_numbers, with_intervals
from torch_boc.functional import bag_of_coins, choose_temperature, scores, tempered_dominance
from torch_boc.functional.registry import unsaturated_scores

TABLE, PAGE = RESULTS / "scores.csv", RESULTS / "scores.md"
FIXED = (
    "msp",
    "energy",
    "max_logit",
    "entropy",
    "gen",
    "logit_gap",
    "logit_gap_top",
    "dominance",
    "tempered_dominance",
)
BASELINES = ("msp", "energy", "gen", "tempered_dominance")
REPLICATES, SEED, DECIMALS = 1000, 0, 6
GRID = [2.0 ** (step / 8) for step in range(-16, 49)]


def by_median(logits: Tensor) -> float:
    return float(choose_temperature(logits))


def by_distance(logits: Tensor) -> float:
    return float(scores["logit_gap"](logits).median()) / 2


def by_spread(logits: Tensor) -> float:
    return max(GRID, key=lambda temperature: float(tempered_dominance(logits, temperature).std()))


RULES: Mapping[str, Callable[[Tensor], float]] = {"median": by_median, "distance": by_distance, "spread": by_spread}


def table(names: Iterable[str], *, replicates: int = REPLICATES) -> pd.DataFrame:
    """One row per entry of the zoo, OOD set (or its wrong predictions) and score."""
    rows: list[dict[str, Any]] = []
    for name in names:
        entry = zoo.load(name)
        test, splits = entry.test_and_splits()
        held_out = next(iter(splits.values())).logits
        chosen = {rule: choose(held_out) for rule, choose in RULES.items()}
        rows += _of_entry(name, "all", entry.id, entry.ood, {}, replicates)
        rows += _of_entry(name, "test", test, entry.ood, {"1": 1.0, **chosen}, replicates)
    return pd.DataFrame(rows)


def _of_entry(
    name: str, samples: str, test: LogitSet, ood: Mapping[str, LogitSet], chosen: Mapping[str, float], replicates: int
) -> list[dict[str, Any]]:
    right = bag_of_coins(test.logits).prediction == test.target
    pairs = {other: (test.logits, data.logits) for other, data in ood.items()}
    pairs["wrong"] = test.logits[right], test.logits[~right]
    rows = []
    for against, sides in pairs.items():
        ranked = _ranked(sides, chosen)
        separations = {score: separate(*pair) for score, pair in ranked.items()}
        for score, pair in ranked.items():
            numbers = random_numbers(SEED, name, samples, against, score)
            around = separation_intervals(separations[score], *pair, replicates, numbers)["auroc"]
            what = {"entry": name, "samples": samples, "against": against, "score": score}
            values = _values(separations[score], around, {base: separations[base] for base in BASELINES})
            rows.append({**what, "temperature": chosen.get(score.removeprefix("T: ")), **values})
    return rows


def _ranked(sides: tuple[Tensor, Tensor], chosen: Mapping[str, float]) -> dict[str, Any]:
    """Each score of both sides, ranked: all that choose nothing, or the baselines and the coins at each temperature."""
    names = BASELINES if chosen else FIXED
    columns = [unsaturated_scores(side, names) for side in sides]
    for side, column in zip(sides, columns, strict=True):
        # The dominance of logits / T, as a number that does not saturate.
        column |= {f"T: {rule}": unsaturated_scores(side / T, ["dominance"])["dominance"] for rule, T in chosen.items()}
    return {score: tuple(rank_scores(column[score]) for column in columns) for score in columns[0]}


def _values(result: Separation, around: tuple[float, float], baselines: Mapping[str, Separation]) -> dict[str, float]:
    values, intervals = {"auroc": result.auroc}, {"auroc": around}
    for name, baseline in baselines.items():
        values[f"versus_{name}"], *margins = paired_difference(result, baseline)
        intervals[f"versus_{name}"] = (margins[0], margins[1])
    return {key: round(value, DECIMALS) for key, value in with_intervals(values, intervals).items()}


def main() -> None:
    """Write the table and the page."""
    with replacing(TABLE) as temporary:
        table(zoo.names()).to_csv(temporary, index=False)
    print(f"wrote {TABLE.name}")
    write_page(PAGE, page(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
