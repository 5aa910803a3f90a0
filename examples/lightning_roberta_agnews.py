"""A compact RoBERTa on AG News from scratch with Lightning: the coherence gap each epoch, with DBPedia as OOD data.

    python examples/lightning_roberta_agnews.py --smoke           # a minute on a CPU, made-up headlines
    python examples/lightning_roberta_agnews.py --data-dir data   # train.csv, test.csv, dbpedia.csv: class, title, text
    python examples/lightning_roberta_agnews.py --data-dir data --resume    # resumes after the last whole epoch

The byte-level BPE tokenizer is trained on the training texts. 5,000 of them are held out for validation.
"""

import random
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from common import arguments, report, trainer, warm_up_and_cosine
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from trainer_roberta_agnews import Texts, from_folder, made_up
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

from torch_boc.functional.summary import DEFAULT_KEYS
from torch_boc.lightning import BoCCallback

LENGTH = 96
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


class Encoded(Dataset):
    """Token indices and labels, padded a batch at a time."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: Texts) -> None:
        self.tokenizer, self.labels = tokenizer, texts[1]
        self.tokens = tokenizer(texts[0], truncation=True, max_length=LENGTH)["input_ids"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": self.tokens[place], "labels": self.labels[place]}

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """The batch as the model takes it."""
        return dict(self.tokenizer.pad(rows, return_tensors="pt"))


class Classifier(pl.LightningModule):
    """A small RoBERTa, and the tokenizer it was trained with."""

    def __init__(self, lr: float, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        shape = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": 2 * width}
        config = RobertaConfig(
            vocab_size=vocabulary,
            max_position_embeddings=LENGTH + 2,
            num_attention_heads=width // 32,
            num_labels=4,
            **shape,
        )
        self.model = RobertaForSequenceClassification(config)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The model computes the loss."""
        loss: Tensor = self.model(**batch).loss
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Loader 0 is AG News; the labels of loader 1, DBPedia, mean nothing here."""
        output = self.model(batch["input_ids"], batch["attention_mask"])
        if dataloader_idx == 0:
            self.log("val/loss", cross_entropy(output.logits, batch["labels"]), add_dataloader_idx=False)

    def configure_optimizers(self) -> dict:
        """AdamW with a warm-up and a cosine schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=0.05)
        schedule = warm_up_and_cosine(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of RoBERTa's kind."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    special = list(SPECIAL.values())
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    )
    ends = [(token, special.index(token)) for token in ("<s>", "</s>")]
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, padding_side="right", **SPECIAL)


def read_texts(folder: Path) -> tuple[Texts, Texts, Texts]:
    """Training and validation texts of AG News, and texts of DBPedia."""
    texts, labels = from_folder(folder, "train")
    order = list(range(len(labels)))
    random.Random(42).shuffle(order)
    validation, rest = (([texts[i] for i in part], [labels[i] for i in part]) for part in (order[:5000], order[5000:]))
    strange, _ = from_folder(folder, "dbpedia")
    return rest, validation, (strange[:5000], [0] * 5000)


def main() -> None:
    """Train, validate each epoch, and print the last values."""
    args = arguments(__doc__.splitlines()[0], epochs=3, lr=1e-3, batch_size=64)
    pl.seed_everything(42)
    if args.smoke:
        args.lr = 5e-3
        train, validation = made_up(400, seed=0), made_up(48, seed=1)
        strange: Texts = (["An unrelated line about nothing in particular"] * 48, [0] * 48)
    else:
        train, validation, strange = read_texts(args.data_dir)
    tokenizer = train_tokenizer(train[0], 400 if args.smoke else 8000)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(args.output_dir / "tokenizer")
    sets = [Encoded(tokenizer, texts) for texts in (train, validation, strange)]
    first, *others = (
        DataLoader(x, args.batch_size, shuffle=x is sets[0], collate_fn=x.collate, num_workers=args.workers)
        for x in sets
    )
    coherence = BoCCallback(
        keys=(*DEFAULT_KEYS, "forced_gap"),
        ood={1: "dbpedia"},
        scores=("msp", "energy", "logit_gap", "gap"),
        page=True,
    )
    model = Classifier(args.lr, len(tokenizer), *((32, 1) if args.smoke else (128, 2)))
    fitting = trainer(args, coherence)
    fitting.fit(model, first, others, ckpt_path="last" if args.resume else None)
    report(fitting.callback_metrics)


if __name__ == "__main__":
    main()
