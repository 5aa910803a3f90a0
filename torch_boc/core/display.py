"""Short HTML for notebooks, from strings alone: sentences, tables and a figure, in the colours of the notebook."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import wraps
from html import escape
from typing import ParamSpec

# A notebook has styles of its own: these hold inside of the output only. Numbers stand right, with room between them.
STYLE = """<style>
.boc-note { font-variant-numeric: tabular-nums lining-nums; line-height: 1.45; max-width: 62rem; }
.boc-note p, .boc-note ul { margin: .4em 0; max-width: 48rem; }
.boc-note h2 { font-size: 1.05em; margin: .2em 0 .4em; }
.boc-note .scroll { overflow-x: auto; margin: .6em 0; }
.boc-note table { border-collapse: collapse; margin: .6em 0; font-size: .95em; border: 0; }
.boc-note caption { text-align: left; padding: 0 0 .3em; color: inherit; caption-side: top; white-space: normal; }
.boc-note caption span { display: inline-block; width: max-content; max-width: min(40rem, 90vw); }
.boc-note th, .boc-note td {
  padding: .25em .9em; text-align: right; vertical-align: baseline; border: 0; background: none; white-space: nowrap;
}
.boc-note th:first-child { text-align: left; padding-left: 0; }
.boc-note thead th, .boc-note thead td { border-bottom: 1px solid currentColor; vertical-align: bottom; }
.boc-note tbody th { font-weight: 600; }
.boc-note small { display: block; font-size: .82em; font-weight: 400; }
.boc-note .best { font-weight: 700; }
.boc-note .mark { margin-left: .5em; font-size: .82em; font-weight: 400; font-style: italic; }
.boc-note figure { margin: .6em 0; }
.boc-note img {
  display: block; box-sizing: border-box; max-width: 100%; height: auto; background: #fff; padding: .4em;
  border-radius: .4em;
}
</style>"""
INCH = 86  # pixels of a page, for an inch of a figure
Arguments = ParamSpec("Arguments")
Cell = str | tuple[str, str]


def note(*parts: str | None) -> str:
    """A piece of HTML for a notebook, from parts that are HTML; empty parts are left out."""
    return f"{STYLE}\n<div class='boc-note'>\n" + "\n".join(part for part in parts if part) + "\n</div>"


def sentence(text: str) -> str:
    """A paragraph.

    >>> sentence("2 < 3")
    '<p>2 &lt; 3</p>'
    """
    return f"<p>{escape(text)}</p>"


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table whose first column has the names of the rows.

    Args:
        caption: stands above the table.
        columns: the titles of the columns.
        rows: a cell is a text, or a text and what stands below it in small type, such as an interval.
    """
    head = "".join(f"<th scope='col'>{escape(title)}</th>" for title in columns)
    lines = [
        f"<tr><th scope='row'>{_cell(row[0])}</th>{''.join(f'<td>{_cell(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    top = f"<caption><span>{escape(caption)}</span></caption>\n<thead><tr>{head}</tr></thead>"
    whole = f"<table>\n{top}\n<tbody>\n{body}\n</tbody>\n</table>"
    # A table that is wider than the screen is scrolled, also by the keyboard.
    return f"<div class='scroll' role='group' tabindex='0' aria-label='{escape(caption)}'>\n{whole}\n</div>"


def picture(content: bytes, alt: str, inches: float) -> str:
    """A PNG image in the page itself, what it shows in words, and its width."""
    source = f"data:image/png;base64,{b64encode(content).decode()}"
    return f"<figure><img src='{source}' alt='{escape(alt)}' width='{INCH * inches:.0f}'></figure>"


def decimals(value: float, digits: int = 4) -> str:
    """A number with a fixed number of decimals; a dash for NaN.

    >>> decimals(0.12345), decimals(-2.0, 1), decimals(float("nan"))
    ('0.1235', '−2.0', '–')
    """
    return "–" if value != value else f"{value:,.{digits}f}".replace("-", "−").replace("inf", "∞")


def _cell(cell: Cell) -> str:
    text, small = (cell, "") if isinstance(cell, str) else cell
    return escape(text) + (f"<small>{escape(small)}</small>" if small else "")


def shown_or_none(make: Callable[Arguments, str | None]) -> Callable[Arguments, str | None]:
    """For `_repr_html_`: None in place of any error, so that a notebook shows the plain repr instead.

    A display must never end a session: tensors may have no values (fake, meta), and packages may be missing.
    """

    @wraps(make)
    def made(*args: Arguments.args, **kwargs: Arguments.kwargs) -> str | None:
        try:
            return make(*args, **kwargs)
        except Exception:
            return None

    return made
