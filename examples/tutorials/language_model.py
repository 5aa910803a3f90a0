# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Reading a language model
#
# How sure is a language model of each token, and where is it at a loss? This tutorial trains a very small model on the
# help texts that come with Python, in a few seconds and offline, and reads it. With a model of yours, replace the first
# two cells by `AutoModelForCausalLM.from_pretrained(...)` and its tokenizer.

# %%
import pydoc_data.topics

import torch
from matplotlib.figure import Figure
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

texts = [text for _, text in sorted(pydoc_data.topics.topics.items())]
held_out, training = "\n".join(texts[::8]), "\n".join(text for i, text in enumerate(texts) if i % 8)
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
special = ["<pad>", "</s>"]
bpe.train_from_iterator(
    [training],
    trainers.BpeTrainer(vocab_size=1000, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="</s>")
print(len(training.split()), "words to train on,", len(tokenizer), "tokens")

# %%
torch.manual_seed(0)
size = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192}
config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=256, pad_token_id=0, eos_token_id=1, **size)
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
# `evaluate_text` reads texts of any length: here help that the model has not seen, and the same words in another order.

# %%
from torch_boc.transformers import evaluate_text

words = held_out[:6000].split()
order = torch.randperm(len(words)).tolist()
pieces = {"help": " ".join(words), "shuffled": " ".join(words[i] for i in order)}
numbers = evaluate_text(model, tokenizer, pieces, context=128)
numbers.to_frame()[["perplexity", "accuracy", "confidence", "ece", "lost_coins"]].round(3)

# %% [markdown]
# ## How sure was it of each token that it wrote?
#
# `BoCGeneration` records the numbers while `generate` runs. `lost_coins` is the expected number of coins that the
# likeliest token loses against all others: it does not saturate, as confidence does.

# %%
from torch_boc.transformers import BoCGeneration

inputs = tokenizer("The statement is executed", return_tensors="pt", return_token_type_ids=False)
recorder = BoCGeneration(model, tokenizer, prompt=True)
recorder.generate(**inputs, max_new_tokens=24, do_sample=True)
print(recorder.trace.text())
table = recorder.trace.to_frame()
table[~table["is_prompt"]][["text", "confidence", "lost_coins", "entropy", "rank"]].head(8).round(3)

# %% [markdown]
# `recorder.trace.save("trace.html")` writes the text as a page, tinted by a quantity, with the rivals of each token.

# %% [markdown]
# ## The picture
#
# `score_tokens` gives the same numbers for a text that is there already: the lost coins along a help text that the
# model has not seen.

# %%
from torch_boc.transformers import score_tokens

ids = bpe.encode(held_out[:3000]).ids[:37]
(record,) = score_tokens(model, torch.tensor([ids]))
figure = Figure(figsize=(9, 3.6), layout="constrained")
axes = figure.subplots()
axes.bar(range(36), record.numbers["lost_coins"][1:].numpy(), color="#56b4e9")
axes.set_xticks(range(36), [repr(tokenizer.decode([x]))[1:-1] for x in ids[1:]], rotation=90, fontsize=7)
axes.set(
    yscale="log",
    ylim=(0.3, 100),
    xlabel="tokens of a text that was held out",
    ylabel="coins lost by the likeliest token",
)
axes.set_title("Where a small language model is at a loss")
figure
