"""Tiny models with random weights, a tokenizer of bytes, their data, and the real Trainer around them."""

from functools import cache

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn

from torch_boc import BoCMetric
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import CLASSWISE, RISK_KEYS

SUMMARY = tuple(boc_summary(torch.zeros(1, 3)))
EVERY = (*SUMMARY, *RISK_KEYS, CLASSWISE)
VOCABULARY = 50
PAD = 0
# Enough of them that random texts end at different lengths.
EOS = [2, 7, 11, 19, 23, 31, 41]
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
TOKENS = 2 + len(BYTES)


def tiny(family, ending="ForCausalLM", head="lm_head", *, scale=100.0, **options):
    """A model of random weights, whose head is large enough for logits of every confidence."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{"vocab_size": VOCABULARY, **options})
    model = getattr(transformers, family + ending)(config)
    model.get_submodule(head).weight.detach().mul_(scale)
    return model


def roberta(classes=5, **options):
    size = {"max_position_embeddings": 40, "num_labels": classes, **SIZE}
    return tiny("Roberta", "ForSequenceClassification", "classifier.out_proj", **size, **options)


def bert_tagger(classes=7):
    return tiny("Bert", "ForTokenClassification", "classifier", max_position_embeddings=40, num_labels=classes, **SIZE)


def bert(**options):
    """A model for language that sees later tokens too, unless it is a decoder."""
    return tiny("Bert", "LMHeadModel", "cls.predictions.decoder", **SIZE, **options)


def masked_bert():
    return tiny("Bert", "ForMaskedLM", "cls.predictions.decoder", scale=1.0, max_position_embeddings=40, **SIZE)


def gpt2(context=40, vocabulary=VOCABULARY):
    size = {"n_positions": context, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return tiny("GPT2", "LMHeadModel", vocab_size=vocabulary, bos_token_id=1, eos_token_id=2, **size)


def llama():
    return tiny("Llama", num_key_value_heads=2, **SIZE)


def t5():
    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return tiny("T5", "ForConditionalGeneration", "shared", scale=3.0, decoder_start_token_id=0, **size)


def generating(model):
    """The model in evaluation mode, which never emits the padding token by itself."""

    def unlikely(module, args, logits):
        return torch.cat([torch.full_like(logits[..., :1], -99.0), logits[..., 1:]], -1)

    model.get_submodule("lm_head").register_forward_hook(unlikely)
    return model.eval()


def prompts(lengths=(5, 5, 5), seed=0):
    """Prompts of these lengths, with padding before the short ones."""
    longest = max(lengths)
    ids = torch.randint(3, VOCABULARY, (len(lengths), longest), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(longest) >= longest - torch.tensor(lengths).unsqueeze(1)
    return {"input_ids": ids.where(mask, PAD), "attention_mask": mask.long()}


@cache
def byte_tokenizer(adds_bos=False):
    """Every byte is a token; <s> is 0 and </s> is 1."""
    tokenizer = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, **{x: 2 + i for i, x in enumerate(BYTES)}}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        ends = [("<s>", 0), ("</s>", 1)]
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def byte_model(context=64, vocabulary=TOKENS):
    """A GPT-2 for the tokenizer of bytes."""
    return gpt2(context, vocabulary).eval()


def prose(length=300):
    """Lines of words, with some letters of more than one byte."""
    letters = "eeettaaoinshrdlu äé  \n"
    random = torch.Generator().manual_seed(3)
    return "".join(letters[int(i)] for i in torch.randint(len(letters), (length,), generator=random))


def forward(model, ids):
    """The logits of one plain forward over one text, (T, V)."""
    with torch.no_grad():
        return model(input_ids=torch.as_tensor(ids)[None]).logits[0]


def texts(number=21, classes=5):
    """Sequences of one length, with a label each."""
    random = torch.Generator().manual_seed(1)
    rows = torch.randint(3, VOCABULARY, (number, 8), generator=random)
    return [{"input_ids": row, "labels": torch.tensor(i % classes)} for i, row in enumerate(rows)]


def tagged(number=21, classes=7):
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


def collate(rows):
    """A batch, padded to its own longest sequence."""
    fill = {"input_ids": 1, "attention_mask": 0, "labels": -100}
    padded = nn.utils.rnn.pad_sequence
    return {
        key: torch.stack([row[key] for row in rows])
        if rows[0][key].ndim == 0
        else padded([row[key] for row in rows], batch_first=True, padding_value=fill[key])
        for key in fill
        if key in rows[0]
    }


def make_trainer(model, data, boc, folder, train_dataset=None, **options):
    defaults = {"per_device_eval_batch_size": 4, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    arguments = transformers.TrainingArguments(str(folder), **{**defaults, "dataloader_pin_memory": False, **options})
    given = {} if boc is None else boc.arguments(model)
    return transformers.Trainer(model, arguments, collate, train_dataset=train_dataset, eval_dataset=data, **given)


def by_hand(trainer, *, causal=False):
    """`BoCMetric` over the batches of the trainer, with the model called directly."""
    metric = BoCMetric(keys=EVERY, ignore_index=-100, sync_on_compute=False)
    model = trainer.model.eval()
    for batch in trainer.get_eval_dataloader():
        with torch.no_grad():
            logits, labels = model(**batch).logits, batch["labels"]
        if causal:
            logits, labels = logits[:, :-1], labels[:, 1:]
        metric.update(logits.movedim(-1, 1), labels)
    return {key: value.item() for key, value in metric.compute().items()}
