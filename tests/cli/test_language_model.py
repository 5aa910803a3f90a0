"""`torch-boc text` and `torch-boc trace`: numbers, pages, files, and errors of one line."""

import io
import json
import os
import shutil

import pandas
import pytest
import torch
import transformers
from torch import nn

from tests.transformers.cases import SIZE, TOKENS, bert, byte_model, byte_tokenizer, prose, tiny
from torch_boc.cli import language_model as command
from torch_boc.transformers import evaluate_text

CHAT = "{% for message in messages %}User: {{ message.content }}\n{% endfor %}Bot:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    byte_model().save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def book(tmp_path):
    (tmp_path / "book.txt").write_text(prose(700))
    (tmp_path / "note.txt").write_text(prose(90))
    return tmp_path


def expected(given, **options):
    return evaluate_text(byte_model(), byte_tokenizer(), given, **options)


def headless(path):
    """Its head had random weights, so that the perplexity was another one in every run."""
    tiny("Llama", vocab_size=TOKENS, num_key_value_heads=2, **SIZE).base_model.save_pretrained(path)
    byte_tokenizer().save_pretrained(path)


INCOMPLETE = {
    "head": (headless, "expected all weights of a causal language model, got none for lm_head.weight"),
    "tokenizer": (byte_model().save_pretrained, "expected the model's tokenizer there, got none; add it with save_"),
}


@pytest.mark.parametrize("command", [("text", "book.txt"), ("trace", "--prompt", "The")])
@pytest.mark.parametrize(("save", "message"), INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_an_incomplete_checkpoint_is_refused(run, book, command, save, message):
    save("part")
    code, out, err = run(*command, "--model", "part")
    assert (code, out) == (2, "")
    assert f"error: part: {message}" in err
    assert {path.name for path in book.iterdir()} == {"book.txt", "note.txt", "part"}


def other_width(path):
    (path / "config.json").write_text((path / "config.json").read_text().replace('"n_embd": ', '"n_embd": 1'))


def other_weights(write):
    def damage(path):
        (path / "model.safetensors").unlink()
        write(path)

    return damage


DAMAGES = {
    "cut": lambda path: os.truncate(path / "model.safetensors", 5000),
    "noise": lambda path: (path / "model.safetensors").write_bytes(b"noise" * 99),
    "another width": other_width,
    "pickle": other_weights(lambda path: torch.save({"a": nn.ReLU()}, path / "pytorch_model.bin")),
    "empty": other_weights(lambda path: (path / "pytorch_model.bin").touch()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_refused_in_one_line(run, folder, book, damage):
    shutil.copytree(folder, book / "damaged")
    damage(book / "damaged")
    code, out, err = run("text", "book.txt", "--model", "damaged")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("torch-boc: error: damaged: transformers cannot load a causal language model: ")


def test_the_numbers_of_texts(run, folder, book):
    code, out, err = run("text", "--model", folder, "book.txt", "note.txt", "--out", "found.csv")
    assert (code, err) == (0, "")
    numbers = expected({"book.txt": prose(700), "note.txt": prose(90)})
    rows = [line.split()[:3] for line in out.splitlines()]
    for name, values in numbers.items():
        assert [name, f"{values['tokens']:.0f}", f"{values['perplexity']:.4g}"] in rows
    assert max(map(len, out.splitlines()[1:])) <= 80
    table = pandas.read_csv(book / "found.csv", index_col="text")
    pandas.testing.assert_frame_equal(table, numbers.to_frame(), check_dtype=False, rtol=1e-9)
    assert "found.csv" in out


def test_json_is_alone_on_stdout_and_a_file_is_read_in_pieces(run, folder, book, monkeypatch):
    monkeypatch.setattr(command, "PIECE", 50)
    options = ("--context", "32", "--json")
    code, out, err = run("text", "--model", folder, "book.txt", *options)
    assert (code, err) == (0, "")
    content = json.loads(out, parse_constant=pytest.fail)
    numbers = expected({"book.txt": prose(700)}, context=32)  # a byte is a token: nothing changes
    assert content["texts"].keys() == {"book.txt"}
    assert content["texts"]["book.txt"] == pytest.approx(numbers["book.txt"], rel=1e-6)
    assert {path.name for path in book.iterdir()} == {"book.txt", "note.txt"}


@pytest.mark.parametrize("mark", ["\n", " "])
def test_pieces_end_after_lines_or_words(book, monkeypatch, mark):
    """A short text is one piece, also without an end of its last line: no token may be cut there."""
    text = mark.join(["some", "words"] * 30)
    (book / "long.txt").write_text(text)
    assert list(command._pieces(book / "long.txt", print)) == [text]
    monkeypatch.setattr(command, "PIECE", 20)
    pieces = list(command._pieces(book / "long.txt", print))
    assert "".join(pieces) == text
    assert {piece[-1] for piece in pieces[:-1]} == {mark}


def text_of(path):
    return "".join(pandas.read_parquet(path)["text"])


def trace_model(run, folder, *more):
    return run("trace", "--model", folder, "--prompt", "The sky is", "--max-new-tokens", 12, *more)


def test_a_page_of_generated_text(run, folder, tmp_path):
    code, out, err = trace_model(run, folder, "--table", "a.parquet")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].endswith("ended by length")
    table = pandas.read_parquet(tmp_path / "a.parquet")
    assert text_of(tmp_path / "a.parquet").startswith("The sky is")
    assert table["is_prompt"].sum() == 10
    assert "The sky is" in (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert (table["rank"][~table["is_prompt"]] == 1).all()  # greedy


def test_drawn_tokens_are_those_of_the_seed(run, folder, tmp_path):
    state = torch.get_rng_state()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        args = ("--temperature", 5, "--seed", seed, "--table", f"{name}.parquet")
        assert trace_model(run, folder, *args).code == 0
    found = [text_of(tmp_path / f"{name}.parquet") for name in "abc"]
    assert found[0] == found[1] != found[2]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_prompt_from_stdin_and_a_chat(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Naïve café"))
    args = ("--model", folder, "--prompt", "-", "--max-new-tokens", 3, "--json")
    code, out, _ = run("trace", *args)
    content = json.loads(out)
    assert (code, content["classes"], content["files"]) == (0, byte_model().config.vocab_size, ["trace.html"])
    assert "Naïve café" in (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert "chat_template is not set" in trace_model(run, folder, "--chat").err
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path / "talking")
    byte_model().save_pretrained(tmp_path / "talking")
    assert trace_model(run, tmp_path / "talking", "--chat", "--table", "a.parquet").code == 0
    assert text_of(tmp_path / "a.parquet").startswith("User: The sky is\nBot:")


def test_what_trace_refuses(run, folder, tmp_path):
    """As `text` does: a model that sees later tokens, and a prompt that leaves no place in the context."""
    bert(vocab_size=byte_model().config.vocab_size).save_pretrained(tmp_path / "masked")
    byte_tokenizer().save_pretrained(tmp_path / "masked")
    err = run("trace", "--model", tmp_path / "masked", "--prompt", "x").err
    assert "error: expected a causal language model, got BertLMHeadModel, whose predictions change" in err
    context = byte_model().config.n_positions
    for prompt in ("", "a" * context):
        err = run("trace", "--model", folder, "--prompt", prompt).err
        got = f"expected a prompt of 1 to {context - 1} tokens, below the model's context, got {len(prompt)}"
        assert err == f"torch-boc: error: {got}\n"
    assert not (tmp_path / "trace.html").exists()


def test_generation_ends_where_the_context_does(run, folder, tmp_path):
    context = byte_model().config.n_positions
    assert run("trace", "--model", folder, "--prompt", "a" * (context - 3), "--table", "a.parquet").code == 0
    assert len(pandas.read_parquet(tmp_path / "a.parquet")) == context


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("empty.txt", "expected a text of at least two tokens, got an empty text"),
        ("latin.txt", "expected a text in UTF-8, got invalid start byte at byte 4"),
    ],
)
def test_texts_that_cannot_be_read(run, folder, book, file, message):
    (book / "empty.txt").touch()
    (book / "latin.txt").write_bytes(b"abcd\xffxyz")
    code, out, err = run("text", "--model", folder, file)
    assert (code, out) == (2, "")
    assert err.startswith(f"torch-boc: error: {file}: {message}")
    assert err.count("\n") == 1
