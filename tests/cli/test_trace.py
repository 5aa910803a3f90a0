"""`torch-boc trace`: a page from a small model of random weights, or from a saved response."""

import io
import json

import pandas
import pytest
import torch
import transformers

from tests.language import servers
from tests.language.test_texts import byte_level
from torch_boc.cli.trace import UNKNOWN
from torch_boc.language import Trace
from torch_boc.language.scales import SCALES

CHAT = "{% for message in messages %}User: {{ message.content }}\n{% endfor %}Bot:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llama of two thousand weights, whose tokenizer knows a few lines."""
    path = tmp_path_factory.mktemp("model")
    tokenizer = byte_level()
    tokenizer.save_pretrained(path)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), **sizes, eos_token_id=0, bos_token_id=0, pad_token_id=0
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture
def response(tmp_path):
    generator = torch.Generator().manual_seed(0)
    logits, tokens = torch.randn(9, 40, generator=generator), torch.randint(40, (9,), generator=generator)
    (tmp_path / "chat.json").write_text(json.dumps(servers.openai_chat(logits, tokens, 5)))
    return tmp_path / "chat.json"


def trace_model(run, folder, *more):
    return run("trace", "--model", folder, "--prompt", "The sky is", "--max-new-tokens", 12, *more)


def test_a_page_of_generated_text(run, folder, tmp_path):
    code, out, err = trace_model(run, folder, "-o", "a.html", "--table", "a.parquet")
    assert (code, err) == (0, "")
    assert out.startswith("Sequence 1: 12 tokens, perplexity ")
    assert "a.html" in out
    found = Trace.from_parquet(tmp_path / "a.parquet")
    assert found.text().startswith("The sky is")
    assert found.records[0].prompt_length == len(byte_level()("The sky is")["input_ids"])
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == found.html()
    table = pandas.read_parquet(tmp_path / "a.parquet")
    assert (table["rank"][~table["is_prompt"]] == 1).all()  # greedy


def test_by_default_it_is_here(run, folder, tmp_path):
    assert trace_model(run, folder).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["trace.html"]
    assert "<option value='lost_coins' selected>" in (tmp_path / "trace.html").read_text(encoding="utf-8")


def test_drawn_tokens_are_those_of_the_seed(run, folder, tmp_path):
    state = torch.get_rng_state()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        args = ("--sample", "--temperature", 5, "--seed", seed, "--table", f"{name}.parquet")
        assert trace_model(run, folder, *args).code == 0
    texts = [Trace.from_parquet(tmp_path / f"{name}.parquet").text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_prompt_from_stdin_and_a_quantity(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Naïve café"))
    code, out, _ = run(
        "trace", "--model", folder, "--prompt", "-", "--max-new-tokens", 3, "--quantity", "gap", "--json"
    )
    content = json.loads(out)
    assert (code, content["sequences"][0]["tokens"], content["files"]) == (0, 3, ["trace.html"])
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert "Naïve café" in page
    assert "<option value='gap' selected>" in page


def test_a_chat(run, folder, tmp_path):
    code, _, err = trace_model(run, folder, "--chat")
    assert (code, err) == (
        2,
        f"torch-boc: error: {folder}: expected a chat template for --chat, got none; leave --chat out\n",
    )
    talking = tmp_path / "talking"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(talking)
    transformers.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(talking)
    assert trace_model(run, talking, "--chat", "--table", "a.parquet").code == 0
    assert Trace.from_parquet(tmp_path / "a.parquet").text().startswith("User: The sky is\nBot:")


def test_a_page_of_a_response(run, response, tmp_path):
    code, out, err = run("trace", "--response", response, "--num-classes", 40, "-o", "b.html", "--table", "b.parquet")
    assert (code, err) == (0, "")
    assert "9 tokens, perplexity" in out
    assert "ended by stop" in out
    assert "lost_coins_lower" in pandas.read_parquet(tmp_path / "b.parquet")
    found = Trace.from_response(response.read_bytes(), num_classes=40)
    assert (tmp_path / "b.html").read_text(encoding="utf-8") == found.html()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "expected --model FOLDER or --response PATH, got none"),
        (["--model", "a", "--response", "b"], "expected --model FOLDER or --response PATH, got both"),
        (["--model", "a"], "expected --prompt TEXT with --model, got none; --prompt - reads it from stdin"),
        (["--response", "a"], "expected --num-classes N, the size of the vocabulary, with --response, got none"),
        (["--response", "a", "--num-classes", "9"], "a: no such file"),
        (
            ["--model", "a", "--prompt", "x", "--temperature", "2"],
            "expected --temperature above 0 and with --sample, got 2.0",
        ),
        (["--model", "a", "--prompt", "x", "--sample", "--temperature", "0"], "expected --temperature above 0"),
        (
            ["--model", "a", "--prompt", "x", "--quantity", "beauty"],
            "expected --quantity among lost_coins, confidence,",
        ),
        (
            ["--model", "a", "--prompt", "x", "--quantity", "p_in_distribution"],
            "expected --quantity among lost_coins, confidence, entropy, rank, log_probability, masked, odds, ",
        ),
        *(
            (
                ["--response", "a", "--num-classes", "9", "--quantity", name],
                "expected --quantity among lost_coins, confidence, rank, log_probability, odds, concentration, gap w",
            )
            for name in ("entropy", "masked", "p_in_distribution")
        ),
        (["--model", "a", "--prompt", "x"], "a: no such folder; give --model the folder of a model"),
        (["--model", "a.gguf", "--prompt", "x"], "a.gguf: no such file; give --gguf the name of a GGUF file"),
        (["--model", ".", "--gguf", "b", "--prompt", "x"], "b: no such file; give --gguf the name of a GGUF file"),
        (["--model", ".", "--prompt", "x"], ".: transformers cannot load a causal language model: "),
        (["--model", "a", "--prompt", "x", "-o", "."], "expected the path of a file, got the folder ."),
        (["--model", "a", "--prompt", "x", "--table", "/"], "expected the path of a file, got the folder /"),
    ],
)
def test_errors_are_one_line(run, args, message):
    code, out, err = run("trace", *args)
    assert (code, out) == (2, "")
    assert err.startswith(f"torch-boc: error: {message}")
    assert err.count("\n") == 1


def test_a_file_that_is_no_model(run, response):
    err = run("trace", "--model", response, "--prompt", "x").err
    assert "expected the folder of a model or a file that ends in .gguf, got another file" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no", "expected a response as JSON"),
        ("{}", "expected a response with `choices`"),
        ('{"choices": [{}]}', "got none"),
    ],
)
def test_a_file_that_is_no_response(run, tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    code, _, err = run("trace", "--response", "bad.json", "--num-classes", 9)
    assert code == 2
    assert err.startswith("torch-boc: error: bad.json: ")
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


@pytest.mark.parametrize("name", [x for x in SCALES if x not in UNKNOWN["--response"]])
def test_a_page_of_a_response_can_be_tinted_by_what_is_accepted(run, tmp_path, name):
    logits = torch.randn(9, 40, generator=torch.Generator().manual_seed(0))
    (tmp_path / "chat.json").write_text(json.dumps(servers.openai_chat(logits, logits.argmax(-1), 5)))
    assert (
        run("trace", "--response", "chat.json", "--num-classes", 40, "--quantity", name, "--table", "a.parquet").code
        == 0
    )
    assert pandas.read_parquet(tmp_path / "a.parquet")[name].notna().all()


@pytest.mark.parametrize("name", [x for x in SCALES if x not in UNKNOWN["--model"]])
def test_a_page_of_generated_text_can_be_tinted_by_what_is_accepted(run, folder, name):
    assert trace_model(run, folder, "--quantity", name).code == 0


def test_too_few_classes(run, response):
    err = run("trace", "--response", response, "--num-classes", 3).err
    assert "chat.json: expected 1 to 3 log-probabilities on the last axis" in err


def test_an_empty_prompt(run, folder):
    assert "expected --prompt TEXT" in run("trace", "--model", folder, "--prompt", "").err
