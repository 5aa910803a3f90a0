"""The templates of the pages. All texts that are put into them are escaped, for HTML or for Markdown."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from ..pages import environment
from .measured import TITLE, headline, measured_how
from .results import Results
from .symbols import Introductions
from .topics import glossary, sections, verdict

TEMPLATES = Path(__file__).with_name("templates")


def markdown_text(text: str) -> Markup:
    r"""Text in one line, with escapes for all characters that have a meaning in Markdown or HTML.

    >>> print(markdown_text("a|b <i>*x*"))
    a\|b &lt;i>\*x\*
    """
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return Markup(re.sub(r"([\\|*`\[\]_~$])", r"\\\1", text))


def _in_markdown(value: Any) -> Markup:
    """What a Markdown template prints: text is escaped, the output of its own macros is not."""
    return value if isinstance(value, Markup) else markdown_text(str(value))


_HTML, _MARKDOWN = environment(TEMPLATES), environment(TEMPLATES, finalize=_in_markdown)


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


def template(name: str) -> Template:
    """The template in the file `name`. It escapes for Markdown if the name ends in `.md.jinja`, otherwise for HTML."""
    return (_MARKDOWN if name.endswith(".md.jinja") else _HTML).get_template(name)
