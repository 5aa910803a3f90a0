"""The page: everything in its order."""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.paper.claims import agreement, claim_table
from benchmarks.paper.curves import GAP, Curve
from benchmarks.paper.experiments import STRATA, Ours, Published
from benchmarks.paper.sentences import answer, beyond_table, course, reasons, training_table, verdict
from benchmarks.paper.tables import (
    band_points,
    band_table,
    calibration_table,
    gap_table,
    inside,
    ood_table,
    setup_table,
    trial_table,
)
from torch_boc.report.document import markdown_text as escape
from torch_boc.report.document import table_text
from torch_boc.report.parts import Table
from torch_boc.report.words import listed, number

Experiments = Sequence[tuple[Published, Ours | None]]
BEYOND = "Does the gap tell anything beyond confidence?"
ANCHOR = "does-the-gap-tell-anything-beyond-confidence"
TITLE = "# The paper’s tables beside ours"
HEAD = (
    "Written by `python -m benchmarks.paper` from the logits in `torch_boc/zoo` and the paper’s numbers in "
    "`published.json`; a test compares every number here with those logits. No number of ours is typed by hand."
)
AGREED = (
    "Of {asked} statements put to the paper’s numbers and to ours alike, {agreed} come out the same: see “what agrees” "
    "under each architecture. Our networks are not the paper’s; “what was run” says how they differ."
)
CALIBRATION = (
    "“Training split” is the paper’s way: calibrators are fitted on samples that the network was trained on. "
    "“Held out” fits them on samples that it has not seen{half}. Isotonic and BoC give a confidence only, and keep the "
    "NLL of MSP."
)
HALVES = "; for lack of such a split that is the first half of the test set, and all of that column is for the other"
BAND = (
    "Confidence and the number of classes leave Δ a narrow band. Of the {points} points that the paper gives of its "
    "curves, {inside} lie in it: where Δ falls with confidence, that is arithmetic, and no property of a network."
)
SURE = (
    "One sentence of the paper contradicts its tables. It calls the {name} {called}; but q̄ is never below p̂, so the "
    "ECE of a network that is overconfident in every bin cannot fall when q̄ replaces p̂. There it falls from {msp} to "
    "{boc}: much of that network is not sure enough."
)
QUESTION = (
    "At a given confidence Δ, its free part and ρ are increasing functions of one another, so this is one question in "
    "three scales. There are two ways to ask it. Within {strata} strata of confidence only samples of about the same "
    "confidence are compared: 0.5 is nothing, and below 0.5 the quantity separates the other way round. And logistic "
    "models, judged on samples that they have not seen: confidence alone, as it is or any function of it, against "
    "confidence with the quantity; “against p̂” is the difference from the better of the first two, and is "
    "biased downwards: the larger model has more to learn from the same samples. Strata are not "
    "infinitely thin, and what confidence still tells within them is the row of p̂: Δ, which follows confidence, shares "
    "it; ρ hardly does."
)
TRAINING = (
    "`BoCCallback` logged these in training, on held-out samples, each epoch. After the first epochs a falling Δ is "
    "rising confidence, not a better network: epochs are chosen by the likelihood (NLL), not by Δ."
)


def page(experiments: Experiments, curves: Mapping[str, Curve]) -> str:
    """The page in Markdown."""
    run = [(paper, ours) for paper, ours in experiments if ours is not None]
    papers = [paper for paper, _ in experiments]
    parts = [TITLE, HEAD, *_summary(experiments)]
    parts.append("![AUROC and ECE of the paper, hollow, and ours, filled](comparison.png)")
    for paper, ours in experiments:
        parts += _experiment(paper, ours)
    parts += ["## The coherence gap", prose(gap_table(experiments)), _band(papers)]
    parts.append(table_text(band_table(papers)))
    parts += _contradiction(papers)
    parts += [f"## {BEYOND}", QUESTION.format(strata=STRATA)]
    parts += [_bullets(_answers(run)), "![At equal confidence, and in a model](beyond.png)"] if run else ["Not run."]
    for _, ours in run:
        parts += [table_text(beyond_table(ours.entry.name, ood, table)) for ood, table in ours.beyond.items()]
    parts += ["## The gap in training", *_training(curves)]
    return "\n\n".join(parts) + "\n"


def _summary(experiments: Experiments) -> list[str]:
    missing = [paper.name for paper, ours in experiments if ours is None]
    agreed, asked = agreement(experiments)
    lines = []
    if asked:
        short = [
            f"{ours.entry.name} {verdict(table)}"
            for _, ours in experiments
            if ours is not None
            for table in ours.beyond.values()
        ]
        lines.append(AGREED.format(asked=asked, agreed=agreed))
        lines.append(f"{BEYOND} {'; '.join(short)} ([numbers](#{ANCHOR})).")
    return [*lines, *([f"Not run yet: {listed(missing)}."] if missing else [])]


def _answers(experiments: Experiments) -> list[str]:
    return [
        answer(ours.entry.name, ood, table)
        for _, ours in experiments
        if ours is not None
        for ood, table in ours.beyond.items()
    ]


def _experiment(paper: Published, ours: Ours | None) -> list[str]:
    parts = [f"## {paper.name}", prose(setup_table(paper, ours)), "### Calibration"]
    parts += [CALIBRATION.format(half=HALVES if ours is not None and ours.halved else "")]
    parts += [table_text(calibration_table(paper, ours))]
    parts += ["### Out-of-distribution detection", table_text(ood_table(paper, ours))]
    parts += ["### Number of flips", prose(trial_table(paper, ours))]
    parts += ["### What agrees, and why", prose(claim_table(paper, ours))]
    return [*parts, _bullets(map(escape, reasons(ours)))] if ours is not None else parts


def prose(table: Table) -> str:
    """A table of words, to the left."""
    return table_text(table).replace(" --: ", " :-- ")


def _band(papers: Sequence[Published]) -> str:
    points = band_points(papers)
    return BAND.format(points=len(points), inside=sum(inside(*point[2:]) for point in points))


def _contradiction(experiments: Iterable[Published]) -> list[str]:
    found = []
    for paper in experiments:
        msp, boc = (paper.numbers.calibration[method]["ece"] for method in ("MSP", "BoC"))
        called = paper.content.get("called")
        if called == "overconfident" and boc < msp:
            found.append(SURE.format(name=paper.name, called=called, msp=number(msp), boc=number(boc)))
    return found


def _training(curves: Mapping[str, Curve]) -> list[str]:
    shown = {name: curve for name, curve in curves.items() if curve and GAP in curve[-1]}
    if not shown:
        return ["No run has been recorded yet."]
    parts = [TRAINING, "![The gap by epoch, with the part that confidence forces](training.png)"]
    return [*parts, table_text(training_table(shown)), _bullets(course(name, curve) for name, curve in shown.items())]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
