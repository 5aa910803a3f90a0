"""The templates that all pages share. All texts that are put into a template are escaped."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

TEMPLATES = Path(__file__).with_name("templates")
STYLE = TEMPLATES / "page.css"
# What could end a script, or a string in it: JSON may have each of these characters as an escape.
UNSAFE = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}


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


def environment(folder: Path, **options: Any) -> Environment:
    """The templates of a folder and those that all pages share, which escape everything for HTML.

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
