"""The example of generation runs on a random model, on a model in a folder, and with a text that is trusted."""

import re

import pytest
import torch

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
    (tmp_path / "trusted.txt").write_text("\n\n".join([*example.SENTENCES] * 3), encoding="utf-8")
    options = ["--trusted", tmp_path / "trusted.txt"] if trusted else []
    prompts = ["--prompt", "The red cat saw", "The old"]
    page = tmp_path / "page.html"
    printed = run(
        "generate_with_coherence.py", "--model", tmp_path, *prompts, "--tokens", 12, "--sample", "-o", page, *options
    )
    assert ("stops where" in printed) == trusted
    assert page.exists()


def test_the_text_of_the_random_model_is_readable():
    model, tokenizer = example.tiny()
    trace = example.write(["The old dog"], model, tokenizer, max_new_tokens=2)
    assert trace.text().strip().startswith("The old dog")


def test_trusted_texts_are_written_like_those_that_are_stopped():
    """A text of a trusted prompt itself is stopped at most as often as promised, and its length is the same."""
    torch.manual_seed(0)
    model, tokenizer = example.tiny()
    prompts = [" ".join(text.split()[:n]) for text in example.SENTENCES for n in (3, 4, 5)]
    options = {"max_new_tokens": 20, "do_sample": False}
    stop = example.rule_from(prompts, model, tokenizer, **options)
    finishes = [example.write([text], model, tokenizer, stop, **options).records[0].finish for text in prompts]
    assert finishes.count("stop") <= example.ALPHA * len(prompts)
    assert set(finishes) <= {"stop", "length", "eos"}


@SCRIPT
def test_too_few_prompts_are_explained(run, tmp_path):
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
