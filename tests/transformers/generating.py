"""What generation is compared with: the same model, run over the finished text."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from tests.transformers.cases import VOCABULARY
from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.language import TokenRecord

PAD = 0
# Enough of them that random texts end at different lengths.
EOS = [2, 7, 11, 19, 23, 31, 41]
FLOATS = [name for name in TOKEN_COLUMNS if name != "rank"]


def prompts(number: int = 3, length: int = 5, seed: int = 0) -> dict[str, Tensor]:
    """Prompts of one length."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (number, length), generator=random)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def left_padded(lengths: list[int], seed: int = 0) -> dict[str, Tensor]:
    """Prompts of these lengths with padding before them."""
    inputs = prompts(len(lengths), max(lengths), seed)
    mask = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths).unsqueeze(1)
    return {"input_ids": inputs["input_ids"].where(mask, PAD), "attention_mask": mask.long()}


def without_padding(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, which never emits the padding token by itself."""

    def unlikely(module: nn.Module, args: Any, logits: Tensor) -> Tensor:
        return torch.cat([torch.full_like(logits[..., :1], -99.0), logits[..., 1:]], -1)

    model.get_submodule("lm_head").register_forward_hook(unlikely)
    return model.eval()


def t5() -> nn.Module:
    torch.manual_seed(0)
    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **size))
    with torch.no_grad():
        model.shared.weight.mul_(3)
    return without_padding(model)


def bart() -> nn.Module:
    torch.manual_seed(0)
    halves = {f"{half}_{name}": n for half in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 16))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=VOCABULARY, d_model=16, max_position_embeddings=40, **halves, **heads)
    config.forced_eos_token_id = None
    model = BartForConditionalGeneration(config)
    with torch.no_grad():
        model.model.shared.weight.mul_(100)
    return without_padding(model)


def forced_logits(model: Any, prompt: Tensor, tokens: Tensor, encoded: Tensor | None = None) -> Tensor:
    """The logits at each of the tokens, with all of them given: (T, C)."""
    whole = torch.cat([prompt, tokens])[None]
    with torch.no_grad():
        if encoded is not None:
            logits = model(input_ids=encoded[None], decoder_input_ids=whole).logits[0]
        else:
            logits = model(input_ids=whole).logits[0]
    return logits[len(prompt) - 1 : -1]


def assert_record(record: TokenRecord, logits: Tensor) -> None:
    """The record has the numbers of its tokens, given these logits."""
    assert len(record) == len(logits) > 0
    expected = token_numbers(logits, record.tokens)
    torch.testing.assert_close(record.numbers["rank"].long(), expected.rank, rtol=0, atol=0)
    for name in FLOATS:
        torch.testing.assert_close(record.numbers[name], getattr(expected, name), rtol=3e-5, atol=1e-6)
    torch.testing.assert_close(record.rivals, expected.rivals, rtol=0, atol=0)
    found = record.rival_log_probabilities
    torch.testing.assert_close(found, expected.rival_log_probabilities, rtol=3e-5, atol=1e-5)
    assert not record.numbers["masked"].any()
