"""Generate text, and read the uncertainty of every token: its confidence, and how many coins it lost.

    python examples/generate_with_coherence.py --model FOLDER --prompt "The capital of France is" -o trace.html
    python examples/generate_with_coherence.py --model FOLDER --gguf model.gguf --prompt "Once upon a time" --sample
    python examples/generate_with_coherence.py --smoke        # a random model, offline

It prints one line per sequence and the tokens that lost the most coins, and writes a page with the text: tokens are
tinted by their lost coins, and show their numbers and the likeliest tokens.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from torch_boc.language import Trace
from torch_boc.transformers import BoCGeneration

SENTENCES = [f"The {a} {b} saw a {c} fox." for a in ("old", "red") for b in ("dog", "cat") for c in ("tame", "wild")]


def load(folder: str, gguf: str | None) -> tuple[Any, Any]:
    """A model and its tokenizer from a folder, or from a GGUF file in it."""
    options = {"gguf_file": gguf} if gguf else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), AutoTokenizer.from_pretrained(
        folder, **options
    )


def tiny() -> tuple[Any, Any]:
    """A model with random weights, and a tokenizer trained on the spot."""
    special = {"eos_token": "</s>", "pad_token": "<pad>"}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    tokens = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.4, bos_token_id=None, **size, **tokens)
    return LlamaForCausalLM(config).eval(), tokenizer


def write(prompts: list[str], model: Any, tokenizer: Any, **options: Any) -> Trace:
    """What the model writes after each of the prompts, with its numbers."""
    # One object is all: it sees the scores, and the token that was chosen. The text is as it would be without it.
    recorder = BoCGeneration(model, tokenizer, prompt=True)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
    inputs = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    recorder.generate(**given, **options, pad_token_id=tokenizer.pad_token_id)
    return recorder.trace


def main() -> None:
    """Generate, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder that transformers can load")
    parser.add_argument("--gguf", help="the name of a GGUF file in this folder")
    parser.add_argument("--prompt", nargs="+", default=["The old dog"], help="one or more texts to continue")
    parser.add_argument("--tokens", type=int, default=60, help="the most tokens to generate")
    parser.add_argument("--sample", action="store_true", help="sample, in place of the likeliest token")
    parser.add_argument("-o", "--output", type=Path, help="the page; by default trace.html")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if not args.smoke and args.model is None:
        parser.error("give --model FOLDER, or --smoke")
    torch.manual_seed(0)
    logging.set_verbosity_error()
    model, tokenizer = tiny() if args.smoke else load(args.model, args.gguf)
    trace = write(args.prompt, model, tokenizer, max_new_tokens=args.tokens, do_sample=args.sample)
    print(trace.summary()[["tokens", "perplexity", "mean_lost_coins", "mean_confidence", "finish"]].to_string())
    table = trace.to_frame().sort_values("lost_coins", ascending=False)
    print(table[["sequence", "position", "text", "lost_coins", "confidence", "entropy", "rank"]].head(5).to_string())
    folder = Path(tempfile.mkdtemp()) if args.smoke else Path()
    print(f"wrote {trace.save(args.output or folder / 'trace.html')}")


if __name__ == "__main__":
    main()
