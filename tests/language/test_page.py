"""The source of the page: whole, escaped, small, and with the gap on request only."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.language.cases import make_record, make_trace
from torch_boc.functional.tokens import token_numbers
from torch_boc.language import TokenRecord, Trace
from torch_boc.language import page as page_module
from torch_boc.language.scales import LEVELS, SCALES, scale_of

TEMPLATES = Path(page_module.__file__).with_name("templates")
HOSTILE = [
    "</script><b>",
    "<img src=x onerror=alert(1)>",
    "' onload='x",
    '"',
    "&lt;",
    "{{ 7 + 7 }}",
    "\u2028",
    "\ud800",
]


class Parsed(HTMLParser):
    """The tags with the names of their attributes, and the JSON of a page."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.data, self.inside = [], "", False
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, sorted(name for name, _ in attributes)))
        self.inside = dict(attributes).get("id") == "data"

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        self.data += data if self.inside else ""


def trace_of(texts, *, rivals="x"):
    record = make_record(len(texts), texts=texts, rival_texts=[[rivals] * 5] * len(texts))
    return Trace([record], num_classes=50)


def test_whatever_the_model_writes_stays_text():
    plain, hostile = trace_of(["a"] * len(HOSTILE), rivals="b"), trace_of(HOSTILE, rivals=HOSTILE[0])
    found = [Parsed(trace.html(title=title)) for trace, title in ((plain, "c"), (hostile, HOSTILE[0]))]
    assert found[0].tags == found[1].tags
    assert HOSTILE[0] in json.loads(found[1].data)["labels"]
    assert "{{ 7 + 7 }}" in hostile.html()
    short = [Parsed(trace._repr_html_()).tags for trace in (plain, hostile)]
    assert short[0] == short[1]


@pytest.mark.parametrize("file", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.name)
def test_no_template_switches_escaping_off(file):
    text = file.read_text(encoding="utf-8")
    assert "safe" not in text
    assert "autoescape" not in text


def test_nothing_is_loaded():
    source = make_trace(30, 4).html()
    assert not re.search(r"https?:|src=|@import|url\(|<link", source)
    assert source.startswith("<!DOCTYPE html>\n<html lang='en'>")


@pytest.mark.parametrize("classes", [2, 3, 5000])
def test_what_the_page_says_of_the_gap_is_so(classes):
    numbers = token_numbers(torch.randn(20, classes, dtype=torch.float64), torch.zeros(20, dtype=torch.int64))
    rest = 1 - numbers.confidence - numbers.lost_coins / (classes - 1)
    torch.testing.assert_close(numbers.gap, rest, rtol=0, atol=1e-9)


def test_the_gap_is_there_on_request_only():
    trace = make_trace(9)
    default = json.loads(Parsed(trace.html()).data)["scales"]
    assert list(default) == ["lost_coins", "confidence", "entropy", "rank", "log_probability"]
    asked = Parsed(trace.html("gap"))
    assert list(json.loads(asked.data)["scales"])[-1] == "gap"
    assert "says nothing of its own" in trace.html("gap")
    assert f"1 − confidence − lost coins / {trace.num_classes - 1:,}." in trace.html("gap")
    assert "<option value='gap' selected>" in trace.html("gap")


def test_further_numbers_can_be_chosen():
    record = make_record(6)
    more = {**record.numbers, "masked": torch.zeros(6), "p_in_distribution": torch.rand(6), "own": torch.arange(6.0)}
    more |= {"lost_coins_lower": more["lost_coins"] - 0.1, "lost_coins_upper": more["lost_coins"] + 0.1}
    record = TokenRecord(record.tokens, more, record.rivals, record.rival_log_probabilities)
    data = json.loads(Parsed(Trace([record], num_classes=50).html()).data)
    # No token was masked, and bounds are no quantities of their own.
    assert list(data["scales"])[5:] == ["p_in_distribution", "own"]
    assert "lost_coins_lower" in data["sequences"][0]["numbers"]


def test_a_prompt_without_numbers_is_one_text():
    record, bare = make_record(10, prompt=4), make_record(10, prompt=4, bare=True)
    spans = [source.count("<span class='q") for source in (Trace([x], num_classes=50).html() for x in (bare, record))]
    assert spans == [6 + 8, 10 + 8]  # the legend has 8
    assert json.loads(Parsed(Trace([bare], num_classes=50).html()).data)["sequences"][0]["first"] == 4


def test_the_page_is_small():
    """The bytes that each further token takes, with 5 rivals."""
    sizes = [len(make_trace(length).html().encode()) for length in (1000, 2000)]
    assert (sizes[1] - sizes[0]) / 1000 < 180


def test_the_notebook_shows_the_beginning():
    source = make_trace(700, 50)._repr_html_()
    assert source.count("<span class='q") == 600 + 8
    assert "and 150 more tokens" in source
    assert "<script" not in source
    assert "more tokens" not in make_trace(20)._repr_html_()


@pytest.mark.parametrize("name", SCALES)
@given(value=st.floats(-100, 1e6))
def test_levels_and_heights_agree(name, value):
    scale = SCALES[name]
    level, height = scale.level(value), scale.height(value)
    assert 0 <= level < LEVELS
    assert level <= height * LEVELS <= level + 1
    assert scale.level(math.nan) == -1


@pytest.mark.parametrize("name", SCALES)
def test_scales_are_ordered(name):
    edges = SCALES[name].edges
    assert len(edges) == LEVELS - 1
    assert list(edges) in (sorted(edges), sorted(edges, reverse=True))
    assert [SCALES[name].level(edge) for edge in edges] == list(range(1, LEVELS))


def test_the_scale_of_an_unknown_number():
    assert scale_of("own", [0.0, 8.0, math.nan]).edges == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    assert scale_of("own", [3.0]).level(3.0) == 0
    assert scale_of("own", []).level(0.5) == 4
