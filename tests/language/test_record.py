"""The texts of tokens: joined they are the decoded text, for byte-level BPE, for SentencePiece and for bytes."""

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from torch_boc.language.record import clean, token_label, token_texts

LINES = ["The sky is blue.", "Naïve café, déjà vu!", "日本語のテキスト 🦜", "  two  spaces\n\nand lines\t"]


def byte_level():
    """A tokenizer whose tokens are bytes and a few pairs of bytes."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    made.train_from_iterator(LINES * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")


def sentence_pieces():
    """A tokenizer with "▁" for spaces and bytes for characters that it does not have, as Llama's."""
    words = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁The", "▁sky", "The", "a", "▁a", "é"]
    scores = [(word, 0.0 if word.startswith("<") else -float(len(word))) for word in words]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, 0, byte_fallback=True))
    decoders = tokenizers.decoders
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", unk_token="<unk>")


TOKENIZERS = {"bytes": byte_level(), "pieces": sentence_pieces()}


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=30)
@given(data=st.data())
def test_joined_texts_are_the_decoded_text(kind, data):
    """Also where bytes are no characters, for any order of tokens."""
    tokenizer = TOKENIZERS[kind]
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=30))
    texts = token_texts(tokenizer, tokens)
    assert len(texts) == len(tokens)
    assert "".join(texts) == clean(tokenizer.decode(tokens, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("line", LINES)
def test_texts_of_real_lines(line):
    tokenizer = TOKENIZERS["bytes"]
    texts = token_texts(tokenizer, [*tokenizer(line)["input_ids"], tokenizer.eos_token_id])
    assert "".join(texts) == f"{line}<|end|>"
    # A character is with the token that completes it, so that no part of it is seen.
    assert not any("\ufffd" in text for text in texts)


def test_labels():
    tokenizer = TOKENIZERS["pieces"]
    tokens = tokenizer.convert_tokens_to_ids(["▁The", "▁sky", "▁a", "<0xC3>", "<0xA9>", "a"])
    assert token_texts(tokenizer, tokens) == ["The", " sky", " a", "", "é", "a"]
    assert [token_label(tokenizer, token) for token in tokens] == [" The", " sky", " a", "<0xC3>", "<0xA9>", "a"]
    tokenizer = TOKENIZERS["bytes"]
    known = tokenizer.convert_tokens_to_ids(["<|end|>", "Ġ", "ã", "a"])
    assert [token_label(tokenizer, token) for token in known] == ["<|end|>", " ", "ã", "a"]
    assert clean("a\ud800") == "a?"
