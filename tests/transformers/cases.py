"""Tiny models with random weights, their data, and the real Trainer around them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from torch_boc import BoCMetric
from torch_boc.transformers import BoCTrainerMetrics

VOCABULARY = 50
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def roberta(classes: int = 5, **options: Any) -> nn.Module:
    config = RobertaConfig(vocab_size=VOCABULARY, max_position_embeddings=40, num_labels=classes, **SIZE, **options)
    return sharpened(RobertaForSequenceClassification, config, "classifier.out_proj")


def bert_tagger(classes: int = 7) -> nn.Module:
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=40, num_labels=classes, **SIZE)
    return sharpened(BertForTokenClassification, config, "classifier")


def gpt2() -> nn.Module:
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=40, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
    )
    return sharpened(GPT2LMHeadModel, config, "lm_head")


def llama() -> nn.Module:
    return sharpened(LlamaForCausalLM, LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, **SIZE), "lm_head")


def sharpened(kind: Callable[[Any], nn.Module], config: Any, head: str) -> nn.Module:
    """A model whose head is large enough for logits of every confidence."""
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        model.get_submodule(head).weight.mul_(100)
    return model


def texts(number: int = 21, classes: int = 5) -> list[dict[str, Tensor]]:
    """Sequences of one length, with a label each."""
    random = torch.Generator().manual_seed(1)
    return [
        {"input_ids": torch.randint(3, VOCABULARY, (8,), generator=random), "labels": torch.tensor(i % classes)}
        for i in range(number)
    ]


def tagged(number: int = 21, classes: int | None = 7) -> list[dict[str, Tensor]]:
    """Sequences of many lengths, with a label for each token, every fifth of them ignored.

    Without classes the labels are the tokens themselves, as for language models.
    """
    random = torch.Generator().manual_seed(1)
    data = []
    for i in range(number):
        tokens = torch.randint(3, VOCABULARY, (3 + 7 * i % 11,), generator=random)
        labels = tokens if classes is None else torch.randint(classes, tokens.shape, generator=random)
        labels = labels.where(torch.arange(len(tokens)) % 5 != 0, -100)
        data.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels})
    return data


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """A batch, padded to its own longest sequence."""
    fill = {"input_ids": 1, "attention_mask": 0, "labels": -100}
    keys = [key for key in fill if key in rows[0]]
    return {
        key: torch.stack([row[key] for row in rows])
        if rows[0][key].ndim == 0
        else nn.utils.rnn.pad_sequence([row[key] for row in rows], batch_first=True, padding_value=fill[key])
        for key in keys
    }


def make_trainer(
    model: nn.Module, data: list, boc: BoCTrainerMetrics, folder: Any, train_dataset: Any = None, **options: Any
) -> Trainer:
    defaults = {"per_device_eval_batch_size": 4, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments(str(folder), **{**defaults, "dataloader_pin_memory": False, **options})
    return Trainer(model, arguments, collate, train_dataset=train_dataset, eval_dataset=data, **boc.arguments(model))


def by_hand(trainer: Trainer, *, causal: bool = False) -> dict[str, float]:
    """`BoCMetric` over the batches of the trainer, with the model called directly."""
    metric = BoCMetric(ignore_index=-100, sync_on_compute=False)
    model = trainer.model.eval()
    for batch in trainer.get_eval_dataloader():
        with torch.no_grad():
            logits, labels = model(**batch).logits, batch["labels"]
        if causal:
            logits, labels = logits[:, :-1], labels[:, 1:]
        metric.update(logits.movedim(-1, 1), labels)
    return {key: value.item() for key, value in metric.compute().items()}
