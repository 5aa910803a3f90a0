"""A report as one HTML file: no script, no request, light and dark, from a phone to a desk."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from .measured import TITLE, headline, measured_how
from .parts import Caption, Cell, Section, Table
from .results import Results
from .symbols import Introductions
from .topics import glossary, sections, verdict

STYLE = Path(__file__).with_name("page.css")


class Picture(NamedTuple):
    """An image, its media type, and whether it needs the whole width."""

    content: bytes
    media: str
    wide: bool


def page(results: Results, images: Mapping[str, Picture], up: str | None = None) -> str:
    """The whole page; `images` are its figures by name, `up` is where the page of all models is, if there is one."""
    reader = Introductions()
    said = reader.of([headline(results), *verdict(results)])
    parts = [
        *([f"<nav><a href='{escape(up)}'>All models side by side</a></nav>"] if up else []),
        f"<header><h1>{TITLE}</h1>{_subtitle(results)}<p class='headline'>{escape(headline(results))}</p></header>",
        verdict_html(results, symbols_html(said)),
        *(
            section_html(section, images, symbols_html(reader.of(section.words())))
            for section in sections(results, images)
        ),
        list_html("How it was measured", measured_how(results)),
        list_html("Symbols", glossary()),
    ]
    return document(TITLE, parts)


def document(title: str, parts: Iterable[str]) -> str:
    """A complete HTML file of parts that are HTML already."""
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def _subtitle(results: Results) -> str:
    title = str(results.settings.get("title", ""))
    return f"<p>{escape(title)}</p>" if title else ""


def verdict_html(results: Results, legend: str | None = None) -> str:
    """The sentences of the verdict under a heading, and what their symbols mean."""
    legend = symbols_html(Introductions().of(verdict(results))) if legend is None else legend
    sentences = sentences_html(verdict(results))
    return f"<section class='verdict'>\n<h2>What this says</h2>\n{sentences}\n{legend}</section>"


def symbols_html(pairs: Iterable[tuple[str, str]]) -> str:
    """Symbols that are new to the reader, in small type."""
    items = " ".join(f"<dfn>{escape(name)}</dfn>&nbsp;{_text(text)}" for name, text in pairs)
    return f"<p class='symbols'>{items}</p>\n" if items else ""


def sentences_html(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    items = "\n".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f"<ul>\n{items}\n</ul>"


def section_html(section: Section, images: Mapping[str, Picture], legend: str = "") -> str:
    """A heading, its text, what its new symbols mean, tables, and the figures that there are."""
    parts = [f"<h2>{escape(section.title)}</h2>", f"<p>{_text(section.text)}</p>", *([legend] if legend else [])]
    parts += map(table_html, section.tables)
    if section.captions:
        alone = sum(not images[caption.name].wide for caption in section.captions) == 1
        drawn = [figure_html(caption, images[caption.name], alone=alone) for caption in section.captions]
        parts.append("<div class='figures'>\n" + "\n".join(drawn) + "\n</div>")
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def table_html(table: Table) -> str:
    """A table in a container of its own, which scrolls where the table is wider than the screen."""
    head = "".join(f"<th scope='col'>{escape(title)}</th>" for title in table.columns)
    rows = "\n".join(f"<tr>{_row(row)}</tr>" for row in table.rows)
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{escape(table.caption)}'>\n<table>\n"
        f"<caption><span>{_text(table.caption)}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n"
        "</table>\n</div>"
    )


def figure_html(caption: Caption, image: Picture, *, alone: bool = False) -> str:
    """A figure with its numbers as alternative text, on a white card in either scheme."""
    kind = " class='wide'" if image.wide else " class='single'" if alone else ""
    source = f"data:{image.media};base64,{b64encode(image.content).decode()}"
    return (
        f"<figure{kind}><div class='card'><img src='{source}' alt='{escape(caption.alt)}'></div>"
        f"<figcaption>{_text(caption.caption)}</figcaption></figure>"
    )


def _text(text: str) -> str:
    """Escaped, and with numbers kept together with their percent sign."""
    return escape(text).replace(" %", "&nbsp;%")


def _row(cells: list[Cell]) -> str:
    first, *rest = cells
    values = "".join(f"<td{' class=best' if cell.best else ''}>{_cell(cell)}</td>" for cell in rest)
    return f"<th scope='row'>{_cell(first)}</th>{values}"


def _cell(cell: Cell) -> str:
    mark = f"<span class='mark'>{escape(cell.mark)}</span>" if cell.mark else ""
    small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
    return f"{_text(cell.text)}{mark}{small}"


def list_html(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they mean, under a heading."""
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{_text(text)}</dd>" for name, text in pairs)
    return f"<section>\n<h2>{title}</h2>\n<dl>\n{items}\n</dl>\n</section>"
