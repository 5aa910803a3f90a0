"""A report as GitHub-flavoured Markdown."""

import re
from collections.abc import Iterable, Mapping

from .measured import TITLE, headline, measured_how
from .parts import Caption, Cell, Table
from .results import Results
from .symbols import Introductions
from .topics import glossary, sections, verdict


def markdown(results: Results, images: Mapping[str, str] | None = None) -> str:
    """The report in Markdown; `images` are links to the figures by name, which are left out without it."""
    images = images or {}
    title = str(results.settings.get("title", ""))
    parts = [f"# {TITLE}", *([escape(title)] if title else []), escape(headline(results)), "## What this says"]
    parts.append("\n".join(f"- {escape(sentence)}" for sentence in verdict(results)))
    reader = Introductions()
    parts += _introduced(reader.of([headline(results), *verdict(results)]))
    for section in sections(results, images):
        parts += [f"## {escape(section.title)}", escape(section.text)]
        parts += _introduced(reader.of(section.words()))
        parts += [table_text(table) for table in section.tables]
        parts += [image(caption, images[caption.name]) for caption in section.captions]
    parts += ["## How it was measured", "\n".join(f"- {escape(k)}: {escape(v)}" for k, v in measured_how(results))]
    parts += ["## Symbols", "\n".join(f"- **{escape(name)}**: {escape(text)}" for name, text in glossary())]
    return "\n\n".join(parts) + "\n"


def _introduced(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """A list of the symbols that are new to the reader, if there are any."""
    text = "\n".join(f"- **{escape(name)}**: {escape(text)}" for name, text in pairs)
    return [f"Symbols that are new here:\n\n{text}"] if text else []


def table_text(table: Table) -> str:
    """A caption and a pipe table: names to the left, numbers to the right."""
    rules = [":--", *["--:"] * (len(table.columns) - 1)]
    lines = [map(escape, table.columns), rules, *(map(cell_text, row) for row in table.rows)]
    return "\n".join([f"*{escape(table.caption)}*", "", *map(_line, lines)])


def cell_text(cell: Cell) -> str:
    """A cell in one line: the best value bold, its interval in brackets."""
    text = f"**{escape(cell.text)}**" if cell.best else escape(cell.text)
    small = f" ({escape(cell.small)})" if cell.small else ""
    return f"{text}{small}" + (f" *{escape(cell.mark)}*" if cell.mark else "")


def image(caption: Caption, link: str) -> str:
    """A figure with its description as alternative text."""
    return f"![{escape(caption.alt)}]({link})"


def escape(text: str) -> str:
    r"""Text without any meaning as Markdown or HTML, in one line.

    >>> print(escape("a|b <i>*x*"))
    a\|b &lt;i>\*x\*
    """
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|*`\[\]_~$])", r"\\\1", text)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
