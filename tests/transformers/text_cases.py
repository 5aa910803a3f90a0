"""A tokenizer of single bytes, and tiny causal models for it."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from .cases import sharpened

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
TOKENS = 2 + len(BYTES)


def byte_tokenizer(*, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """Every byte is a token; <s> is 0 and </s> is 1."""
    words = {"<s>": 0, "</s>": 1, **{letter: 2 + i for i, letter in enumerate(BYTES)}}
    tokenizer = Tokenizer(models.BPE(words, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def byte_model(context: int = 64, vocabulary: int = TOKENS) -> nn.Module:
    """A GPT-2 whose predictions have every confidence."""
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=context, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1
    )
    return sharpened(GPT2LMHeadModel, config, "lm_head").eval()


def prose(length: int = 300) -> str:
    """Lines of words, with some letters of more than one byte."""
    random = torch.Generator().manual_seed(3)
    letters = "eeettaaoinshrdlu äé  \n"
    return "".join(letters[int(i)] for i in torch.randint(len(letters), (length,), generator=random))


def plain_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """The logits of one forward that predict the tokens from the second on."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0, :-1]
