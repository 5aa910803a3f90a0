"""The outcome of an evaluation of texts: numbers, tables, figures and what they say."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..data.atomic import check_file, check_folder
from ..functional.text_summary import lost_coins_histogram
from ..plots import image
from ..report.parts import Caption, Section, Table
from ..report.rendering import template
from ..report.report import picture, strict, write
from ..report.words import number, percent
from . import text_figures
from .text_numbers import ALL, TextPart, bin_table, check_names, gathered, part_numbers, separation_table, text_table
from .text_verdict import sentences
from .text_words import GLOSSARY, gap_table, main_table, more_table, reliability_table, separation_table_of

TITLE = "A language model on text"
FILES = ("text.html", "text.json", "text.csv", "reliability.png", "lost_coins.png", "gap.png")
CALIBRATION = (
    "Does a confidence of 80 % in the next token mean that it comes in 80 % of cases? Confidence is the probability of "
    "the likeliest token; accuracy is the share of places where that token came."
)
TELLING = (
    "Which number tells the tokens that the model foresaw from those that it did not? At equal confidence, only "
    "predictions of about the same confidence are compared, so that confidence itself is left with what a stratum of a "
    "quarter of a unit of the log-odds still holds."
)
GAP = (
    "The gap comes last, because with a vocabulary of many thousand tokens confidence decides nearly all of it: Δ is "
    "then 1 − p̂. What the logits add is the free part, which is orders of magnitude smaller."
)


class TextReport:
    """How well a language model predicts texts; from `torch_boc.transformers.evaluate_text`.

    The numbers of all texts together are attributes, such as `report.perplexity`, and entries, such as
    `report["ece"]`. `functional.text_summary` documents them; `documents`, `bytes`, `bits_per_token` and
    `bits_per_byte` are added.

    Args:
        parts: what each text adds up to, by name. Pairs of a name and a part are taken one by one; none is kept.
        settings: see below.

    Attributes:
        settings: the model, its vocabulary, the context and the stride.
        whole: the numbers of all texts together.
        numbers: the numbers of each text by its name, and those of all together under "all" if there are several.
            No text among several may have the name "all".
    """

    def __init__(
        self, parts: Mapping[str, TextPart] | Iterable[tuple[str, TextPart]], settings: Mapping[str, Any]
    ) -> None:
        self.settings = dict(settings)
        self.numbers, self._whole = gathered(parts.items() if isinstance(parts, Mapping) else parts)
        check_names(self.numbers)
        self.whole = part_numbers(self._whole)
        if len(self.numbers) > 1:
            self.numbers[ALL] = self.whole

    def __getitem__(self, key: str) -> float:
        return self.whole[key]

    def __getattr__(self, name: str) -> float:
        if not name.startswith("_") and "whole" in self.__dict__ and name in self.whole:
            return self.whole[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def table(self) -> Any:
        """A DataFrame with a row of numbers for each text."""
        return text_table(self.numbers)

    @property
    def bins(self) -> Any:
        """A DataFrame with a row for each of 15 bins of confidence, over all texts."""
        return bin_table(self._whole)

    @property
    def separation(self) -> Any:
        """A DataFrame: how well scores tell right from wrong next tokens, overall and at equal confidence."""
        return separation_table(self.whole)

    @property
    def verdict(self) -> list[str]:
        """What the numbers say, in plain sentences."""
        return sentences(self.whole, self.settings["num_classes"])

    def tables(self) -> list[Table]:
        """The tables for a terminal."""
        return [main_table(self.numbers), separation_table_of(self.whole)]

    def figures(self) -> dict[str, Any]:
        """Figures of matplotlib by name: reliability, lost_coins and gap."""
        bins = self.bins
        return {
            "reliability": text_figures.reliability(bins),
            "lost_coins": text_figures.lost_coins(*lost_coins_histogram(self._whole.tally)),
            "gap": text_figures.gap(bins),
        }

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as strict JSON: an object with settings, verdict, numbers, bins and separation."""
        content = {"settings": self.settings, "verdict": self.verdict, "numbers": self.numbers}
        content |= {"bins": self.bins.to_dict("list"), "separation": self.separation.to_dict("list")}
        text = json.dumps(strict(content), ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write(check_file(path), text.encode())
        return text

    def html(self, drawn: Mapping[str, Any] | None = None) -> str:
        """The report as one page of HTML, which loads nothing and runs no script."""
        pictures = {name: picture(figure) for name, figure in (drawn or self.figures()).items()}
        drawings = [[(x, pictures[x.name]) for x in section.captions] for section in self._sections()]
        return template("report.html.jinja").render(
            title=TITLE,
            subtitle=str(self.settings.get("title", "")),
            headline=self.headline,
            sentences=self.verdict,
            symbols=[],
            sections=list(zip(self._sections(), [[]] * len(drawings), drawings, strict=True)),
            measured=[(name.replace("_", " "), str(value)) for name, value in self.settings.items() if name != "title"],
            glossary=GLOSSARY,
            up=None,
            explore=None,
        )

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the page, the numbers as JSON and as CSV, and the figures into `folder`; returns the paths."""
        folder, drawn = check_folder(folder, FILES), self.figures()
        paths = [write(folder / "text.html", self.html(drawn).encode())]
        paths.append(write(folder / "text.json", self.to_json().encode()))
        paths.append(write(folder / "text.csv", self.table.to_csv().encode()))
        return paths + [write(folder / f"{name}.png", image(figure, "png")) for name, figure in drawn.items()]

    @property
    def headline(self) -> str:
        """The main numbers in one line."""
        whole = self.whole
        return (
            f"{whole['tokens']:,} tokens · perplexity {number(whole['perplexity'], 1)} · accuracy "
            f"{percent(whole['accuracy'])} · mean confidence {percent(whole['confidence'])} · "
            f"ECE {number(whole['ece'])}"
        )

    def __repr__(self) -> str:
        return "\n".join([f"TextReport: {self.headline}", *(f"- {sentence}" for sentence in self.verdict)])

    def _sections(self) -> list[Section]:
        whole, bins = self.whole, self.bins
        drawn = {
            "reliability": ("Accuracy by confidence, and how many tokens have it", "Accuracy by bin of confidence"),
            "lost_coins": ("How many coin flips the likeliest token is expected to lose", "Histogram of lost coins"),
            "gap": ("The gap and its free part by confidence", "Gap and free gap by bin of confidence"),
        }
        alt = {
            "reliability": f"ECE {number(whole['ece'])}; the table above has the numbers of each bin",
            "lost_coins": f"median {number(whole['lost_coins_q50'], 2)}, mean {number(whole['lost_coins'], 2)}",
            "gap": "the table of bins has the numbers",
        }
        pictures = {name: Caption(name, text, f"{what}: {alt[name]}") for name, (text, what) in drawn.items()}
        return [
            Section("The texts", "Every token is predicted from those before it.", self._main_tables(), []),
            Section("Next-token calibration", CALIBRATION, [reliability_table(bins)], [pictures["reliability"]]),
            Section("What tells right from wrong", TELLING, [separation_table_of(whole)], [pictures["lost_coins"]]),
            Section("The coherence gap", GAP, [gap_table(bins)], [pictures["gap"]]),
        ]

    def _main_tables(self) -> list[Table]:
        return [main_table(self.numbers), more_table(self.numbers)]
