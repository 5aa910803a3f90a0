"""The bare callback in the ways that people write steps and batches: the numbers are those of plain formulas."""

import warnings
from collections import namedtuple
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torchmetrics
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from torch.utils.data import DataLoader

import torch_boc
from tests.lightning.cases import CLASSES, QUIET, Classifier, perceptron, trainer
from torch_boc.data import capture_losses
from torch_boc.kernels.dispatch import choose_kernels
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.step import watch_step

pytestmark = QUIET
SAMPLES, BATCH = 37, 16
GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(SAMPLES, 8, generator=GENERATOR), torch.randint(CLASSES, (SAMPLES,), generator=GENERATOR)
LABELLED = ("accuracy", "nll")


def reference(logits, target=None, ignore_index=-100):
    """Mean confidence, dominance, gap, and with targets accuracy and NLL, of rows of logits."""
    rows = logits.detach().double().movedim(1, -1).reshape(-1, logits.shape[1])
    labels = None if target is None else target.reshape(-1)
    if labels is not None:
        rows, labels = rows[labels != ignore_index], labels[labels != ignore_index]
    top, place = rows.max(-1, keepdim=True)
    confidence = rows.softmax(-1).amax(-1).mean()
    dominance = ((top - rows).sigmoid().sum(-1) - 0.5).mean() / (rows.shape[1] - 1)
    found = {"confidence": confidence, "dominance": dominance, "gap": dominance - confidence}
    if labels is not None:
        found["accuracy"] = (place[:, 0] == labels).double().mean()
        found["nll"] = functional.cross_entropy(rows, labels)
    return {key: value.item() for key, value in found.items()}


class Module(Classifier):
    """What people write; `step` is one of the styles below."""

    def __init__(self, step, model=None):
        super().__init__(model, rate=0.0)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.arange(1.0, CLASSES + 1))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=CLASSES)
        self.step = step

    def _step(self, batch):
        return self.step(self, batch)

    def training_step(self, batch, batch_idx):
        found = self._step(batch)
        loss = found["loss"] if isinstance(found, dict) else found[0] if isinstance(found, tuple) else found
        return self.model(X[:2]).sum() if loss is None or loss.ndim else loss


def batches(samples=None, size=BATCH):
    """A loader of (x, y), or of what `samples` makes of a batch."""
    pairs = list(zip(X, Y, strict=True))
    return DataLoader(pairs, batch_size=size, collate_fn=lambda rows: (samples or tuple)(stacked(rows)))


def stacked(rows):
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def logged(module, batch):
    module.log("val_loss", functional.cross_entropy(module(batch[0]), batch[1]), batch_size=len(batch[0]))


def loss_and_logits(module, batch):
    logits = module(batch[0])
    return functional.cross_entropy(logits, batch[1]), logits


def features(module, batch):
    inner = module.model[:2](batch[0])
    functional.cross_entropy(module.model[2](inner), batch[1])
    return inner


def by_hand(module, batch):
    return -module(batch[0]).log_softmax(1).gather(1, batch[1][:, None]).mean()


def mixup(module, batch):
    z = module(batch[0])
    return 0.3 * functional.cross_entropy(z, batch[1]) + 0.7 * functional.cross_entropy(z, batch[1].flip(0))


def with_metrics(module, batch):
    z = module.model(batch[0])
    module.accuracy(z, batch[1])
    module.log("acc", module.accuracy)
    loss = module.criterion(z, batch[1])
    module.log("loss", loss)
    return {"loss": loss, "preds": z.argmax(1), "targets": batch[1]}


class Broken(nn.Module):
    def forward(self, x):
        raise RuntimeError


def with_a_fallback(module, batch):
    with suppress(RuntimeError):
        Broken()(batch[0])
    return by_hand(module, batch)


def metric_only(module, batch):
    module.accuracy.update(module(batch[0]), batch[1])


def two_passes(module, batch):
    with torch.no_grad():
        functional.mse_loss(module(batch[0] * 2), module(batch[0]))
    return functional.cross_entropy(module(batch[0]), batch[1])


STYLES = {
    "logs the loss, returns nothing": logged,
    "returns the loss": lambda module, batch: loss_and_logits(module, batch)[0],
    "returns the logits": lambda module, batch: loss_and_logits(module, batch)[1],
    "returns the logits without a loss": lambda module, batch: module(batch[0]),
    "returns loss and logits": loss_and_logits,
    "returns a dict": lambda module, batch: dict(zip(("loss", "logits"), loss_and_logits(module, batch), strict=True)),
    "returns other things": with_metrics,
    "a weighted loss with smoothing": lambda module, batch: module.criterion(module(batch[0]), batch[1]),
    "log-probabilities": lambda module, batch: functional.nll_loss(module(batch[0]).log_softmax(1), batch[1]),
    "a loss for each sample": lambda module, batch: functional.cross_entropy(
        module(batch[0]), batch[1], reduction="none"
    ).mean(),
    "returns features": features,
    "a loss by hand": by_hand,
    "a metric alone": metric_only,
    "a module that fails": with_a_fallback,
    "two further passes": two_passes,
    "by keyword": lambda module, batch: functional.cross_entropy(target=batch[1], input=module.model(batch[0])),
    "mixup": mixup,
}


def assert_values(values, prefix, want):
    found = {key: values[f"{prefix}{key}"].item() for key in want}
    assert found == pytest.approx(want, rel=1e-5)


def expected_warning(words):
    return pytest.warns(UserWarning, match=words) if words else nullcontext()


def run_of(folder, **options):
    return trainer(folder, BoCCallback(**options))


def near(xy):
    return xy[0] * 0.1, xy[1] + 100  # classes that the model does not have


@pytest.mark.parametrize("target", ["foreign", "none"])
@pytest.mark.parametrize("style", STYLES)
def test_styles(style, target, tmp_path):
    """In training, validation and test; steps of the OOD loader compute no loss, and its targets are no classes."""
    module = Module(STYLES[style])

    def validation_step(batch, batch_idx, dataloader_idx=0):
        if dataloader_idx == 0:
            return module.step(module, batch)
        logits = module(batch[0] if isinstance(batch, tuple) else batch)
        return logits if style == "returns the logits" else None

    module.validation_step = module.test_step = validation_step
    loaders = [batches(), batches(near if target == "foreign" else lambda xy: xy[0] * 0.1)]
    fit_and_test(tmp_path, module, loaders, unlabelled=style == "mixup")


def fit_and_test(folder, module, loaders, unlabelled=False, train=True, **options):
    """The callback logs the numbers of plain formulas in every loop, and leaves nothing behind."""
    run = run_of(folder, every_n_train_steps=3 if train else None, ood={1: "near"}, **options)
    with expected_warning("of .*: no batch has a target" if unlabelled else ""):
        run.fit(module, loaders[0], loaders)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert not {"training_step", "validation_step", "test_step"} & {*vars(run.strategy)}
    values = run.callback_metrics
    with expected_warning("of .*: no batch has a target" if unlabelled else ""):
        run.test(module, loaders, verbose=False)
    values |= run.callback_metrics
    wanted = {"val": reference(perceptron()(X), Y), "test": reference(perceptron()(X), Y)}
    wanted |= {"train": reference(perceptron()(X[32:]), Y[32:])} if train else {}  # the third batch
    for stage, want in wanted.items():
        labelled = not unlabelled
        assert_values(values, f"{stage}/boc/", {key: x for key, x in want.items() if labelled or key not in LABELLED})
        assert (f"{stage}/boc/nll" in values) == labelled
        if stage != "train":
            assert_values(values, f"{stage}/boc/near/", reference(perceptron()(X * 0.1)))
            assert 0.5 < values[f"{stage}/boc/near/msp_auroc"] <= 1


@dataclass
class Sample:
    pixels: torch.Tensor
    category: torch.Tensor
    number: torch.Tensor


Pair = namedtuple("Pair", "features category")


def encoding(x, y):
    from transformers import BatchEncoding

    return BatchEncoding({"pixel_values": x, "category": y})


# What the loader gives for (x, y), and how the step reads (x, y) from it.
BATCHES = {
    "(x, y)": (tuple, tuple),
    "[x, y]": (list, tuple),
    "named": (lambda xy: {"image": xy[0], "label": xy[1]}, lambda b: b.values()),
    "other names": (lambda xy: {"pixels": xy[0], "category": xy[1]}, lambda b: b.values()),
    "two targets": (lambda xy: {"x": xy[0], "y": xy[1], "label": xy[1] // 2}, lambda b: (b["x"], b["y"])),
    "(x, y, index)": (lambda xy: (*xy, torch.arange(len(xy[1]))), lambda b: b[:2]),
    "(index, x, y)": (lambda xy: (torch.arange(len(xy[1])), *xy), lambda b: b[1:]),
    "(x, y, metadata)": (lambda xy: (*xy, {"id": ["a"] * len(xy[1])}), lambda b: b[:2]),
    "(x, y, group numbers)": (lambda xy: (*xy, torch.zeros(len(xy[1]), 3).long()), lambda b: b[:2]),
    "((x, x), y)": (lambda xy: ((xy[0], xy[0]), xy[1]), lambda b: (b[0][1], b[1])),
    "(x, (y, other))": (lambda xy: (xy[0], (xy[1], xy[1] // 2)), lambda b: (b[0], b[1][0])),
    "(x, dict)": (lambda xy: (xy[0], {"category": xy[1]}), lambda b: (b[0], b[1]["category"])),
    "nested dict": (lambda xy: {"in": {"x": xy[0]}, "out": {"y": xy[1]}}, lambda b: (b["in"]["x"], b["out"]["y"])),
    "one-hot": (lambda xy: (xy[0], functional.one_hot(xy[1], CLASSES)), lambda b: (b[0], b[1].argmax(1))),
    "one-hot for the loss": (lambda xy: (xy[0], functional.one_hot(xy[1], CLASSES).float()), tuple),
    "(N, 1)": (lambda xy: (xy[0], xy[1][:, None]), lambda b: (b[0], b[1].squeeze(1))),
    "floats": (lambda xy: (xy[0], xy[1].float()), lambda b: (b[0], b[1].long())),
    "bytes": (lambda xy: (xy[0], xy[1].byte()), lambda b: (b[0], b[1].long())),
    "dataclass": (lambda xy: Sample(*xy, torch.arange(len(xy[1]))), lambda b: (b.pixels, b.category)),
    "named tuple": (lambda xy: Pair(*xy), lambda b: (b.features, b.category)),
    "object": (lambda xy: SimpleNamespace(x=xy[0], truth=xy[1]), lambda b: (b.x, b.truth)),
    "BatchEncoding": (lambda xy: encoding(*xy), lambda b: (b["pixel_values"], b["category"])),
    "x with the target inside": (
        lambda xy: torch.cat([xy[0], xy[1][:, None]], 1),
        lambda b: (b[:, :8], b[:, 8].long()),
    ),
    "soft labels": (lambda xy: (xy[0], functional.one_hot(xy[1], CLASSES) * 0.8 + 0.2 / CLASSES), tuple),
}
SOURCES = {"bare": {}, "submodule": {"logits": "model"}}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", BATCHES)
def test_batches(kind, source, tmp_path):
    make, read = BATCHES[kind]
    module = Module(lambda module, batch: logged(module, (*read(batch),)))
    loaders = [batches(make), batches(lambda xy: make((xy[0] * 0.1, xy[1])))]
    # A training step calls the submodule twice.
    fit_and_test(tmp_path, module, loaders, kind == "soft labels", source == "bare", **SOURCES[source])


def multi_label(module, batch):
    return functional.binary_cross_entropy_with_logits(module(batch[0]), functional.one_hot(batch[1], CLASSES).float())


def contrastive(module, batch):
    z = functional.normalize(module(batch[0]), dim=1)
    return functional.cross_entropy(z @ z.T, torch.arange(len(z)))


def two_heads(module, batch):
    z, other = module.model(batch[0]), module.head(batch[0])
    return functional.cross_entropy(z, batch[1]) + functional.cross_entropy(other, batch[1] // 2)


def no_logits(module, batch):
    return {"loss": module.model(batch[0]).log_softmax(1).mean()}


# The step, the words of the error, and the remedy that it names, which must work.
REFUSED = {
    "multi-label": (multi_label, r"multi-label logits of shape \(16, 5\) in binary_cross_entropy_with_logits", None),
    "contrastive": (
        contrastive,
        "16 × 16 similarities with targets 0 to 15: cross_entropy is a contrastive loss",
        None,
    ),
    "two heads": (two_heads, r"cross_entropy of logits \(16, 5\), cross_entropy of logits \(16, 3\)", "head"),
    "no loss": (
        lambda module, batch: None,
        r"returned nothing\nseen: no loss of .*\n.*logits=lambda outputs, batch, module: ",
        None,
    ),
    "loss by hand, no target": (
        no_logits,
        r"a dict with 'loss': Tensor \(\)\nseen: module 'model' returning \(16, 5\)",
        "model",
    ),
    "two views": (
        lambda module, batch: by_hand(module, batch) + by_hand(module, (-batch[0], batch[1])),
        r"module 'Module' returning \(16, 5\), module 'Module' returning \(16, 5\)\n.*logits=lambda",
        None,
    ),
    "losses of two views": (
        lambda module, batch: (
            functional.cross_entropy(module(batch[0]), batch[1]) + functional.cross_entropy(module(-batch[0]), batch[1])
        ),
        r"cross_entropy of logits \(16, 5\), cross_entropy .*\n.*logits=lambda",
        None,
    ),
    "multi-label, returned": (
        lambda module, batch: {"loss": multi_label(module, batch), "logits": module.outputs[-1]},
        r"one class for each sample, got multi-label logits of shape \(16, 5\)",
        None,
    ),
    "probabilities": (lambda module, batch: module(batch[0]).softmax(1), "got probabilities", None),
}


@pytest.mark.parametrize("checks", [2, 0], ids=["sanity check", "no sanity check"])
@pytest.mark.parametrize("style", REFUSED)
def test_refused(style, checks, tmp_path):
    step, words, remedy = REFUSED[style]
    module = Module(step)
    module.head, module.outputs = perceptron(3), []
    module.model.register_forward_hook(lambda _, args, output: module.outputs.append(output))
    make = (lambda xy: (xy[0], "abc")) if "no" in style else None
    for stage in ("fit", "validate", "test"):
        run = trainer(tmp_path, BoCCallback(), num_sanity_val_steps=checks)
        with pytest.raises(TypeError, match=words) as error:
            getattr(run, stage)(module, *[batches()] * (stage == "fit"), batches(make))
        assert str(error.value).count("\n") <= 2
        assert (run.global_step == 0) == (checks > 0 or stage != "fit")
        assert remedy is None or f"BoCCallback(logits={remedy!r})" in str(error.value)


def test_named_multi_label_logits_are_refused(tmp_path):
    with pytest.raises(TypeError, match="got multi-label logits"):
        run_of(tmp_path, logits="model").validate(Module(multi_label), batches())


COMMONEST = [*STYLES][:5]
SHARED_STYLES = [*COMMONEST, "a loss by hand"]  # on two processes


@pytest.mark.parametrize(
    ("style", "part", "source"),
    [
        *((style, part, None) for style in COMMONEST for part in ("model", "model in place", "module")),
        *((COMMONEST[0], part, "model") for part in ("model", "module")),
    ],
)
def test_compiled_code_is_compiled_as_often_as_without_the_callback(style, part, source, tmp_path):
    counts = []
    for callbacks in ([], [BoCCallback(logits=source)]):
        torch.compiler.reset()
        counter = CompileCounterWithBackend("eager")
        module = given = Module(STYLES[style])
        if part == "model":
            module.model = torch.compile(module.model, backend=counter, fullgraph=True)
        elif part == "model in place":
            module.model.compile(backend=counter, fullgraph=True)
        else:
            given = torch.compile(module, backend=counter)
        run = trainer(tmp_path, *callbacks)
        for _ in range(2):
            run.validate(given, batches(), verbose=False)
        counts.append(counter.frame_count)
    assert_values(run.callback_metrics, "val/boc/", reference(perceptron()(X), Y))
    # Dynamo also compiles Lightning's `self.log`, once more for the values that the callback logs. torch 2.7 does not
    # count what is compiled in place.
    assert counts[1] <= counts[0] + (style == COMMONEST[0] and part == "module") or not counts[0]


@pytest.mark.parametrize("part", ["model", "model in place", "module"])
def test_an_ood_loader_without_a_loss_of_compiled_code(part, tmp_path):
    """A module that is compiled in place hides its calls: the error names it."""
    torch.compiler.reset()
    module = Module(lambda module, batch: logged(module, batch) if len(batch) > 1 else module.model(batch[0]).sum())
    if part == "model":
        module.model = torch.compile(module.model, backend="eager")
    elif part == "model in place":
        module.model.compile(backend="eager")
    given = torch.compile(module, backend="eager") if part == "module" else module
    loaders = [batches(), batches(lambda xy: (0.1 * xy[0],))]
    run = run_of(tmp_path, ood={1: "near"}, logits=None if part == "model" else "model")
    if part != "model":
        with pytest.raises(TypeError, match=r"loader 1 'near'(.|\n)*BoCCallback\(logits='model'\)"):
            run_of(tmp_path, ood={1: "near"}).validate(given, loaders, verbose=False)
        torch.compiler.reset()  # compiled code does not see a new hook; the user begins a new process
    run.validate(given, loaders, verbose=False)
    assert_values(run.callback_metrics, "val/boc/near/", reference(perceptron()(0.1 * X)))


@pytest.mark.filterwarnings("ignore:You passed `Trainer.accelerator='cpu', precision='16-mixed'.`")
@pytest.mark.parametrize(
    ("style", "source", "precision"),
    [
        *((style, None, "bf16-mixed") for style in COMMONEST),
        *((COMMONEST[0], source, x) for x in ("bf16-true", "16-mixed", "64-true") for source in (None, "model")),
    ],
)
def test_precision(style, source, precision, tmp_path):
    module, seen = Module(STYLES[style]), []
    module.model.register_forward_hook(lambda _, args, output: seen.append(output.detach()))
    run = trainer(tmp_path, BoCCallback(logits=source), precision=precision)
    run.validate(module, batches(), verbose=False)
    assert seen[0].dtype == (torch.float64 if precision == "64-true" else torch.bfloat16)
    assert_values(run.callback_metrics, "val/boc/", reference(torch.cat(seen), Y))


class TestBinary:
    @pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
    @pytest.mark.parametrize("returned", [False, True])
    def test_single_logits_need_no_argument(self, shape, returned, tmp_path):
        def step(module, batch):
            z = module(batch[0]).reshape(shape)
            loss = functional.binary_cross_entropy_with_logits(z, (batch[1] > 2).float().reshape(shape))
            return z if returned else module.log("loss", loss)

        run = run_of(tmp_path)
        run.validate(Module(step, perceptron(1)), batches(), verbose=False)
        z = perceptron(1)(X)
        want = reference(torch.cat([torch.zeros_like(z), z], 1), (Y > 2).long())
        assert_values(run.callback_metrics, "val/boc/", want)

    @pytest.mark.parametrize("returned", [False, True])
    def test_an_ood_loader_without_a_loss_is_read_as_the_first(self, returned, tmp_path):
        def step(module, batch):
            z = module(batch[0])
            if len(batch) > 1:
                functional.binary_cross_entropy_with_logits(z[:, 0], (batch[1] > 2).float())
            return z if returned else None

        run = run_of(tmp_path, ood={1: "near"})
        run.validate(Module(step, perceptron(1)), [batches(), batches(lambda xy: (0.1 * xy[0],))], verbose=False)
        z = perceptron(1)(0.1 * X)
        assert_values(run.callback_metrics, "val/boc/near/", reference(torch.cat([torch.zeros_like(z), z], 1)))

    def test_smoothed_targets_cost_what_needs_a_class(self, tmp_path):
        def step(module, batch):
            z = module(batch[0])[:, 0]
            return functional.binary_cross_entropy_with_logits(z, (batch[1] > 2) * 0.8 + 0.1)

        run = run_of(tmp_path)
        with expected_warning("no batch has a target"):
            run.validate(Module(step, perceptron(1)), batches(), verbose=False)
        assert "val/boc/gap" in run.callback_metrics
        assert "val/boc/nll" not in run.callback_metrics

    def test_single_logits_of_another_loss_need_the_argument(self, tmp_path):
        def step(module, batch):
            return functional.soft_margin_loss(module(batch[0])[:, 0], batch[1] * 2.0 - 1)

        module, make = Module(step, perceptron(1)), lambda xy: (xy[0], (xy[1] > 2).long())
        with pytest.raises(TypeError, match=r"got single logits of shape \(16, 1\); BoCCallback\(binary=True\)"):
            run_of(tmp_path).validate(module, batches(make))
        run = run_of(tmp_path, binary=True)
        run.validate(module, batches(make), verbose=False)
        z = perceptron(1)(X)
        assert_values(
            run.callback_metrics, "val/boc/", reference(torch.cat([torch.zeros_like(z), z], 1), make((X, Y))[1])
        )


@pytest.mark.parametrize("kind", ["script", "trace"])
def test_steps_may_call_modules_of_torchscript(kind, tmp_path):
    def step(module, batch):
        return by_hand(module.model, batch)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        model = torch.jit.script(perceptron()) if kind == "script" else torch.jit.trace(perceptron(), X[:2])
        run = run_of(tmp_path)
        run.validate(Module(step, model), batches(), verbose=False)
    assert_values(run.callback_metrics, "val/boc/", reference(perceptron()(X), Y))


def test_warnings_of_a_step_are_said_as_often_as_without_the_callback(tmp_path):
    def step(module, batch):
        warnings.warn("of the user", stacklevel=1)
        return by_hand(module, batch)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        run_of(tmp_path).validate(Module(step), batches(), verbose=False)
    assert sum("of the user" in str(x.message) for x in said) == 1


@pytest.mark.parametrize("way", ["LBFGS", "manual", "accumulated"])
def test_the_last_call_of_a_training_step_counts(way, tmp_path):
    module = Module(STYLES["returns the loss"])
    calls = []
    module.model.register_forward_hook(lambda _, args, output: calls.append(output.detach().clone()))
    if way == "LBFGS":
        module.configure_optimizers = lambda: torch.optim.LBFGS(module.parameters(), max_iter=3)
    elif way == "manual":
        module.automatic_optimization = False
        step = module.training_step
        module.training_step = lambda batch, batch_idx: module.manual_backward(step(batch, batch_idx))
    options = {"limit_val_batches": 0, "accumulate_grad_batches": 2 if way == "accumulated" else 1}
    run = trainer(tmp_path, BoCCallback(every_n_train_steps=1), **options)
    run.fit(module, batches(), batches())
    assert_values(run.callback_metrics, "train/boc/", reference(calls[-1], Y[32:]))


def test_a_training_step_with_several_losses_is_refused_at_once(tmp_path):
    module = Module(lambda module, batch: logged(module, batch))
    module.head = perceptron(3)
    module.training_step = lambda batch, batch_idx: two_heads(module, batch)
    run = trainer(tmp_path, BoCCallback(every_n_train_steps=1000))
    with pytest.raises(TypeError, match="expected logits of one loss"):
        run.fit(module, batches(), batches())
    assert run.global_step == 1


def test_targets_of_the_batch_in_order_are_no_contrastive_loss(tmp_path):
    """As many classes as samples, with targets 0 to 4: those of the batch name classes."""
    ordered = torch.arange(CLASSES)
    run = run_of(tmp_path)
    run.validate(Module(logged), DataLoader(list(zip(X, ordered, strict=False)), batch_size=CLASSES), verbose=False)
    assert_values(run.callback_metrics, "val/boc/", reference(perceptron()(X[:CLASSES]), ordered))


def test_classes_results_and_progress_bar(tmp_path, monkeypatch):
    lines = []  # the logger of Lightning is silent where nobody listened at its import
    monkeypatch.setattr("torch_boc.lightning.logit_source.log_info", lines.append)
    callback = BoCCallback(num_classes=CLASSES, prog_bar=("nll",))
    run = trainer(tmp_path, callback)
    run.fit(Module(logged), batches(), batches())
    assert lines == ["torch_boc: the logits of 5 classes are from cross_entropy"]
    assert callback.results["val/boc/nll"] == pytest.approx(reference(perceptron()(X), Y)["nll"], rel=1e-5)
    assert "val/boc/nll" in run.progress_bar_metrics
    assert "val/boc/gap" not in run.progress_bar_metrics
    run.test(run.lightning_module, batches(), verbose=False)
    assert {key.split("/")[0] for key in callback.results} == {"test"}
    embeddings = Module(lambda module, batch: {"logits": module.model[:2](batch[0])})
    with pytest.raises(TypeError, match=r"expected logits with 5 classes, got 16"):
        trainer(tmp_path, BoCCallback(num_classes=CLASSES)).validate(embeddings, batches())
    with pytest.raises(ValueError, match="expected prog_bar as a list of names among accuracy"):
        BoCCallback(prog_bar=("samples",))


def test_strategies_and_losses_of_others_stay_as_they_are(tmp_path):
    """After errors in a step, with two callbacks, and with a mode of somebody else around."""
    callbacks = BoCCallback(), BoCCallback(prefix="other", logits="model")
    run = trainer(tmp_path, *callbacks)
    module = Module(lambda module, batch: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            run.validate(module, batches(), verbose=False)
        assert torch.overrides._get_current_function_mode() is None
    module.step = logged
    with capture_losses() as losses:
        run.validate(module, batches(), verbose=False)
    assert len(losses.calls) == 3
    assert run.callback_metrics["val/other/nll"] == run.callback_metrics["val/boc/nll"]
    with pytest.raises((ValueError, RuntimeError), match=r"more than one stateful callback of type `BoCCallback`"):
        trainer(tmp_path, BoCCallback(), BoCCallback())
    assert not {"training_step", "validation_step", "test_step"} & {*vars(run.strategy)}
    assert not module.model._forward_hooks


def test_the_same_warning_comes_in_every_run(tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(2):
            run_of(tmp_path).validate(Module(STYLES["mixup"]), batches(), verbose=False)
    assert sum("no batch has a target" in str(x.message) for x in said) == 2


@pytest.mark.skipif(choose_kernels(X) is None, reason="there is no native code")
def test_logits_are_checked_once_in_a_batch(tmp_path, monkeypatch):
    checks, check = [], torch_boc.functional.checks.check_logits
    for module in ("checks", "tally"):
        name = f"torch_boc.functional.{module}.check_logits"
        monkeypatch.setattr(name, lambda *args: checks.append(1) or check(*args))
    run_of(tmp_path).validate(Module(logged), batches(), verbose=False)
    assert len(checks) == 3


def test_architectures(tmp_path):
    """Networks of torchvision and transformers, with their own losses: the NLL is the loss that they give."""
    from torchvision.models import resnet18
    from torchvision.models.vision_transformer import VisionTransformer

    vit = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    images = DataLoader(list(zip(torch.randn(6, 3, 32, 32), Y % 4, strict=False)), batch_size=3)
    for model in (VisionTransformer(**vit, num_classes=4), resnet18(num_classes=4)):
        check(model, images, lambda module, batch: functional.cross_entropy(module(batch[0]), batch[1]), tmp_path)


def check(model, loader, loss, folder, **options):
    losses = []
    module = Module(lambda module, batch: losses.append(loss(module, batch)), model)
    run = run_of(folder, **options)
    run.validate(module, loader, verbose=False)
    assert run.callback_metrics["val/boc/nll"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    return run.callback_metrics


def test_segmentation(tmp_path):
    """Pixels that the loss ignores count nowhere."""
    model = nn.Conv2d(3, 4, 3, padding=1)
    images, masks = torch.randn(6, 3, 8, 8), torch.randint(4, (6, 8, 8))
    masks[:, :2] = 255
    loader = DataLoader(list(zip(images, masks, strict=True)), batch_size=3)
    found = check(model, loader, lambda m, b: functional.cross_entropy(m(b[0]), b[1], ignore_index=255), tmp_path)
    assert_values(found, "val/boc/", reference(model(images), masks, 255))
    module = Module(lambda m, b: functional.cross_entropy(m(b[0]), b[1], ignore_index=255), model)
    run = run_of(tmp_path, ignore_index=-1)  # what the user says wins
    with pytest.warns(UserWarning, match=r"targets in .* outside"):
        run.validate(module, loader, verbose=False)
    assert run.callback_metrics["val/boc/nll"].isnan()


@pytest.mark.parametrize("source", [None, "model"])
def test_as_many_tokens_as_classes(source, tmp_path):
    """The loss implies the class axis, not the shape; an explicit one wins."""
    tokens, labels = torch.randn(6, CLASSES, 8), torch.randint(CLASSES, (6, CLASSES))

    def step(module, batch):
        logits = module.model(batch[0])
        functional.cross_entropy(logits.transpose(1, 2), batch[1])
        return logits

    logits = perceptron()(tokens)
    for dim, rows in ((None, logits.transpose(1, 2)), (-1, logits.transpose(1, 2)), (1, logits)):
        run = run_of(tmp_path, logits=source, dim=dim)
        run.validate(Module(step), DataLoader(list(zip(tokens, labels, strict=True)), batch_size=3), verbose=False)
        assert_values(run.callback_metrics, "val/boc/", reference(rows, labels))


def test_copies_of_one_of_several_logits(tmp_path):
    """A copy in another precision may be that of either loss: the target is that of the batch."""
    other = perceptron()

    def step(module, batch):
        logits = module.model(batch[0])
        functional.cross_entropy(other(-batch[0]), batch[1])
        functional.cross_entropy(logits, batch[1])
        return {"logits": logits.double()}

    run = run_of(tmp_path)
    run.validate(Module(step), batches(), verbose=False)
    assert_values(run.callback_metrics, "val/boc/", reference(perceptron()(X), Y))


@pytest.mark.parametrize("kind", ["sequences", "tokens", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers(kind, dtype, tmp_path):
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        RobertaConfig,
        RobertaForSequenceClassification,
        RobertaForTokenClassification,
    )

    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    roberta = RobertaConfig(vocab_size=50, num_labels=4, **size)
    tokens = torch.randint(2, 50, (6, 9))
    if kind == "sequences":
        model, labels = RobertaForSequenceClassification(roberta), Y[:6] % 4
    elif kind == "tokens":
        model, labels = RobertaForTokenClassification(roberta), tokens % 4
        labels[:, 6:] = -100
    else:
        model, labels = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)), tokens.clone()
        labels[:, :2] = -100
    data = [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]
    for returned in (False, True):
        losses = []

        def step(module, batch, returned=returned, losses=losses):
            output = module.model(**batch)
            losses.append(output.loss.float())
            return {"logits": output.logits} if returned else None

        module, run = Module(step, model.to(dtype)), run_of(tmp_path)
        run.validate(module, DataLoader(data, batch_size=6), verbose=False)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        assert run.callback_metrics["val/boc/nll"].item() == pytest.approx(losses[0].item(), rel=tolerance)


@pytest.mark.parametrize("patched", [False, True], ids=["a method", "patched by others"])
def test_a_step_is_as_before_when_the_last_watcher_ends(patched):
    class Strategy:
        def validation_step(self):
            return "step"

    strategy, others = Strategy(), lambda: "patched"
    if patched:
        strategy.validation_step = others
    ends = [watch_step(strategy, "validation_step", nullcontext) for _ in range(2)]
    assert strategy.validation_step() == ("patched" if patched else "step")
    for end in ends:
        end()
    assert vars(strategy) == ({"validation_step": others} if patched else {})
