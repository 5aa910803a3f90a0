"""The texts of the benchmark: news and encyclopedia from a folder of data, the others from the machine itself."""

import gzip
import random
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

MANUALS = Path("/usr/share/man")
LICENCES = Path("/usr/share/common-licenses")
LANGUAGE = "de"
# Some pages in the folder of a language are in English after all. Of the words of the others, this share is common.
COMMON = {
    "der",
    "die",
    "das",
    "und",
    "ist",
    "nicht",
    "wird",
    "ein",
    "eine",
    "mit",
    "von",
    "für",
    "zu",
    "den",
    "dem",
    "im",
}
LEAST_COMMON = 0.15
MOST_WORDS = 75
SEED = 0
# Letters that manual pages spell in escapes.
LETTERS = {r"\(:u": "ü", r"\(:a": "ä", r"\(:o": "ö", r"\(:U": "Ü", r"\(:A": "Ä", r"\(:O": "Ö", r"\(ss": "ß"}
LETTERS |= {r"\*(Aq": "'", r"\-": "-", r"\ ": " "}
# Requests, strings, fonts and the like, which a reader of a manual page does not see.
ESCAPES = re.compile(r"\\f(\[[^]]*\]|\(..|.)|\\s[-+]?\d|\\m?\[[^]]*\]|\\\*?\(..|\\[&|^%/,:)]")


class TextSet(NamedTuple):
    """The documents of one set, what they are, whether the data folder has them, and how many tokens are scored."""

    documents: Callable[[Path], Iterable[str]]
    what: str
    needs_data: bool = False
    tokens: int = 5_000


def news(data: Path, name: str) -> list[str]:
    """The texts of a set of the data folder, without an empty title before them."""
    return [text.removeprefix(". ") for text in _loader(data).news(name)[0]]


def short_news(data: Path) -> list[str]:
    """AG News, long texts cut, so that a text and its words in another order are both read whole."""
    texts = news(data, "ag_news_test")
    return [text if len(text.split()) <= MOST_WORDS else " ".join(text.split()[:MOST_WORDS]) for text in texts]


def shuffled(documents: Iterable[str]) -> Iterator[str]:
    """The same words of each document in another order."""
    numbers = random.Random(SEED)
    for text in documents:
        words = text.split()
        numbers.shuffle(words)
        yield " ".join(words)


def documentation(_: Path) -> list[str]:
    """The topics of Python's own help."""
    return [topics[name] for name in sorted(topics)]


def licences(_: Path) -> list[str]:
    """Licences of the machine and of the installed packages, one of each kind."""
    packages = Path(sysconfig.get_paths()["purelib"])
    files = [*sorted(LICENCES.glob("*")), *sorted(packages.rglob("*LICENSE*")), *sorted(packages.rglob("*COPYING*"))]
    return list(_distinct(file.read_text("utf-8", "ignore") for file in files if file.is_file() and _is_text(file)))


def code(_: Path) -> list[str]:
    """From the middle of each module of Python's standard library on."""
    texts = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        lines = file.read_text("utf-8", "ignore").splitlines(keepends=True)
        texts.append("".join(lines[len(lines) * 2 // 5 :]))
    return texts


def manuals(language: str) -> list[str]:
    """The manual pages that exist in English and in `LANGUAGE`, in the given language."""
    both = []
    for file in sorted((MANUALS / LANGUAGE).rglob("*.gz")):
        english = MANUALS / file.relative_to(MANUALS / LANGUAGE)
        if english.exists():
            both.append((manual_text(english), manual_text(file)))
    unique = {foreign: english for english, foreign in both if is_translated(foreign)}
    return [english if language == "en" else foreign for foreign, english in unique.items()]


def is_translated(text: str) -> bool:
    """Whether the beginning of a text is in `LANGUAGE`."""
    words = text.lower().split()[:100]
    return sum(word in COMMON for word in words) > LEAST_COMMON * len(words)


def manual_text(path: Path) -> str:
    """A manual page without its markup, from its second section on."""
    with gzip.open(path, "rt", encoding="utf-8", errors="ignore") as file:
        text = file.read()
    body = re.split(r"^\.\s*(?:SH|Sh)\b.*$", text, maxsplit=3, flags=re.MULTILINE)[-1]
    lines = [line for line in body.splitlines() if not line.startswith((".", "'"))]
    text = "\n".join(lines)
    for escape, letter in LETTERS.items():
        text = text.replace(escape, letter)
    return ESCAPES.sub("", text).strip()


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    """Texts whose beginnings differ, apart from spaces, digits and the case of letters."""
    seen = set()
    for text in texts:
        start = re.sub(r"[^a-z]", "", text.lower())[:150]
        if start not in seen:
            seen.add(start)
            yield text


def _is_text(file: Path) -> bool:
    return file.suffix in ("", ".txt", ".md", ".rst") and file.stat().st_size > 500


def _loader(data: Path) -> Any:
    """The module that reads the data folder."""
    if "benchmark_data" not in sys.modules:
        spec = spec_from_file_location("benchmark_data", data / "load.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["benchmark_data"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["benchmark_data"])
    return import_module("benchmark_data")


SETS: dict[str, TextSet] = {
    "news": TextSet(short_news, "AG News, the first texts of the test set", True, 8_000),
    "news, shuffled": TextSet(
        lambda data: shuffled(short_news(data)), "the same texts with their words in another order", True
    ),
    "encyclopedia": TextSet(lambda data: news(data, "dbpedia"), "DBPedia, the first abstracts", True),
    "Python help": TextSet(documentation, "the topics of Python's own help"),
    "code": TextSet(code, "modules of Python's standard library, from 2/5 of their lines on"),
    "manuals": TextSet(lambda _: manuals("en"), "manual pages in English"),
    "manuals, German": TextSet(lambda _: manuals(LANGUAGE), "the same manual pages in German"),
    "licences": TextSet(licences, "licences of the machine and of installed packages, one of each kind"),
}
