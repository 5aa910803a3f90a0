"""Training curves: `python -m benchmarks.paper.curves RUN/metrics.csv NAME` writes results/training/NAME.csv.

Of the metrics that Lightning's CSVLogger wrote, the rows at the end of an epoch and their validation columns are kept.
A run that was interrupted has several files: give all of them, oldest first; of an epoch the last row counts.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.axes import figure_text, finish, panels, write_on
from benchmarks.harness import RESULTS
from torch_boc.plots import BLUE, ORANGE

TRAINING = RESULTS / "training"
GAP = "val/boc/gap"


def convert(sources: Sequence[Path], path: Path) -> None:
    """Write the epochs of a run to `path`."""
    table = pd.concat([pd.read_csv(source) for source in sources])
    if GAP not in table:
        raise ValueError(f"expected a column {GAP}, got none in {', '.join(map(str, sources))}; was BoCCallback there?")
    table = table[table[GAP].notna()].groupby("epoch").last()
    path.parent.mkdir(parents=True, exist_ok=True)
    table.filter(regex="^val/").dropna(axis=1, how="all").round(6).to_csv(path)


def read_curves(folder: Path = TRAINING) -> dict[str, pd.DataFrame]:
    """The committed curves by name, epochs counted from 1."""
    return {
        path.stem: pd.read_csv(path).assign(epoch=lambda x: x["epoch"] + 1) for path in sorted(folder.glob("*.csv"))
    }


def ood_of(curve: pd.DataFrame) -> str:
    """The name of the OOD set whose gap was logged."""
    return next(name.split("/")[2] for name in curve if name.count("/") == 3 and name.endswith("/gap"))


def figure(curves: Mapping[str, pd.DataFrame]) -> Any:
    """The mean gap of both sets in each epoch, a panel for each model, with the part that confidence forces."""
    drawn, axes = panels(len(curves), (3.3, 3.0))
    for (name, curve), axis in zip(curves.items(), axes, strict=True):
        ood = ood_of(curve)
        for side, colour, label in (("", BLUE, "ID"), (f"{ood}/", ORANGE, "OOD")):
            x, gap, forced = (curve[key] for key in ("epoch", f"val/boc/{side}gap", f"val/boc/{side}forced_gap"))
            axis.plot(x, gap, "o-", color=colour, markersize=3.5, linewidth=1.4)
            axis.plot(x, forced, ":", color=colour, linewidth=1.4)
            axis.fill_between(x, forced, gap, color=colour, alpha=0.3, linewidth=0)
            if axis is axes[0]:
                write_on(axis, 1, gap.iloc[0], f"{label}; dotted: forced by confidence", colour, xytext=(4, 7))
        axis.set_title(f"{figure_text(name)}\nOOD: {figure_text(ood)}")
        axis.set(xlabel="epoch", ylabel="mean coherence gap Δ", ylim=(0, 1.2 * axis.dataLim.y1))
        axis.xaxis.get_major_locator().set_params(integer=True)
    return finish(drawn, axes, None)


if __name__ == "__main__":
    *metrics, run = sys.argv[1:]
    convert([Path(file) for file in metrics], TRAINING / f"{run}.csv")
