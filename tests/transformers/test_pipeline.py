"""A `BoCClassifier` around a model of transformers stands where the model stood: in pipelines, and in `generate`."""

import copy
import pickle

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast, pipeline
from transformers.modeling_outputs import SequenceClassifierOutput

from tests.transformers.cases import VOCABULARY, bert_tagger, gpt2, masked_bert, roberta
from torch_boc import BoCClassifier, ConformalTest
from torch_boc.nn import BoCOutput, ProbeOutput
from torch_boc.transformers import BoCGeneration

TEXTS = ["w5 w9 w12", "w7", "w30 w31 w8 w6 w44", "w3 w3"]


def tokenizer():
    words = ["[PAD]", "[UNK]", "[EOS]", "[MASK]", *(f"w{i}" for i in range(4, VOCABULARY))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[EOS]", "mask_token": "[MASK]"}
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=core, model_input_names=names, **special)


@pytest.mark.parametrize(
    ("task", "make", "texts", "options"),
    [
        ("text-classification", roberta, TEXTS, {"top_k": None}),
        ("token-classification", bert_tagger, TEXTS, {"ignore_labels": []}),
        ("fill-mask", masked_bert, [f"{text} [MASK] w4" for text in TEXTS], {"top_k": 3}),
    ],
)
def test_pipelines(task, make, texts, options):
    """The columns of a conformal test are cut into samples, too."""
    model = make().eval()
    test = ConformalTest().calibrate(torch.randn(99, 5)) if make is roberta else None
    expected = pipeline(task, model=model, tokenizer=tokenizer(), device="cpu")(texts, batch_size=1, **options)
    work = pipeline(task, model=BoCClassifier(model, dim=-1, conformal_test=test), tokenizer=tokenizer(), device="cpu")
    (found, form), (wanted, same) = tree_flatten(work(texts, batch_size=3, **options)), tree_flatten(expected)
    assert form == same
    for one, other in zip(found, wanted, strict=True):
        assert one == (other if isinstance(other, str | int) else pytest.approx(other, rel=1e-5))
    assert "Pipeline" in repr(work)  # which asks the model for its modalities


def test_generate_and_attributes_are_those_of_the_model(tmp_path):
    model = gpt2().eval()
    causal = BoCClassifier(model)
    options = {"input_ids": torch.tensor([[5, 6, 7]]), "max_new_tokens": 4, "pad_token_id": 0, "eos_token_id": None}
    g = BoCGeneration(causal)
    assert torch.equal(g.generate(**options), model.generate(**options))
    assert len(g.trace.records[0]) == 4
    model = roberta().eval()
    classifier = BoCClassifier(model)
    assert classifier.config is model.config
    classifier.save_pretrained(tmp_path)
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(saved[name], x) for name, x in model.state_dict().items())
    assert not hasattr(BoCClassifier(nn.Linear(2, 3)), "generate")


def test_the_output_is_a_mapping_as_well():
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    with torch.no_grad():
        result = BoCClassifier(roberta().eval())(input_ids=ids, labels=torch.tensor([0, 1]), return_dict=True)
    assert isinstance(result.output, SequenceClassifierOutput)
    assert list(result) == ["loss", "logits", *ProbeOutput._fields]
    assert result["logits"] is result.logits is result.output.logits is result[1]
    assert result["gap"] is result.gap is result.probe.gap
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert isinstance(other, BoCOutput)
        assert list(other) == list(result)
    doubled = tree_map(lambda x: x * 2, result)  # as accelerate and DistributedDataParallel do
    torch.testing.assert_close(doubled.gap, result.gap * 2)
