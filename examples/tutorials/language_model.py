# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Reading a language model
#
# How uncertain is a language model of each token? This tutorial trains a very small model on the
# help texts of Python, in a few seconds and offline, and reads its uncertainty. For your model,
# replace the first two cells by `AutoModelForCausalLM.from_pretrained(...)` and its tokenizer.

# %%
import pydoc_data.topics

import torch
from matplotlib.figure import Figure
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

texts = [text for _, text in sorted(pydoc_data.topics.topics.items())]
held_out = "\n".join(texts[::8])
training = "\n".join(text for i, text in enumerate(texts) if i % 8)
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
special = ["<pad>", "</s>"]
options = {"special_tokens": special, "initial_alphabet": alphabet}
trainer = trainers.BpeTrainer(vocab_size=1000, show_progress=False, **options)
bpe.train_from_iterator([training], trainer)
names = {"pad_token": "<pad>", "eos_token": "</s>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **names)
print(len(training.split()), "words to train on,", len(tokenizer), "tokens")

# %%
torch.manual_seed(0)
size = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
size |= {"intermediate_size": 192, "max_position_embeddings": 256}
config = LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=1, **size)
model = LlamaForCausalLM(config)
tokens = torch.tensor(bpe.encode(training).ids)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
for _ in range(150):
    starts = torch.randint(len(tokens) - 64, (16, 1))
    batch = tokens[starts + torch.arange(64)]
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print(f"loss {loss.item():.2f} after 150 steps")

# %% [markdown]
# ## How well does it predict text?
#
# `evaluate_text` reads texts of any length: here held-out help texts, and the same words in another
# order.

# %%
from torch_boc.transformers import evaluate_text

words = held_out[:6000].split()
order = torch.randperm(len(words)).tolist()
pieces = {"help": " ".join(words), "shuffled": " ".join(words[i] for i in order)}
numbers = evaluate_text(model, tokenizer, pieces, context=128)
columns = ["perplexity", "accuracy", "confidence", "ece", "lost_coins"]
numbers.to_frame()[columns].round(3)

# %% [markdown]
# ## Uncertainty of each generated token
#
# `BoCGeneration` records the numbers while `generate` runs. `lost_coins` is the expected number of
# coins that the likeliest token loses against all others. Unlike confidence, it does not saturate.

# %%
from torch_boc.transformers import BoCGeneration

options = {"return_tensors": "pt", "return_token_type_ids": False}
inputs = tokenizer("The statement is executed", **options)
recorder = BoCGeneration(model, tokenizer, prompt=True)
recorder.generate(**inputs, max_new_tokens=24, do_sample=True)
print(recorder.trace.text())
table = recorder.trace.to_frame()
columns = ["text", "confidence", "lost_coins", "entropy", "rank"]
table[~table["is_prompt"]][columns].head(8).round(3)

# %% [markdown]
# `recorder.trace.save("trace.html")` writes the text as a page, tinted by a quantity, with the
# rivals of each token.

# %% [markdown]
# ## The figure
#
# `score_tokens` gives the same numbers for a given text: the lost coins along a held-out help text.

# %%
from torch_boc.transformers import score_tokens

ids = bpe.encode(held_out[:3000]).ids[:37]
(record,) = score_tokens(model, torch.tensor([ids]))
figure = Figure(figsize=(9, 3.6), layout="constrained")
axes = figure.subplots()
axes.bar(range(36), record.numbers["lost_coins"][1:].numpy(), color="#56b4e9")
labels = [repr(tokenizer.decode([x]))[1:-1] for x in ids[1:]]
axes.set_xticks(range(36), labels, rotation=90, fontsize=7)
axes.set(
    yscale="log",
    ylim=(0.3, 100),
    xlabel="tokens of a held-out text",
    ylabel="coins lost by the likeliest token",
)
axes.set_title("Uncertainty of a small language model along a text")
figure
