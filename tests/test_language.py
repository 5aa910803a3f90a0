"""Everything that a user reads is written in the words of the field: pages, help, docstrings, messages, comments."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A phrase, and what the field says. Words that are idiomatic elsewhere are looked for with their neighbours only.
DIALECT = {
    r"(?:go|goes|going|went|sent|let) out(?: unseen| without| on its own)": "accepted, automated; coverage",
    r"out unseen|let(?:s|ting)? out": "accepted, automated; coverage",
    r"(?:un)?familiar|strange(?:r|rs)? (?:sample|input|text|class|data|row|image)s?": "in-distribution, OOD",
    r"too (?:sure|modest)|points off": "overconfident, underconfident; calibration error (ECE)",
    r"(?:least|most|less|more|how|be) sure|surest|surer|\d\s?% sure": "confident, confidence; with probability",
    r"promises?|promised|keeps? its word": "guarantee",
    r"data sets?": "dataset",
    r"repaired|repairs?|cured|cures?": "corrected, calibrated",
    r"(?:all|each|every|other|another|several|many|two|eight) cards?|cards? of a node|a laptop, a card": "GPU",
    r"as (?:it is|they are)(?=[.,;:)]|$| and)": "unchanged, uncalibrated",
    r"in the place of|in (?:its|their) place": "instead of",
    r"(?:go|goes|going|went) on(?! the)": "resumes, continues",
    r"caught": "detected; detection rate (TPR)",
    r"(?:row|line) for each": "one row per sample",
    r"beside": "alongside, next to",
    r"alone": "only",
    r"also if|also where": "even if",
    r"may be (?:asked|looked at)": "address the reader: check it",
    r"with a (?:chance|confidence) of|keep these shares": "with probability 95 % (delta = 0.05)",
    r"with tests that hold|test that holds|tests that hold": "with finite-sample guarantees",
    r"(?:says|say|tells|tell) how (?:it is|sure|far off)|(?:Lightning|Ray|Trainer|torch) wants": "verbs of software",
    r"at a loss|for nothing|desk and phone|learnt nothing": "plain nouns of the field",
    r"(?:network|model|classifier) (?:is|was) sure|how sure": "confident, overconfident; uncertainty",
    r"(?:of|than) [^,.;]+, so many|(?:at most|this is|are) so many": "from more rows, a sample of this size",
    r"for ever|in service|structured scaling": "forever; in production; vector scaling",
}
PHRASES = {re.compile(rf"\b(?:{phrase.replace(' ', chr(92) + 's+')})(?!\w)", re.I): v for phrase, v in DIALECT.items()}
# Whole texts; Python is read for its strings and comments.
ENDINGS = {".md", ".jinja", ".js", ".css", ".yml", ".cff", ".toml", ".txt", ".html", ".json"}
SKIPPED = {"node_modules", "build", "lib", "mutants", "training", "assets", "published.json", "package-lock.json"}
FOLDERS = ("torch_boc", "examples", "benchmarks", ".github")


def documents() -> list[Path]:
    """Pages, templates and Python of the package, the examples and the benchmarks; of the tests, the golden pages."""
    top = [path for path in ROOT.iterdir() if path.suffix in ENDINGS]
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS | {".py"}]
    golden = [path for path in (ROOT / "tests").rglob("golden/*") if path.suffix in ENDINGS]
    return sorted(x for x in top + inside + golden if x.is_file() and not SKIPPED & set(x.relative_to(ROOT).parts))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with its line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    comments = [x for x in tokenize.generate_tokens(io.StringIO(text).readline) if x.type == tokenize.COMMENT]
    block, first = "", 0
    for token in comments:  # comments of successive lines are one text
        follows = token.start[0] == first + block.count("\n")
        block, first = (block, first) if follows else ("", token.start[0])
        block += token.string.lstrip("# ") + "\n"
        yield first, block


def dialect(path: Path) -> list[str]:
    """The lines of a file with a phrase that the field does not use."""
    lines = set()
    for line, text in texts(path):
        for pattern, better in PHRASES.items():
            for match in pattern.finditer(text):
                lines.add((line + text.count("\n", 0, match.start()), " ".join(match[0].split()), better))
    return [f"{path.relative_to(ROOT)}:{at}: {phrase!r} -> {better}" for at, phrase, better in sorted(lines)]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_words_of_the_field(path: Path) -> None:
    assert dialect(path) == []
