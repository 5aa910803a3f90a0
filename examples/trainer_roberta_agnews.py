"""Fine-tune RoBERTa on AG News with `transformers.Trainer`, and watch its coherence after every epoch.

    python examples/trainer_roberta_agnews.py --smoke              # a tiny model on made-up headlines, no downloads
    python examples/trainer_roberta_agnews.py                      # roberta-base on AG News, both from the hub
    python examples/trainer_roberta_agnews.py --data-dir ag_news   # train.csv and test.csv: class 1 to 4, title, text
    python examples/trainer_roberta_agnews.py --model textattack/roberta-base-ag-news --epochs 0    # evaluate only

Needs `pip install 'torch-boc[transformers]'`, and `pip install datasets` to read from the hub.
"""

import argparse
import csv
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from torch_boc.transformers import BoCTrainerMetrics

Texts = tuple[list[str], list[int]]

TOPICS = {
    "World": ["minister", "treaty", "election", "border", "embassy", "ceasefire"],
    "Sports": ["striker", "playoff", "coach", "medal", "stadium", "season"],
    "Business": ["shares", "merger", "profit", "bank", "oil prices", "investors"],
    "Sci/Tech": ["software", "galaxy", "chip", "browser", "genome", "satellite"],
}


def accuracy(outcome: Any) -> dict[str, float]:
    """Your own metrics stay unchanged."""
    logits, labels = outcome
    return {"accuracy": (np.argmax(logits, axis=-1) == labels).mean()}


def run(model: Any, tokenizer: Any, train: Texts, test: Texts, arguments: TrainingArguments) -> dict[str, float]:
    """Train, evaluate after every epoch, and return the last results."""
    boc = BoCTrainerMetrics(compute_metrics=accuracy)
    trainer = Trainer(
        model,
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encode(tokenizer, *train),
        eval_dataset=encode(tokenizer, *test),
        **boc.arguments(model),  # this line is all that the probe needs
    )
    if arguments.num_train_epochs > 0:
        trainer.train()
    return trainer.evaluate()


def encode(tokenizer: Any, texts: list[str], labels: list[int]) -> list[dict[str, Any]]:
    tokens = tokenizer(texts, truncation=True, max_length=128)["input_ids"]
    return [{"input_ids": ids, "labels": label} for ids, label in zip(tokens, labels, strict=True)]


def from_hub(split: str) -> Texts:
    try:
        from datasets import load_dataset

        data = load_dataset("fancyzhx/ag_news", split=split)
    except (ImportError, OSError) as error:  # no such library, or no connection
        raise SystemExit(
            f"expected AG News from the hub, got {type(error).__name__}: {error}\n"
            "install it with pip install datasets, or give a folder with train.csv and test.csv as --data-dir"
        ) from error
    return list(data["text"]), list(data["label"])


def from_folder(folder: Path, split: str) -> Texts:
    if not (folder / f"{split}.csv").exists():
        raise SystemExit(
            f"expected {folder / split}.csv, got no such file; put the texts there (class, title, text), and give the "
            "folder as --data-dir; --smoke needs no data"
        )
    with (folder / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row[0].isdigit()]  # some copies have a header
    return [f"{title} {text}" for _, title, text in rows], [int(label) - 1 for label, *_ in rows]


def made_up(number: int, seed: int) -> Texts:
    """Headlines with two words of their topic, and often one of another."""
    draw = random.Random(seed)
    words = list(TOPICS.values())
    labels = [draw.randrange(len(words)) for _ in range(number)]
    texts = [
        f"The {first} and the {second}: what the {draw.choice(draw.choice(words))} means"
        for first, second in (draw.sample(words[label], 2) for label in labels)
    ]
    return texts, labels


def tiny_roberta(texts: list[str]) -> tuple[Any, Any]:
    """A model with random weights, and a tokenizer trained on the spot."""
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(special_tokens=list(special.values()), show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    size["initializer_range"] = 0.1  # so narrow a model learns nothing from RoBERTa's 0.02
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=130, num_labels=len(TOPICS), **size)
    return RobertaForSequenceClassification(config), tokenizer


def smoke(options: argparse.Namespace) -> dict[str, float]:
    set_seed(0)
    torch.set_num_threads(1)  # for a model this small, more threads are slower
    train, test = made_up(2000, seed=0), made_up(200, seed=1)
    model, tokenizer = tiny_roberta(train[0])
    with tempfile.TemporaryDirectory() as folder:
        fast = {"learning_rate": 2e-3, "use_cpu": True, "disable_tqdm": True}
        return run(model, tokenizer, train, test, training_arguments(folder, options, **fast))


def real(options: argparse.Namespace) -> dict[str, float]:
    train, test = (
        from_folder(options.data_dir, split) if options.data_dir else from_hub(split) for split in ("train", "test")
    )
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(TOPICS))
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    return run(model, tokenizer, train, test, training_arguments(options.output_dir, options, learning_rate=2e-5))


def training_arguments(folder: str, options: argparse.Namespace, **more: Any) -> TrainingArguments:
    return TrainingArguments(
        folder,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.batch_size,
        eval_strategy="epoch",
        save_strategy="no",
        dataloader_pin_memory=torch.cuda.is_available(),
        **more,
    )


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="half a minute on a CPU, without downloads")
    parser.add_argument("--model", default="roberta-base", help="name on the hub, or a folder")
    parser.add_argument("--data-dir", type=Path, help="folder with train.csv and test.csv; by default the hub")
    parser.add_argument("--output-dir", default="roberta_agnews")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args(arguments)
    results = smoke(options) if options.smoke else real(options)
    for name, value in results.items():
        print(f"{name:28} {value:.4f}")
    return results


if __name__ == "__main__":
    main()
