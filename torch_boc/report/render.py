"""A report as a page in one file, which loads nothing, as Markdown, and in short for notebooks.

All texts that are put into a page or into Markdown are escaped.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..plots import notebook
from .chart import PAGE_STYLE
from .elements import Table
from .glossary import GLOSSARY
from .results import Results
from .story import Narrative

TEMPLATES = Path(__file__).with_name("templates")
SCRIPT = (TEMPLATES / "report.js").read_text(encoding="utf-8")


def html_text(text: str) -> Markup:
    """Text for a page: it is escaped, intervals are small, and no line breaks between a number and its percent sign.

    >>> print(html_text("<b> 95 % (94 to 96 %)"))
    &lt;b&gt; 95&nbsp;% <small>(94 to 96&nbsp;%)</small>
    """
    safe = str(escape(text)).replace(" %", "&nbsp;%").replace(" ≤ ", "&nbsp;≤&nbsp;")
    return Markup(re.sub(r"\([^()]* to [^()]*\)|\(corrected [^()]*\)", r"<small>\g<0></small>", safe))


def markdown_text(text: str) -> Markup:
    r"""Text in one line, with escapes for all characters that have a meaning in Markdown or HTML.

    >>> print(markdown_text("a|b <i>*x*"))
    a\|b &lt;i>\*x\*
    """
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return Markup(re.sub(r"([\\|*`\[\]_~$])", r"\\\1", text))


def environment(folder: Path) -> Environment:
    """The templates of a folder and those of the reports, which escape everything for HTML."""
    made = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(text=html_text, md=markdown_text)
    made.globals.update(page_css=Markup(PAGE_STYLE), report_js=Markup(SCRIPT))
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


PAGES = environment(TEMPLATES)
PAGES.globals["glossary"] = GLOSSARY.items()


def page(results: Results, story: Narrative, parent_link: str | None = None) -> str:
    """The whole page, with a link to the page of all models, if there is one."""
    top = filter(None, [str(results.settings.get("title", "")), story.headline, str(results.settings.get("date", ""))])
    return PAGES.get_template("report.html.jinja").render(
        title=story.finding,
        top=" · ".join(top),
        parent_link=parent_link,
        story=story,
        drawn={name: Markup(drawn) for name, drawn in story.figures.items()},
        review=review_data(results),
    )


def review_data(results: Results) -> dict[str, Any]:
    """What the slider of the page shows: for each share to review, the threshold and what is detected."""
    table = results.review.astype(object).where(results.review.notna(), None)
    data: dict[str, Any] = {
        "detected": {},
        "test_set": results.test_set,
        "review_share": results.settings["review_share"],
    }
    for name, rows in table.groupby("set", sort=False):
        data["detected"][name] = rows["detected"].tolist()
        if name == results.test_set:
            data |= {key: rows[key].tolist() for key in ("share", "threshold", "accuracy")}
    return data


def markdown(story: Narrative, links: Mapping[str, str] | None = None) -> str:
    """The report in Markdown. `links` are those of the figures by name; without them there are no figures."""
    return PAGES.get_template("report.md.jinja").render(story=story, links=links)


def cell_output(title: str, models: Mapping[str, list[str]], tables: list[Table], figures: list[str]) -> str:
    """HTML for a notebook: sentences by the name of the model, tables and figures."""
    content = {"title": title, "models": models, "tables": tables, "drawn": [Markup(drawn) for drawn in figures]}
    return notebook(PAGES.get_template("notebook.html.jinja").render(content))
