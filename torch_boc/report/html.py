"""A report as HTML: a page in one file, which loads nothing and runs no script, and a short form for notebooks."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import plots
from .rendering import content, template
from .results import Results
from .symbols import Introductions
from .topics import all_figures, captions, main_tables, verdict

# The figure of a notebook: the first of these that has something to show.
NOTEBOOK_FIGURES = ("roc", "reliability", "coherence")


class Picture(NamedTuple):
    """An image, its media type, and whether it needs the whole width of the page."""

    content: bytes
    media: str
    wide: bool

    @property
    def source(self) -> str:
        """The image as a data URL."""
        return f"data:{self.media};base64,{b64encode(self.content).decode()}"


def page(results: Results, images: Mapping[str, Picture], up: str | None = None, explore: str | None = None) -> str:
    """The whole page.

    Args:
        results: the numbers.
        images: the figures by name.
        up: a link to the page of all models, if there is one.
        explore: a link to the page to explore, if there is one.
    """
    return template("report.html.jinja").render(content(results, images), up=up, explore=explore)


def notebook(results: Results) -> str:
    """The verdict, the main tables and a figure, for a notebook."""
    said = verdict(results)
    whole = template("notebook.html.jinja").render(
        sentences=said, symbols=Introductions().of(said), tables=main_tables(results)
    )
    return plots.notebook(whole, lambda: _notebook_figure(results))


def _notebook_figure(results: Results) -> tuple[Any, str] | None:
    """The most important figure, and what it shows in words; None if there is nothing to show."""
    figures = {figure.name: figure for figure in all_figures()}
    for name in NOTEBOOK_FIGURES:
        drawn = figures[name].draw(results)
        if drawn is not None:
            return drawn, captions(results, [name])[0].alt
    return None
