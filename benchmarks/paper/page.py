"""The page README.md: what its template says, with the numbers that are computed from the zoo, and its figures."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.axes import finish, panels, write_on
from benchmarks.harness import markdown_table
from benchmarks.paper import curves
from benchmarks.paper.beyond import FACES, Columns, columns_of, difference_at_equal_confidence, gain
from benchmarks.paper.flips import flip_numbers
from benchmarks.paper.tables import AS_IN_THE_PAPER, FOLDER, PUBLISHED, TRIALS, by_method, by_score, experiment_tables
from torch_boc import zoo
from torch_boc.calibration import LeakWarning
from torch_boc.evaluation import Results, evaluate
from torch_boc.functional import auroc, bag_of_coins, dominance_bounds
from torch_boc.kernels import use
from torch_boc.plots import BLUE, ORANGE
from torch_boc.report.format import interval_text, number
from torch_boc.zoo.entry import Entry, is_training

REPLICATES = 300
UNDERCONFIDENCE = PUBLISHED["vit"]["calibration"]["MSP"][0]  # of the paper's ViT: accuracy minus mean confidence
DICE = [f"dice {faces}" for faces in FACES]
# What models see, and what another sees more.
MODELS = ((["p̂"], ["ρ"]), (["p̂"], ["energy"]), (["p̂", "energy"], ["ρ"]), (["p̂", "ρ"], ["energy"]), (["p̂", "ρ"], DICE))


def compute(entry: Entry, replicates: int = REPLICATES) -> tuple[Results, Results]:
    """The results on the whole test set, and results with calibrators that were fitted on samples not trained on.

    If the entry has no such split, these are fitted on the first half of the test set, and judged on the other half.
    """
    options = {**AS_IN_THE_PAPER, "replicates": replicates}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)  # one split leaks on purpose, and the page says so
        results = evaluate(entry.id, entry.ood, calibration=entry.calibration, **options).results
        if not all(map(is_training, entry.calibration)):
            return results, results
        half, rest = entry.held_out()
        return results, evaluate(rest, calibration={half.name: half}, **options).results


def at_temperature(entry: Entry, temperature: float) -> dict[str, Any]:
    """Confidence and gap of both sets, with logits divided by `temperature`."""
    id_coins, ood_coins = (bag_of_coins(x.logits.double() / temperature) for x in (entry.id, *entry.ood.values()))
    values = {"T": temperature, "accuracy": (id_coins.prediction == entry.id.target).double().mean()}
    values |= {"confidence": id_coins.confidence.mean(), "in": id_coins.gap.median(), "out": ood_coins.gap.median()}
    values |= {"msp": auroc(-id_coins.odds, -ood_coins.odds), "gap": auroc(-id_coins.gap, -ood_coins.gap)}
    return {name: float(value) for name, value in values.items()} | {"gaps": (id_coins.gap, ood_coins.gap)}


def temperature_of_the_paper(entry: Entry) -> float:
    """The temperature at which mean confidence is as far below accuracy as that of the paper's ViT."""
    low, high = 1.0, 100.0
    while high / low > 1 + 1e-9:
        middle = (low * high) ** 0.5
        measured = at_temperature(entry, middle)
        low, high = (middle, high) if measured["confidence"] > measured["accuracy"] - UNDERCONFIDENCE else (low, middle)
    return low


def picture(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    """The distribution of Δ, ID and OOD: one row per network, one column per temperature."""
    figure, axes = panels(6, (2.9, 2.3))
    places = [(network, when, row) for network, columns in rows.items() for when, row in columns.items()]
    for (network, when, row), axis in zip(places, axes, strict=True):
        for gap, colour, label, at in zip(row["gaps"], (BLUE, ORANGE), ("CIFAR-10", "SVHN"), (0.05, 0.3), strict=True):
            axis.ecdf(gap.numpy(), color=colour, lw=1.6)
            if axis is axes[0]:
                write_on(axis, at, float((gap < at).double().mean()), label, colour, xytext=(4, -14))
        axis.set_title(f"{PUBLISHED[network]['name']}, T = {row['T']:.2f}:\n{when}")
        axis.set(xlim=(0, 0.6), ylim=(0, 1))
    for axis in axes[3:]:
        axis.set_xlabel("coherence gap Δ")
    for axis in axes[::3]:
        axis.set_ylabel("share of samples below")
    return finish(figure, axes, None)


def model_rows(entries: Mapping[str, tuple[Entry, Columns, Columns]]) -> list[list[str]]:
    """What ρ, energy and dice add to models of confidence, against OOD data and against wrong predictions."""
    rows = []
    for name, (entry, id_columns, ood_columns) in entries.items():
        right = bag_of_coins(entry.id.logits).prediction == entry.id.target
        wrong, correct = ({key: x[chosen] for key, x in id_columns.items()} for chosen in (~right, right))
        pairs = (next(iter(entry.ood)), id_columns, ood_columns), ("wrong predictions", correct, wrong)
        for against, one, other in pairs:
            gains = [gain(one, other, *names)._asdict() for names in MODELS]
            cells = [f"{number(x['gain'], 3, sign=True)} ({interval_text(x, 'gain', 3, sign=True)})" for x in gains]
            apart = number(difference_at_equal_confidence(other, one, "ρ"), 3, sign=True)
            rows.append([f"{name}: {against}", apart, number(gains[0]["auroc"] - gains[0]["gain"], 3), *cells])
    return rows


def make() -> tuple[str, dict[str, Any]]:
    """The page, and its figures by the names of their files.

    By torch's operations, so that the page is the same on a machine without a native library: another rounding of the
    scores moves an end of an interval by up to 2e-4.
    """
    with use("torch"):
        entries = {name: zoo.load(name) for name in zoo.names()}
        reports = {key: compute(entries[paper["entry"]]) for key, paper in PUBLISHED.items()}
    facts: dict[str, Any] = {"paper": PUBLISHED, "ood": {key: by_score(x[0]) for key, x in reports.items()}}
    facts["trained"] = {key: by_method(x[0], training=True) for key, x in reports.items()}
    facts["held_out"] = {key: by_method(x[1], training=False) for key, x in reports.items()}
    facts["gaps"] = {key: {row["kind"]: row for _, row in x[0].gaps.iterrows()} for key, x in reports.items()}
    facts["T"] = {}
    for key in ("resnet", "vit"):
        entry, fitted = entries[PUBLISHED[key]["entry"]], facts["held_out"][key]["temperature"]["temperature"]
        chosen = {
            "uncalibrated": 1.0,
            "fitted": fitted,
            "as the paper’s ViT": temperature_of_the_paper(entry),
        }
        facts["T"][key] = {when: at_temperature(entry, value) for when, value in chosen.items()}
    lines = [
        [f"{PUBLISHED[key]['name']}, {when}", *(number(row[name], 3) for name in list(row)[:-1])]
        for key, rows in facts["T"].items()
        for when, row in rows.items()
    ]
    titles = ("T", "accuracy", "mean p̂", "median Δ, CIFAR-10", "median Δ, SVHN", "AUROC, p̂", "AUROC, −Δ")
    facts["temperatures"] = markdown_table(["network", *titles], lines)
    sides = {x.name: (x, *(columns_of(data.logits) for data in (x.id, *x.ood.values()))) for x in entries.values()}
    pairs = list(zip(sides["vit-cifar10"][1:], sides["resnet20-cifar10"][1:], strict=True))
    facts["raw"] = [float(a["Δ"].mean() - b["Δ"].mean()) for a, b in pairs]
    facts["equal"] = [abs(difference_at_equal_confidence(a, b, "Δ")) for a, b in pairs]
    confidence = torch.linspace(0.1, 1, 90_001, dtype=torch.float64)
    most = dominance_bounds((1 - confidence) / confidence, 10)[1] - confidence
    facts |= {"largest": float(most.max()), "most_confident": float(confidence[most >= 0.5].max())}
    facts["forced"] = {key: 100 * x["id"]["forced_gap"] / x["id"]["gap"] for key, x in facts["gaps"].items()}
    facts["tables"] = {}
    for key, (results, held_out) in reports.items():
        entry = entries[PUBLISHED[key]["entry"]]
        flips = flip_numbers(entry.id, next(iter(entry.ood.values())), TRIALS)
        facts["tables"][key] = "\n\n".join(experiment_tables(PUBLISHED[key], results, flips, held_out))
    facts["cards"] = {key: entries[paper["entry"]].card for key, paper in PUBLISHED.items()}
    heads = ["", "ρ, OOD − ID at equal p̂", "AUROC, p̂"]
    heads += [f"{' + '.join(base)} gains by {'dice' if more is DICE else more[0]}" for base, more in MODELS]
    rows = model_rows(sides)
    gains = [f"{gain.partition(' ')[0]} on {name}" for name, *_, gain, _, _ in rows if "(+" in gain]
    facts |= {"beyond": markdown_table(heads, rows), "beyond_energy": " and ".join(gains)}
    learnt = curves.read_curves()
    lines = []
    for name, curve in learnt.items():
        keys = [f"val/boc/{x}" for x in ("accuracy", "confidence", "gap", "forced_gap")]
        keys += [f"val/boc/{curves.ood_of(curve)}/{x}" for x in ("gap", "forced_gap", "msp_auroc", "gap_auroc")]
        for _, row in curve.iloc[[0, -1]].iterrows():
            lines.append([f"{name}, epoch {row['epoch']:.0f}", *(number(row[key], 3) for key in keys)])
    heads = ["run", "accuracy", "p̂", "Δ", "forced", "Δ, OOD", "forced, OOD", "AUROC, p̂", "AUROC, −Δ"]
    facts["training"] = markdown_table(heads, lines)
    facts["shift"] = "".join(path.read_text(encoding="utf-8").strip() for path in FOLDER.glob("shift.md"))
    text = (FOLDER / "template.md").read_text(encoding="utf-8").format_map(facts)
    return text, {"picture": picture(facts["T"]), "training": curves.figure(learnt)}
