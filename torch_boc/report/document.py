"""A report as a page in one file, which loads nothing, as Markdown, and in short for notebooks.

All texts that are put into a page or into Markdown are escaped.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..plots import NOTEBOOK_STYLE
from .parts import Table
from .screening import knee
from .tables import Results
from .topics import Story
from .words import GLOSSARY

TEMPLATES = Path(__file__).with_name("templates")
# So many rows of a long table are in the Markdown text.
MARKDOWN_ROWS = 10


def html_text(text: str) -> Markup:
    """Text for a page: it is escaped, intervals are small, and no line breaks between a number and its percent sign.

    >>> print(html_text("<b> 95 % (94 to 96 %)"))
    &lt;b&gt; 95&nbsp;% <small>(94 to 96&nbsp;%)</small>
    """
    safe = str(escape(text)).replace(" %", "&nbsp;%")
    return Markup(re.sub(r"\([^()]* to [^()]*\)|\(corrected [^()]*\)", r"<small>\g<0></small>", safe))


def markdown_text(text: str) -> str:
    r"""Text in one line, with escapes for all characters that have a meaning in Markdown or HTML.

    >>> print(markdown_text("a|b <i>*x*"))
    a\|b &lt;i>\*x\*
    """
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|*`\[\]_~$])", r"\\\1", text)


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
    made.filters["text"] = html_text
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


PAGES = environment(TEMPLATES)
PAGES.globals["glossary"] = GLOSSARY.items()


def page(results: Results, story: Story, up: str | None = None) -> str:
    """The whole page, with a link to the page of all models, if there is one."""
    top = filter(None, [str(results.settings.get("title", "")), story.headline, results.settings.get("date")])
    return PAGES.get_template("report.html.jinja").render(
        title=story.finding,
        top=" · ".join(top),
        up=up,
        story=story,
        drawn={name: Markup(drawn) for name, drawn in story.figures.items()},
        review=review_data(results),
    )


def review_data(results: Results) -> dict[str, Any]:
    """What the slider of the page shows: for each share that a person sees, the threshold and what is caught."""
    table = results.review.astype(object).where(results.review.notna(), None)
    found: dict[str, Any] = {"caught": {}}
    for name, rows in table.groupby("set", sort=False):
        found["caught"][name] = rows["caught"].tolist()
        if name == results.known:
            found |= {"known": name} | {key: rows[key].tolist() for key in ("share", "threshold", "right")}
    best = knee(results)
    return found | ({"knee": best} if best == best else {})


def markdown(story: Story, links: Mapping[str, str] | None = None) -> str:
    """The report in Markdown. `links` are those of the figures by name; without them there are no figures."""
    tiles, steps = [], []
    folded: dict[str, Any] = {}
    for value, what, small in story.numbers:
        tiles.append(f"**{markdown_text(value)}** {markdown_text(f'{what} ({small})')}")
    for text, command in story.actions:
        steps.append(markdown_text(text) + (f" `{command}`" if command else ""))
    lines = [f"# {markdown_text(story.finding)}", markdown_text(story.headline), bullets(tiles)]
    lines += ["## Do this", bullets(steps), *(f"> {markdown_text(warning)}" for warning in story.warnings)]
    for section in story.sections:
        lines += [f"## {markdown_text(section.title)}", bullets(map(markdown_text, section.sentences))]
        for name, (_, alt) in section.charts.items():
            lines += [f"![{markdown_text(alt)}]({links[name]})"] if links else []
        lines += map(table_text, section.tables)
        folded |= section.more
    for title, tables in folded.items():
        lines += [f"## {markdown_text(title)}", *map(table_text, tables)]
    for title, pairs in (("How it was measured", story.measured.items()), ("Words", GLOSSARY.items())):
        lines += [f"## {title}", bullets(f"**{markdown_text(name)}**: {markdown_text(text)}" for name, text in pairs)]
    return "\n\n".join(filter(None, lines)) + "\n"


def bullets(texts: Any) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {text}" for text in texts)


def table_text(table: Table) -> str:
    """A caption and a Markdown table, in which names are aligned to the left and numbers to the right."""
    rows = [table.columns, [":--", *["--:"] * (len(table.columns) - 1)]]
    rows[0] = [markdown_text(title) for title in table.columns]
    for row in table.rows[: MARKDOWN_ROWS if table.kind == "sortable" else None]:
        texts = []
        for cell in row:
            text = markdown_text(cell.text)
            text = f"**{text}**" if cell.best else text
            text += f" ({markdown_text(cell.small)})" if cell.small else ""
            texts.append(f"{text} *{markdown_text(cell.mark)}*" if cell.mark else text)
        rows.append(texts)
    return f"*{markdown_text(table.caption)}*\n\n" + "\n".join(f"| {' | '.join(texts)} |" for texts in rows)


def notebook(title: str, models: Mapping[str, list[str]], tables: list[Table], figures: list[str]) -> str:
    """Sentences by the name of the model, tables and figures, for a notebook."""
    body = {"title": title, "models": models, "tables": tables, "drawn": [Markup(drawn) for drawn in figures]}
    return f"{NOTEBOOK_STYLE}\n{PAGES.get_template('notebook.html.jinja').render(body)}"
