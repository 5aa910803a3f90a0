"""Formulas between dollar signs become MathML when the site is built: browsers show it without any script."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(text: str, **_: Any) -> str:
    """The page with its formulas in MathML."""
    return FORMULA.sub(mathml, text)


def mathml(match: re.Match[str]) -> str:
    """One formula; those on lines of their own can be scrolled where the page is narrow."""
    display = "block" if match[2] == "[" else "inline"
    formula = convert(html.unescape(match[3]).strip(), display=display)
    return f'<div class="formula" tabindex="0">{formula}</div>' if display == "block" else formula
