"""Precision flags and compiled modules change neither the sums' precision nor what is found."""

import pytest
import torch

from tests.lightning.cases import (
    LIBRARIES,
    QUIET,
    VAL,
    classifier,
    expected,
    loader,
    perceptron,
    trainer,
)
from torch_boc import BoCMetric
from torch_boc.lightning import BoCCallback

pytestmark = QUIET
library = LIBRARIES["lightning"]
KEYS = ("samples", "gap", "confidence", "accuracy")


@pytest.mark.filterwarnings("ignore:You passed `Trainer.accelerator='cpu', precision='16-mixed'.`")
@pytest.mark.parametrize("source", [None, "model.2"])
@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed", "16-mixed", "64-true"])
def test_precision_flags(precision, source, tmp_path):
    module, seen = classifier(library, perceptron(), gives="loss" if source else "logits"), []
    run = trainer(library, tmp_path, BoCCallback(logits=source, keys=KEYS), precision=precision)
    run.fit(module, loader(VAL), loader(VAL))
    module.model.register_forward_hook(lambda _, args, output: seen.append(output.detach().clone()))
    run.validate(module, loader(VAL), verbose=False)
    metric = BoCMetric()
    for logits, (_, target) in zip(seen, loader(VAL), strict=True):
        metric.update(logits, target)
    assert seen[0].dtype == (torch.float64 if precision == "64-true" else torch.bfloat16)
    values = {key: run.callback_metrics[f"val/boc/{key}"] for key in KEYS}
    assert {value.dtype for value in values.values()} == {torch.float64}
    torch.testing.assert_close(values, {key: metric.compute()[key] for key in KEYS}, rtol=1e-12, atol=0)


@pytest.mark.parametrize("source", [None, "model"])
@pytest.mark.parametrize("part", ["model", "module"])
def test_compiled(part, source, tmp_path):
    """A compiled network inside the module, or the whole module given to the Trainer compiled; validated twice."""
    torch.compiler.reset()
    module = classifier(library, perceptron(), gives="loss" if source else "logits")
    plain = classifier(library, perceptron())
    plain.load_state_dict(module.state_dict())
    if part == "model":
        module.model = torch.compile(module.model, backend="eager", fullgraph=True)
    given = torch.compile(module, backend="eager") if part == "module" else module
    run = trainer(library, tmp_path, BoCCallback(logits=source, keys=KEYS))
    for _ in range(2):
        run.validate(given, loader(VAL), verbose=False)
        values = {key: run.callback_metrics[f"val/boc/{key}"].item() for key in KEYS}
        want = expected(plain, VAL)
        assert values == pytest.approx({key: want[key] for key in KEYS})
