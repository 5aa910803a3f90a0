"""The example of generation runs on a random model, on a model in a folder, and with a text that is trusted."""

import re

import pytest

from examples import generate_with_coherence as example
from tests.examples.conftest import SCRIPT


@SCRIPT
def test_smoke(run, tmp_path):
    printed = run("generate_with_coherence.py", "--smoke", "-o", tmp_path / "trace.html")
    assert re.search(r"stops where 8 tokens lose more than [\d.]+ coins", printed)
    assert "mean_lost_coins" in printed
    assert "<html" in (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert str(tmp_path / "trace.html") in printed.replace("\n", "")


@SCRIPT
@pytest.mark.parametrize("trusted", [False, True])
def test_a_model_in_a_folder(run, tmp_path, trusted):
    for part in example.tiny():
        part.save_pretrained(tmp_path)
    (tmp_path / "trusted.txt").write_text(
        "\n\n".join(f"{text} {text}" for text in [*example.SENTENCES] * 3), encoding="utf-8"
    )
    options = ["--trusted", tmp_path / "trusted.txt"] if trusted else []
    prompts = ["--prompt", "The red cat saw", "The old"]
    page = tmp_path / "page.html"
    printed = run(
        "generate_with_coherence.py", "--model", tmp_path, *prompts, "--tokens", 12, "--sample", "-o", page, *options
    )
    assert ("stops where" in printed) == trusted
    assert page.exists()


@SCRIPT
def test_too_few_paragraphs_are_explained(run, tmp_path):
    for part in example.tiny():
        part.save_pretrained(tmp_path)
    (tmp_path / "trusted.txt").write_text("The old dog saw a tame fox.", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected at least 19 sequences for alpha=0.05, got 1"):
        run("generate_with_coherence.py", "--model", tmp_path, "--trusted", tmp_path / "trusted.txt")


@SCRIPT
def test_without_a_model(run, capsys):
    with pytest.raises(SystemExit):
        run("generate_with_coherence.py")
    assert "give --model FOLDER, or --smoke" in capsys.readouterr().err
