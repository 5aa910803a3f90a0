"""The README: its first screen is short, its links hold, and its code runs."""

import re
import string

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tests.examples.conftest import SCRIPT
from tests.examples.guide.blocks import GUIDE, blocks
from tests.examples.guide.test_blocks import run_commands
from tests.examples.guide.test_pages import CODE, FENCE, LINK, anchors

ROOT = GUIDE.parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_SCREEN = 60


def first_screen():
    return TEXT[: TEXT.index("\n## ")]


def test_the_first_screen_is_short_and_complete():
    screen = first_screen()
    assert len(screen.splitlines()) <= FIRST_SCREEN
    assert screen.count("![") == 1
    (code,) = (block for block in blocks(screen) if block.language == "python")
    calls = [line for line in code.text.splitlines() if line and not line.startswith("import ")]
    assert len(calls) == 5
    for words in ("make demo", "make test", "When not to use it", "Is my confidence", "a person", "drifted"):
        assert words in screen, words
    rows = [line for line in screen.splitlines() if line.startswith("| ") and "?" in line]
    assert len(rows) == 3
    assert all(re.search(r"\d", row.split("|")[3]) for row in rows), "each decision has a number"


def test_links_hold():
    for link, anchor in LINK.findall(CODE.sub("", FENCE.sub("", TEXT))):
        target = (ROOT / link).resolve() if link else ROOT / "README.md"
        assert target.exists(), link
        if anchor:
            assert anchor[1:] in anchors(target.read_text(encoding="utf-8")), f"{link}{anchor}"


class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, i):
        return {"x": torch.randn(8, generator=torch.Generator().manual_seed(i)), "path": f"{i:03}.jpg"}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)


def language_model():
    words = {character: i for i, character in enumerate(string.ascii_lowercase)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="z", eos_token="z", unk_token="a")
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": 25, "eos_token_id": 25}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), pad_token_id=25, **size)).eval()
    return {"model": model, "tokenizer": fast, "inputs": fast("abc", return_tensors="pt")}


def write_files(folder):
    numbers = np.random.default_rng(0)
    target = numbers.integers(5, size=300)
    for name in ("test", "val", "small", "large", "svhn"):
        logits = numbers.normal(size=(300, 5)).astype("float32") + 2 * np.eye(5, dtype="float32")[target]
        np.savez(folder / f"{name}.npz", logits=logits, **({} if name == "svhn" else {"target": target}))


@SCRIPT
@pytest.mark.filterwarnings("ignore:.*generation flags")
def test_code_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    torch.manual_seed(0)
    write_files(tmp_path)
    photos = Photos()
    names = {
        "validation_logits": torch.randn(500, 10),
        "new_logits": torch.randn(50, 10),
        "batches": [(torch.randn(20, 5), torch.randint(5, (20,)))],
        "classifier": Classifier(),
        "dataset": photos,
        "loader": torch.utils.data.DataLoader(photos, batch_size=25),
        **language_model(),
    }
    for block in blocks(TEXT):
        if block.not_run is None and block.language == "python":
            exec(compile("\n" * block.line + block.text, "README.md", "exec"), names)
        elif block.not_run is None:
            assert block.language == "bash"
            run_commands(block.text, monkeypatch)
    assert names["report"].results.settings["samples"] == {"id": 100}
    assert (tmp_path / "trace.html").exists()
    assert (tmp_path / "samples.parquet").exists()


def test_only_the_two_commands_are_not_run():
    (block,) = (x for x in blocks(TEXT) if x.not_run is not None)
    assert [line.split()[:2] for line in block.text.splitlines()] == [["make", "demo"], ["make", "test"]]
