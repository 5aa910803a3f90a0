"""What `benchmarks.coverage` counts: intervals of errors and areas, and sentences."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy
import pandas as pd
import torch
from torch import Tensor

from benchmarks.guarantees import (
    acceptance_study,
    audit_study,
    bursts_study,
    classes_study,
    few_errors_study,
    fitted_study,
    sets_study,
    shared_delta_study,
)
from benchmarks.known_truth import BINS, Normals, Population, made_logits, network, normals, one_bad_bin
from benchmarks.paper.beyond import columns_of, gain
from torch_boc.calibration import CALIBRATORS
from torch_boc.evaluation import evaluate
from torch_boc.evaluation.calibration import CalibratedSamples, calibration_rows, error_difference
from torch_boc.evaluation.comparison import area_difference, model_error_difference
from torch_boc.evaluation.detection import paired_difference, rank_scores, separate, separation_intervals
from torch_boc.evaluation.intervals import random_numbers
from torch_boc.evaluation.significance import conclude
from torch_boc.functional import bag_of_coins
from torch_boc.report.results import Results, frame
from torch_boc.report.story import make_narrative

REPLICATES = 400
SIZES = (200, 1000, 5000)
Row = dict[str, Any]


class Study(NamedTuple):
    """What is done for a size and a number of repetitions, at which sizes, and with which share of the repetitions."""

    run: Callable[[int, int], list[Row]]
    sizes: tuple[int, ...] = SIZES
    share: float = 1.0


class Count:
    """How often intervals hold the truth."""

    def __init__(self, case: str, what: str, truth: float) -> None:
        self.label, self.truth, self.ends = {"case": case, "what": what}, truth, []

    def add(self, low: float, high: float) -> None:
        """An interval."""
        self.ends.append((low, high))

    def row(self) -> Row:
        """A line of the table: the interval may lie above the truth or below it."""
        low, high = numpy.array(self.ends).T
        above, below = low > self.truth + 1e-12, high < self.truth - 1e-12
        shares = {"share": (~above & ~below).mean(), "above": above.mean(), "below": below.mean()}
        shares |= {"mean width": (high - low).mean(), "truth": self.truth}
        return self.label | {name: round(float(value), 4) for name, value in shares.items()}


def populations() -> Mapping[str, Population]:
    """The ViT as if it were perfect, with a true error of .028, calibrated, and with an error in one bin."""
    vit = "vit-cifar10"
    return {
        "perfect": network(vit, 1.0),
        "true ECE .028": network(vit, 1.146),
        "ViT at its fitted temperature": network(vit, 1.077),
        "too cautious": network(vit, 0.8),
        "one bad bin": one_bad_bin(vit),
        "perfect ResNet": network("resnet20-cifar10", 1.0),
    }


def say(method: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence and prediction."""
    result = method.calibrate(logits)
    return result.confidence.double(), result.prediction


def calibration_study(n: int, repetitions: int) -> list[Row]:
    """The interval of the ECE of every method, and of its difference from MSP; fitted once, on 2,000 samples."""
    rows = []
    for case, population in populations().items():
        numbers = random_numbers(0, "coverage", case, str(n))
        split = population.draw(2000, numbers)
        methods = {method.name: method() for method in CALIBRATORS}
        for method in list(methods.values())[1:-1]:
            method.fit(split[0].float(), split[1])
        truth = {name: population.true_error(*say(method, population.logits)) for name, method in methods.items()}
        errors = {name: Count(case, f"ECE, {name}", value) for name, value in truth.items()}
        versus = {name: Count(case, f"ECE vs MSP, {name}", truth[name] - truth["MSP"]) for name in truth}
        del versus["MSP"]
        for _ in range(repetitions):
            judged = _judged(methods, *population.draw(n, numbers))
            for name, one in judged.items():
                row, _ = calibration_rows(one, BINS, REPLICATES, numbers)
                errors[name].add(row["ece_low"], row["ece_high"])
                if name in versus:
                    versus[name].add(*error_difference(one, judged["MSP"], BINS, REPLICATES, numbers)[1:])
        rows += [count.row() for count in (*errors.values(), *versus.values())]
    return rows


def _judged(methods: Mapping[str, Any], logits: Tensor, target: Tensor) -> dict[str, CalibratedSamples]:
    counts = {}
    for name, method in methods.items():
        confidence, prediction = say(method, logits)
        counts[name] = CalibratedSamples(confidence, prediction == target, torch.zeros_like(confidence))
    return counts


def separation_study(n: int, repetitions: int) -> list[Row]:
    """AUROC, FPR95 and AUPR of two normals; at 30,000 against 300 others."""
    cases: dict[str, Normals] = {f"AUROC {x}": normals(x) for x in (0.7, 0.9, 0.97, 0.99, 0.998, 0.9998)}
    cases |= {f"AUROC {x}, wide": normals(x, 2.0) for x in (0.9, 0.99, 0.9998)}
    strange = 300 if n == 30_000 else n
    rows = []
    for case, scores in cases.items():
        numbers = random_numbers(0, "coverage", case, str(n))
        counts = {name: Count(case, name, value) for name, value in scores.truth(strange / n).items()}
        for _ in range(repetitions):
            pair = tuple(map(rank_scores, scores.draw(n, strange, numbers)))
            intervals = separation_intervals(separate(*pair), *pair, REPLICATES, numbers)
            for name, count in counts.items():
                count.add(*intervals[name])
        rows += [count.row() for count in counts.values()]
    return rows


def nearly_equal_study(n: int, repetitions: int) -> list[Row]:
    """The paired differences of two models whose scores or logits differ in 1 % of the rows, drawn without a reason."""
    random, numbers = torch.Generator().manual_seed(n), random_numbers(0, "nearly equal", str(n))
    population, scores = network("vit-cifar10", 1.0), normals(0.855)
    logits, anew = population.logits, torch.rand(len(population.logits), 1, generator=random) < 0.01
    others = torch.where(anew, logits[torch.randperm(len(logits), generator=random)], logits)
    confidences = [x.softmax(-1).max(-1) for x in (others, logits)]
    errors = [population.true_error(*x) for x in confidences]
    truth = {"AUROC": 0.01 * (0.5 - 0.855), "ECE": errors[0] - errors[1]}  # a new score is that of an OOD sample
    counts = [Count("1 % of the rows differ", f"{what} of two models", value) for what, value in truth.items()]
    for _ in range(repetitions):
        sets = torch.stack(scores.draw(n, n, numbers))
        changed = torch.where(torch.rand(2, n, generator=random) < 0.01, torch.randn(2, n, generator=random), sets)
        counts[0].add(*area_difference(*(separate(*map(rank_scores, x)) for x in (changed, sets)))[1:])
        rows = torch.from_numpy(numbers.integers(len(logits), size=n))
        target = (population.chances[rows].cumsum(1) < torch.rand(n, 1, generator=random)).sum(1).clamp_max(9)
        judged = [CalibratedSamples(top[rows], place[rows] == target, target[:0]) for top, place in confidences]
        counts[1].add(*model_error_difference(*judged, BINS, REPLICATES, numbers)[1:])
    return [count.row() for count in counts]


def calibration_sentences(n: int, repetitions: int) -> list[Row]:
    """What is said of a perfect network, whose q̄ is much worse, and of one that is not."""
    phrases = (
        "No calibrator is shown to improve it",
        "corrects it",
        "q̄ used as a confidence is worse",
        "about as well",
    )
    rows = []
    for case in ("perfect", "true ECE .028"):
        population, numbers = populations()[case], random_numbers(0, "sentences", case, str(n))
        texts = [_verdict(population.draw(n, numbers), population.draw(n, numbers)) for _ in range(repetitions)]
        rows += [_share(case, phrase, texts) for phrase in phrases]
    return rows


def _verdict(test: tuple[Tensor, Tensor], split: tuple[Tensor, Tensor]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = evaluate(test, calibration=split, methods=["temperature"], replicates=REPLICATES)
    return " ".join(report.verdict)


def _share(case: str, phrase: str, texts: list[str]) -> Row:
    return {"case": case, "what": f"says “{phrase}”", "share": round(sum(phrase in x for x in texts) / len(texts), 4)}


def null_sentences(n: int, repetitions: int) -> list[Row]:
    """What is said of ten OOD sets that are drawn as the test set is: nothing of it is true."""
    numbers = random_numbers(0, "null", str(n))
    results = evaluate(made_logits(50, numbers, evenness=1.0), replicates=2).results
    texts = []
    for _ in range(repetitions):
        tables = {**results.tables, **null_tables(n, numbers, results.gaps)}
        texts.append(" ".join(make_narrative(Results({**results.settings, **conclude(tables)}, tables)).verdict))
    phrases = ("adds to confidence", "ranks worse than confidence", "ranks backwards here", "does not rank backwards")
    return [_share("ten null sets", phrase, texts) for phrase in phrases]


def null_tables(n: int, numbers: Any, gaps: Any, sets: int = 10, replicates: int = REPLICATES) -> dict[str, Any]:
    """The tables `ood` and `gaps` of sets that do not differ from the test set; other columns are those of `gaps`."""
    coins = [bag_of_coins(made_logits(n, numbers, evenness=1.0)) for _ in range(sets + 1)]
    ranked = []
    for x in coins:
        values = {"msp": -x.odds, "gap": -x.gap, "structural_score": x.odds, "dominance": -x.loss}
        ranked.append({name: rank_scores(value) for name, value in values.items()})
    rows, added = [], [gaps.iloc[:1].assign(kind="id")]
    for i, other in enumerate(ranked[1:]):
        separations = {name: separate(ranked[0][name], other[name]) for name in other}
        added.append(gaps.iloc[:1].assign(set=f"set {i}", kind="ood"))
        for name, result in separations.items():
            ends = separation_intervals(result, ranked[0][name], other[name], replicates, numbers, cells=128)["auroc"]
            row = dict(zip(("auroc", "auroc_low", "auroc_high"), (result.auroc, *ends), strict=True))
            versus = paired_difference(result, separations["msp"])
            row |= dict(zip(("versus_msp", "versus_msp_low", "versus_msp_high"), versus, strict=True))
            row |= {"fpr95": result.fpr95, "kind": "score", "upside_down": name == "structural_score"}
            rows.append({"ood": f"set {i}", "score": name, **row})
    return {"ood": frame("ood", rows), "gaps": pd.concat(added)}


def beyond_study(n: int, repetitions: int) -> list[Row]:
    """What ρ is found to add to a model of confidence, where it tells nothing and where it tells little."""
    rows = []
    for case, evenness in (("ρ tells nothing", 1.0), ("ρ tells a little", 1.15)):
        numbers, outcomes = random_numbers(0, "beyond", case, str(n)), []
        for _ in range(repetitions):
            sets = made_logits(n, numbers, evenness=1.0), made_logits(n, numbers, evenness=evenness, doubt=-0.4)
            outcomes.append(gain(*map(columns_of, sets), ["p̂"], ["ρ"])[1:])
        gained, low, high = numpy.array(outcomes).T
        shares = {"interval above 0": low > 0, "interval below 0": high < 0, "mean": gained}
        rows += [
            {"case": case, "what": f"gained by ρ: {x}", "share": round(float(y.mean()), 4)} for x, y in shares.items()
        ]
    return rows


STUDIES = {
    "separation": Study(separation_study, (*SIZES, 30_000)),
    "calibration": Study(calibration_study),
    "nearly equal models": Study(nearly_equal_study, (100, *SIZES)),
    "sentences of calibration": Study(calibration_sentences, share=0.2),
    "sentences of ten sets": Study(null_sentences, share=0.4),
    "beyond confidence": Study(beyond_study, share=0.2),
    "acceptance": Study(acceptance_study, (300, 500, 1600, 3000), share=8.0),
    "shared delta": Study(shared_delta_study, (300, 500)),
    "few errors": Study(few_errors_study, (100, 500), share=0.6),
    "fitted on the same": Study(fitted_study, (1000,), share=0.4),
    "bursts": Study(bursts_study, (3000,)),
    "sets": Study(sets_study, (1000,)),
    "classes": Study(classes_study, (3000,)),
    "audit": Study(audit_study, (20_000,), share=14.0),
}
