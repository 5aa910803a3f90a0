"""MiniLM-L6 on the 150 intents of CLINC150 with Lightning: the coherence gap each epoch, with out-of-scope requests.

    python examples/lightning_minilm_clinc150.py --smoke             # a minute on a CPU, a tiny model, made-up texts
    python examples/lightning_minilm_clinc150.py --data-dir data     # fine-tunes all of it: 20 minutes or so on a CPU
    python examples/lightning_minilm_clinc150.py --data-dir data --frozen    # only a linear head: a few minutes
    python examples/lightning_minilm_clinc150.py --data-dir data --news      # AG News against DBPedia instead
    python examples/lightning_minilm_clinc150.py --data-dir data --resume    # resumes after the last whole epoch

The data are the file data_full.json of CLINC150, from the folder data of its authors' repository, clinc/oos-eval on
GitHub; with --news they are those of lightning_roberta_agnews.py. MiniLM-L6 comes from the Hugging Face hub, or from a
folder: `--model FOLDER`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from common import arguments, report, trainer, warm_up_and_cosine
from lightning_roberta_agnews import Encoded, read_texts, train_tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, RandomSampler, Sampler
from trainer_roberta_agnews import Texts, made_up
from transformers import AutoTokenizer, BertConfig, BertModel
from transformers.modeling_outputs import SequenceClassifierOutput

from torch_boc.functional.summary import DEFAULT_KEYS
from torch_boc.lightning import BoCCallback

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
OPTIONS = {
    "--model": {"default": MINILM, "help": "name on the hub, or a folder; an encoder of BERT's kind"},
    "--encoder-lr": {"type": float, "default": 1e-4, "help": "of the encoder; --lr is that of the head"},
    "--frozen": {"action": "store_true", "help": "train a linear head only, on embeddings that are computed once"},
    "--news": {"action": "store_true", "help": "the 4 classes of AG News, with DBPedia as OOD data"},
    "--texts": {"type": int, "help": "train on this many texts only"},
}


class SentenceClassifier(nn.Module):
    """An encoder and a linear head on the mean of its tokens, scaled to length 1 as MiniLM's authors do."""

    def __init__(self, config: BertConfig, classes: int) -> None:
        super().__init__()
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(config.hidden_size, classes)

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(N, width) embeddings of texts."""
        hidden = self.encoder(input_ids, attention_mask).last_hidden_state
        return normalize((hidden * attention_mask.unsqueeze(-1)).sum(1), dim=1)

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *, embedding: Tensor | None = None
    ) -> SequenceClassifierOutput:
        """An output with `.logits`, of tokens or of embeddings."""
        embedding = self.embed(input_ids, attention_mask) if embedding is None else embedding
        return SequenceClassifierOutput(logits=self.head(embedding))


class Classifier(pl.LightningModule):
    """The classifier; where `encoder_lr` is 0, batches hold embeddings, and only the head is trained."""

    def __init__(self, lr: float, encoder_lr: float, classes: int, **shape: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = SentenceClassifier(BertConfig(**shape), classes)
        self.model.encoder.requires_grad_(encoder_lr > 0)

    def forward(self, batch: dict[str, Tensor]) -> SequenceClassifierOutput:
        """The model's output on a batch."""
        return self.model(**{name: x for name, x in batch.items() if name != "labels"})

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """The loss."""
        loss = cross_entropy(self(batch).logits, batch["labels"])
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Loader 0 has the validation requests; those of loader 1 are out of scope, and their labels mean nothing."""
        output = self(batch)
        if dataloader_idx == 0:
            self.log("val/loss", cross_entropy(output.logits, batch["labels"]), add_dataloader_idx=False)

    def configure_optimizers(self) -> dict:
        """AdamW with a warm-up and a cosine schedule; the head, whose inputs have length 1, takes a higher rate."""
        rates = {"head": self.hparams.lr, "encoder": self.hparams.encoder_lr}
        groups = [{"params": getattr(self.model, name).parameters(), "lr": lr} for name, lr in rates.items() if lr > 0]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.05)
        schedule = warm_up_and_cosine(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class SimilarLengths(Sampler[int]):
    """All samples in an order by chance in which the texts of a batch are of about the same length: less padding."""

    def __init__(self, tokens: list[list[int]], batch_size: int) -> None:
        self.lengths, self.batch_size = torch.tensor([len(x) for x in tokens]), batch_size

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        order = (self.lengths + 3 * torch.rand(len(self))).argsort()
        *batches, last = order.split(self.batch_size)
        for place in torch.randperm(len(batches)).tolist():
            yield from batches[place].tolist()
        yield from last.tolist()


def read_intents(folder: Path) -> dict[str, Texts]:
    """Texts and labels of train, val, test, oos_train, oos_val and oos_test; out-of-scope requests have the label 0."""
    path = folder / "data_full.json"
    if not path.exists():
        raise SystemExit(
            f"expected {path.resolve()}, got no such file: take it from the folder data of clinc/oos-eval on GitHub, "
            "and give its folder as --data-dir; --smoke needs no data"
        )
    parts = json.loads(path.read_text(encoding="utf-8"))
    names = sorted({intent for _, intent in parts["train"]})
    places = {name: place for place, name in enumerate(names)} | {"oos": 0}
    return {part: ([text for text, _ in rows], [places[name] for _, name in rows]) for part, rows in parts.items()}


def made_up_intents() -> dict[str, Texts]:
    """Stand-ins with four classes."""
    strange = (["An unrelated line about nothing in particular"] * 48, [0] * 48)
    return {"train": made_up(400, seed=0), "val": made_up(48, seed=1), "oos_val": strange}


def pretrained(name: str) -> tuple[Any, BertModel]:
    """The tokenizer and the encoder, from the hub or a folder."""
    try:
        return AutoTokenizer.from_pretrained(name), BertModel.from_pretrained(name, add_pooling_layer=False)
    except OSError as error:
        raise SystemExit(f"could not get {name} ({error}): give a folder that has it as --model FOLDER") from error


def tiny(texts: list[str]) -> tuple[Any, BertModel]:
    """A tokenizer trained on the texts, and an encoder with random weights."""
    tokenizer = train_tokenizer(texts, 400)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return tokenizer, BertModel(BertConfig(vocab_size=len(tokenizer), **shape), add_pooling_layer=False)


def shape_of(encoder: BertModel) -> dict[str, int]:
    """The numbers that an encoder of the same shape is made of."""
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return {name: getattr(encoder.config, name) for name in names}


@torch.no_grad()
def embedded(model: SentenceClassifier, data: Encoded, batch: int = 250) -> list[dict[str, Any]]:
    """The samples with their embeddings instead of tokens."""
    model.eval()
    loader = DataLoader(data, batch, collate_fn=data.collate)
    embeddings = torch.cat([model.embed(x["input_ids"], x["attention_mask"]) for x in loader])
    model.train()
    return [{"embedding": row, "labels": label} for row, label in zip(embeddings, data.labels, strict=True)]


def main() -> None:
    """Train, validate each epoch, and print the last values."""
    args = arguments(__doc__.splitlines()[0], OPTIONS, lr=0.03, batch_size=64)
    args.epochs = args.epochs or (20 if args.frozen else 3)
    encoder_lr = 0.0 if args.frozen else 5e-3 if args.smoke else args.encoder_lr
    pl.seed_everything(42)
    if args.smoke:
        parts = made_up_intents()
    elif args.news:
        parts = dict(zip(("train", "val", "oos_val"), read_texts(args.data_dir), strict=True))
    else:
        parts = read_intents(args.data_dir)
    parts["train"] = tuple(x[: args.texts] for x in parts["train"])
    tokenizer, encoder = tiny(parts["train"][0]) if args.smoke else pretrained(args.model)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(args.output_dir / "tokenizer")
    model = Classifier(args.lr, encoder_lr, max(parts["train"][1]) + 1, **shape_of(encoder))
    model.model.encoder.load_state_dict(encoder.state_dict())
    sets: list[Any] = [Encoded(tokenizer, parts[part]) for part in ("train", "val", "oos_val")]
    options: dict[str, Any] = {"batch_size": args.batch_size, "num_workers": args.workers}
    if args.frozen:
        sets = [embedded(model.model, data) for data in sets]
        by_chance: Sampler[int] = RandomSampler(sets[0])
    else:
        by_chance = SimilarLengths(sets[0].tokens, args.batch_size)
        options["collate_fn"] = sets[0].collate
    first, *others = (DataLoader(x, sampler=by_chance if x is sets[0] else None, **options) for x in sets)
    coherence = BoCCallback(
        keys=(*DEFAULT_KEYS, "forced_gap"),
        ood={1: "dbpedia" if args.news else "out-of-scope"},
        scores=("msp", "energy", "logit_gap", "gap"),
        page=True,
    )
    fitting = trainer(args, coherence)
    fitting.fit(model, first, others, ckpt_path="last" if args.resume else None)
    report(fitting.callback_metrics)


if __name__ == "__main__":
    main()
