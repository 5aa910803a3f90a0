"""`python -m benchmarks.paper` writes the page and its figures; with vit, resnet or roberta it runs an experiment."""

import sys

from benchmarks.paper import figures
from benchmarks.paper.curves import read_curves
from benchmarks.paper.experiments import FOLDER, available, compute, published
from benchmarks.paper.page import page
from benchmarks.paper.run import main as run
from torch_boc.plots import image
from torch_boc.report.report import write


def main() -> None:
    """Compute what the zoo has, say what it has not."""
    papers = published()
    entries = available(papers)
    found = {}
    for name, entry in entries.items():
        print(f"computing {name}", flush=True)
        found[name] = compute(entry)
    experiments = [(paper, found.get(paper.entry)) for paper in papers]
    curves = read_curves(names=[paper.entry for paper in papers])
    drawn = {"comparison": figures.comparison(experiments)}
    drawn |= {"beyond": figures.beyond(list(found.values()))} if found else {}
    drawn |= {"training": figures.training(curves)} if curves else {}
    for name, figure in drawn.items():
        write(FOLDER / f"{name}.png", image(figure, "png"))
    path = write(FOLDER / "README.md", page(experiments, curves).encode())
    missing = [paper.name for paper in papers if paper.entry not in found]
    print(f"wrote {path}" + (f"; not run: {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    run(sys.argv[1:]) if sys.argv[1:] else main()
