"""A report as a page in one file, which loads nothing and runs no script, as Markdown, and in short for notebooks.

All texts that are put into a template are escaped, for HTML or for Markdown.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from ..plots import image
from ..plots import notebook as in_notebook
from .axes import PANEL
from .parts import Table
from .tables import Results
from .topics import (  # fmt: skip
    TITLE,
    Introductions,
    all_figures,
    captions,
    glossary,
    headline,
    main_tables,
    measured_how,
    sections,
    verdict,
)

TEMPLATES = Path(__file__).with_name("templates")
# What could end a script, or a string in it: JSON may have each of these characters as an escape.
UNSAFE = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
# The figure of a notebook: the first of these that has something to show.
NOTEBOOK_FIGURES = ("roc", "reliability", "coherence")


class Picture(NamedTuple):
    """An image in PNG, and whether it needs the whole width of the page."""

    content: bytes
    wide: bool

    @property
    def source(self) -> str:
        """The image as a data URL."""
        return f"data:image/png;base64,{b64encode(self.content).decode()}"


def picture(figure: Any) -> Picture:
    """A figure of matplotlib, drawn."""
    return Picture(image(figure, "png"), bool(figure.get_size_inches()[0] > PANEL[0]))


def html_text(text: str) -> Markup:
    """Text for a page: it is escaped, and no line breaks between a number and its percent sign.

    >>> print(html_text("<b> 95 %"))
    &lt;b&gt; 95&nbsp;%
    """
    return Markup(escape(text).replace(" %", Markup("&nbsp;%")))


def json_text(content: Any) -> Markup:
    r"""Content as JSON for a script element of a page: no text in it can end the element.

    >>> print(json_text(["</script><b>"]))
    ["\u003c/script\u003e\u003cb\u003e"]
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, code in UNSAFE.items():
        text = text.replace(character, code)
    return Markup(text.encode("utf-8", "replace").decode())


def markdown_text(text: str) -> Markup:
    r"""Text in one line, with escapes for all characters that have a meaning in Markdown or HTML.

    >>> print(markdown_text("a|b <i>*x*"))
    a\|b &lt;i>\*x\*
    """
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return Markup(re.sub(r"([\\|*`\[\]_~$])", r"\\\1", text))


def environment(folder: Path, **options: Any) -> Environment:
    """The templates of a folder and those of the reports, which escape everything for HTML.

    Args:
        folder: the folder of the templates, which is searched first.
        options: further options of `jinja2.Environment`.
    """
    made = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
    made.filters.update(text=html_text, json=json_text)
    return made


_HTML = environment(TEMPLATES)
# A Markdown template escapes text, but not the output of its own macros.
_MARKDOWN = environment(TEMPLATES, finalize=lambda x: x if isinstance(x, Markup) else markdown_text(str(x)))


def template(name: str) -> Template:
    """The template in the file `name`. It escapes for Markdown if the name ends in `.md.jinja`, otherwise for HTML."""
    return (_MARKDOWN if name.endswith(".md.jinja") else _HTML).get_template(name)


def content(results: Results, images: Mapping[str, Any]) -> dict[str, Any]:
    """The values for the templates of the page and of the Markdown text.

    Args:
        results: the numbers.
        images: for each figure, by name, a `Picture` for the page or a link for the Markdown text.
    """
    reader, head, said = Introductions(), headline(results), verdict(results)
    introduced = reader.of([head, *said])
    return {
        "title": TITLE,
        "subtitle": str(results.settings.get("title", "")),
        "headline": head,
        "sentences": said,
        "symbols": introduced,
        "sections": [
            (section, reader.of(section.words()), [(caption, images[caption.name]) for caption in section.captions])
            for section in sections(results, images)
        ],
        "measured": measured_how(results),
        "glossary": glossary(),
    }


def page(results: Results, images: Mapping[str, Picture], up: str | None = None, explore: str | None = None) -> str:
    """The whole page, with the figures by name, a link to the page of all models, and one to the page to explore."""
    return template("report.html.jinja").render(content(results, images), up=up, explore=explore)


def markdown(results: Results, images: Mapping[str, str] | None = None) -> str:
    """The report in Markdown. `images` are links to the figures by name; without it there are no figures."""
    return template("report.md.jinja").render(content(results, images or {}))


def table_text(table: Table) -> str:
    """A caption and a Markdown table, in which names are aligned to the left and numbers to the right."""
    macros: Any = template("parts.md.jinja").module
    return str(macros.table(table)).rstrip("\n")


def notebook(results: Results) -> str:
    """The verdict, the main tables and the most important figure, for a notebook."""
    said = verdict(results)
    whole = template("notebook.html.jinja").render(
        sentences=said, symbols=Introductions().of(said), tables=main_tables(results)
    )

    def draw() -> tuple[Any, str] | None:
        figures = {figure.name: figure for figure in all_figures()}
        drawn = ((name, figures[name].draw(results)) for name in NOTEBOOK_FIGURES)
        return next(((figure, captions(results, [name])[0].alt) for name, figure in drawn if figure is not None), None)

    return in_notebook(whole, draw)
