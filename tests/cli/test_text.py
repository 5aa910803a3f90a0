"""`torch-boc text`: numbers, files and errors of one line."""

import json

import pytest
from rich.cells import cell_len
from transformers import BertConfig, BertForSequenceClassification, BertLMHeadModel

from tests.transformers.cases import SIZE, sharpened
from tests.transformers.text_cases import byte_model, byte_tokenizer, prose
from torch_boc.cli import text as command
from torch_boc.data import texts
from torch_boc.transformers import evaluate_text


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


def expected(text, **options):
    return evaluate_text(byte_model(), byte_tokenizer(), text, **options)


def test_tables_verdict_and_files(run, folder, book):
    code, out, err = run("text", "--model", folder, "book.txt", "note.txt", "--out", "found")
    assert (code, err) == (0, "")
    report = expected({"book.txt": prose(700), "note.txt": prose(90)})
    flat = " ".join(out.split())
    assert report.headline in flat
    assert all(" ".join(sentence.split()) in flat for sentence in report.verdict)
    rows = [line.split() for line in out.splitlines()]
    for name, numbers in report.numbers.items():
        assert [name, f"{numbers['tokens']:,}", f"{numbers['perplexity']:.1f}"] in [row[:3] for row in rows]
    written = {path.name for path in (book / "found").iterdir()}
    assert written == {"text.html", "text.json", "text.csv", "reliability.png", "lost_coins.png", "gap.png"}
    assert all(f"found/{name}" in out for name in written)
    assert max(map(cell_len, out.splitlines())) <= 80


def test_json_is_alone_on_stdout_and_writes_nothing(run, folder, book):
    options = ("--context", "32", "--stride", "5", "--bos", "--dtype", "float32", "--json")
    code, out, err = run("text", "--model", folder, "book.txt", *options)
    assert (code, err) == (0, "")
    content = json.loads(out, parse_constant=pytest.fail)
    report = expected({"book.txt": prose(700)}, context=32, stride=5, bos=True)
    assert content["numbers"].keys() == {"book.txt"}
    assert content["numbers"]["book.txt"] == pytest.approx(json.loads(report.to_json())["numbers"]["book.txt"])
    assert content["settings"]["context"] == 32
    assert content["settings"]["tokens_before"] == [0]
    assert {path.name for path in book.iterdir()} == {"book.txt", "note.txt"}


def test_a_file_is_read_in_pieces(run, folder, book, monkeypatch):
    seen = []

    def pieces(path):
        for piece in texts.text_pieces(path, 50):
            seen.append(piece)
            yield piece

    monkeypatch.setattr(command, "text_pieces", pieces)
    content = json.loads(run("text", "--model", folder, "book.txt", "--json").out)
    assert len(seen) > 5
    report = expected({"book.txt": prose(700)})  # every byte is a token, so that nothing changes
    assert content["numbers"]["book.txt"]["nll"] == pytest.approx(report.nll, rel=1e-9)
    assert content["numbers"]["book.txt"]["bytes"] == report["bytes"]


def test_half_precision(run, folder, book):
    content = json.loads(run("text", "--model", folder, "note.txt", "--dtype", "bfloat16", "--json").out)
    assert content["settings"]["dtype"] == "bfloat16"
    assert content["numbers"]["note.txt"]["nll"] == pytest.approx(expected(prose(90)).nll, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "nowhere", "book.txt"], "nowhere: no such folder; give --model the folder of a model"),
        (["--model", ".", "book.txt"], "transformers cannot load a causal language model"),
        (["--model", "FOLDER", "--gguf", "x.gguf", "book.txt"], "x.gguf: no such file; give --gguf"),
        (["--model", "FOLDER", "missing.txt"], "missing.txt: expected a text file, got no such file"),
        (["--model", "FOLDER", "."], ".: expected a text file, got a folder"),
        (["--model", "FOLDER", "empty.txt"], "empty.txt: expected a text, got an empty file"),
        (["--model", "FOLDER", "letter.txt"], "letter.txt: expected a text of at least two tokens, got one token"),
        (["--model", "FOLDER", "latin.txt"], "latin.txt: expected a text in UTF-8, got invalid start byte at byte 4"),
        (["--model", "FOLDER", "book.txt", "book.txt"], "book.txt: expected each file once, got it 2 times"),
        (["--model", "nowhere", "book.txt", "all"], "all: expected another name for a text among several"),
        (["--model", "FOLDER", "book.txt", "--context", "65"], "at most 64, the context of the model, got 65"),
        (["--model", "FOLDER", "book.txt", "--stride", "64"], "expected a stride from 1 to 63"),
        (["--model", "FOLDER", "book.txt", "--dtype", "int8"], "expected --dtype among auto, float32"),
        (["--model", "FOLDER", "book.txt", "--out", "note.txt"], "expected a folder, got the file note.txt"),
    ],
)
def test_errors_are_one_line(run, folder, book, options, message):
    (book / "empty.txt").touch()
    (book / "letter.txt").write_text("x")
    (book / "all").write_text("some text")
    (book / "latin.txt").write_bytes("abcdäxyz".encode("latin-1").replace(b"\xe4", b"\xff"))
    code, out, err = run("text", *(folder if x == "FOLDER" else x for x in options))
    assert (code, out) == (2, "")
    assert err.startswith("torch-boc: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (book / "found").exists()


def test_other_models_are_refused(run, book):
    config = BertConfig(vocab_size=300, max_position_embeddings=64, **SIZE)
    sharpened(BertLMHeadModel, config, "cls.predictions.decoder").save_pretrained(book / "bert")
    byte_tokenizer().save_pretrained(book / "bert")
    code, out, err = run("text", "--model", "bert", "book.txt")
    assert (code, out) == (2, "")
    assert "expected a causal language model, got BertLMHeadModel, whose predictions change with later tokens" in err
    BertForSequenceClassification(config).save_pretrained(book / "tagger")
    byte_tokenizer().save_pretrained(book / "tagger")
    assert run("text", "--model", "tagger", "book.txt").code == 2
