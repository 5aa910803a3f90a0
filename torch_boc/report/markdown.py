"""A report as GitHub-flavoured Markdown."""

from collections.abc import Mapping
from typing import Any

from .parts import Table
from .rendering import content, template
from .results import Results


def markdown(results: Results, images: Mapping[str, str] | None = None) -> str:
    """The report in Markdown. `images` are links to the figures by name; without it there are no figures."""
    return template("report.md.jinja").render(content(results, images or {}))


def table_text(table: Table) -> str:
    """A caption and a Markdown table, in which names are aligned to the left and numbers to the right."""
    macros: Any = template("parts.md.jinja").module
    return str(macros.table(table)).rstrip("\n")
