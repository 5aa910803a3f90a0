"""The entry of the zoo on requests with an intent: MiniLM-L6 on CLINC150, trained by its example."""

from pathlib import Path
from typing import Any

import torch

from benchmarks.recipes.entries import Cache, Sets
from benchmarks.recipes.trained import ARRAYS, LICENCE, assemble, example, load_classifier
from torch_boc.data.sets import LogitSet

CARD = {
    "checkpoint": "last epoch, whose number was fixed before the run: the validation requests had no part in the "
    "choice, so test requests are exchangeable with them if CLINC150 drew both alike; the checkpoint is not "
    "redistributed",
    "data": "CLINC150 test against its out-of-scope requests",
    "sources": {
        "CLINC150 test": "the 4,500 test requests of the 150 intents of CLINC150 (Larson et al. 2019, data_full.json), "
        "in an order by chance, for the official one is that of the intents; classes are the intents in alphabetical "
        "order",
        "out-of-scope": "the 1,000 out-of-scope test requests of CLINC150, which people wrote; none of them has an "
        "intent among the 150; without targets",
        "validation": "the 3,000 validation requests of CLINC150, which the model was not trained on",
    },
    "arrays": ARRAYS,
    "made_by": "python -m benchmarks.recipes.zoo minilm-clinc150",
    "licence": LICENCE
    | {
        "encoder": "sentence-transformers/all-MiniLM-L6-v2, Apache-2.0; not redistributed",
        "data": "CLINC150 is available from its authors under CC BY 3.0; no text is redistributed",
    },
}
SETTINGS = (
    "the rate of the head, and embeddings of length 1, are one of six settings of a head on frozen embeddings, which "
    "were compared with the test sets in view"
)
TUNED = "; the encoder was fine-tuned in one run with settings fixed before"
HEAD = "with a linear head on the mean of its tokens, scaled to length 1"


def minilm_clinc150(data_dir: Path, cache_dir: Path, checkpoint: Path) -> tuple[Sets, dict[str, Any]]:
    """MiniLM-L6: CLINC150 test, out-of-scope test requests and validation requests."""
    module = example("lightning_minilm_clinc150")
    model, facts = load_classifier(module, checkpoint)
    tokenizer = module.AutoTokenizer.from_pretrained(checkpoint.parent / "tokenizer")
    texts = {part: module.Encoded(tokenizer, rows) for part, rows in module.read_intents(data_dir).items()}
    parts = {
        "CLINC150 test": ("id", texts["test"]),
        "out-of-scope": ("ood", texts["oos_test"]),
        "validation": ("calibration", texts["val"]),
        "training": ("", texts["train"]),
    }
    frozen = facts["training"]["encoder_lr"] == 0
    how = {
        "model": f"MiniLM-L6 sentence encoder, {'frozen' if frozen else 'fine-tuned'}, {HEAD}",
        "settings": SETTINGS if frozen else SETTINGS + TUNED,
        "trained_by": f"python examples/lightning_minilm_clinc150.py{' --frozen' if frozen else ''}",
    }
    cache = Cache(cache_dir / facts["checkpoint_sha256"][:12])
    sets = assemble(model, parts, cache, odin=False)
    return {role: [shuffled(data) for data in group] for role, group in sets.items()}, how | CARD | facts


def shuffled(data: LogitSet) -> LogitSet:
    """The set in an order by chance: halves of it, and streams made of it, then have all intents."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(42))
    target = None if data.target is None else data.target[order]
    return LogitSet(data.logits[order], target, {name: x[order] for name, x in data.columns.items()}, data.name)
