"""A report as GitHub-flavoured Markdown."""

from collections.abc import Mapping
from typing import Any

from .parts import Table
from .rendering import content, template
from .results import Results


def markdown(results: Results, images: Mapping[str, str] | None = None) -> str:
    """The report in Markdown; `images` are links to the figures by name, which are left out without it."""
    return template("report.md.jinja").render(content(results, images or {}))


def table_text(table: Table) -> str:
    """A caption and a pipe table: names to the left, numbers to the right."""
    macros: Any = template("parts.md.jinja").module
    return str(macros.table(table)).rstrip("\n")
