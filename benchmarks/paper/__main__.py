"""`python -m benchmarks.paper` writes the page and its figures; with vit, resnet or roberta it runs an experiment."""

import sys

from benchmarks.harness import write_page
from benchmarks.paper.page import make
from benchmarks.paper.run import main as run
from benchmarks.paper.tables import FOLDER
from torch_boc.data.atomic import write
from torch_boc.plots import image

if sys.argv[1:]:
    run(sys.argv[1:])
else:
    page, figures = make()
    write_page(FOLDER / "README.md", page)
    for name, figure in figures.items():
        print(f"wrote {write(FOLDER / f'{name}.png', image(figure, 'png')).name}")
