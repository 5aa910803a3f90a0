"""Templates escape whatever they are given; JSON stays in its script element; a folder's own templates come first."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_boc.pages import TEMPLATES, environment, html_text, json_text


class Tags(HTMLParser):
    """The tags of a page, with the text of script elements."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.script, self.inside = [], "", False
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.inside = tag == "script"

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        self.script += data if self.inside else ""


@pytest.mark.parametrize("file", sorted(path.name for path in TEMPLATES.glob("*.jinja")))
def test_no_template_switches_escaping_off(file):
    environment(TEMPLATES).get_template(file)
    text = (TEMPLATES / file).read_text(encoding="utf-8")
    assert "safe" not in text
    assert "autoescape" not in text


@given(st.lists(st.text() | st.sampled_from(["</script><b>", "<!--<script>", "]]>", "\u2028"])))
def test_json_comes_back_whole_and_ends_no_script(texts):
    found = Tags(f"<script type='application/json'>{json_text(texts)}</script><p>")
    assert found.tags == ["script", "p"]
    assert json.loads(found.script) == [text.encode("utf-8", "replace").decode() for text in texts]


def test_json_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text([float("nan")])


def test_the_filters(tmp_path):
    (tmp_path / "page.html.jinja").write_text("{{ a }} {{ b|text }} {{ c|json }}")
    page = environment(tmp_path).get_template("page.html.jinja").render(a="<i>", b="5 %", c=["&"])
    assert page == '&lt;i&gt; 5&nbsp;% ["\\u0026"]'
    assert html_text("<") == "&lt;"


def test_a_folder_of_its_own_comes_first(tmp_path):
    (tmp_path / "parts.html.jinja").write_text("mine")
    assert environment(tmp_path).get_template("parts.html.jinja").render() == "mine"
    assert environment(tmp_path).get_template("page.css").render() == (TEMPLATES / "page.css").read_text()
