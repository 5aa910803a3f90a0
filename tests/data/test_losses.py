"""The losses that are computed in a block are seen with their logits and targets, in eager and in compiled code."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional

from torch_boc.data import capture_losses
from torch_boc.data.losses import class_targets

LOGITS, TARGET = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, -100, 1])
KNOWN = TARGET.clamp_min(0)
BINARY = KNOWN.clamp_max(1).float()


def only(run):
    with capture_losses() as losses:
        run()
    (call,) = losses.calls
    return call


LOSSES = {
    "a function": lambda: functional.cross_entropy(LOGITS, TARGET),
    "by keyword": lambda: functional.cross_entropy(target=TARGET, input=LOGITS, reduction="none"),
    "a module": lambda: nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.ones(4))(LOGITS, TARGET),
    "log-probabilities": lambda: functional.nll_loss(LOGITS.log_softmax(1), TARGET),
}


@pytest.mark.parametrize("run", LOSSES.values(), ids=LOSSES.keys())
def test_logits_and_targets_are_seen(run):
    call = only(run)
    torch.testing.assert_close(call.logits.softmax(1), LOGITS.softmax(1))
    assert call.target.equal(TARGET)
    assert class_targets(call)[0] is call.target
    assert (call.ignore_index, call.binary, call.refused) == (-100, False, "")


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 1, 1, 1), (6, 5, 1)])
def test_one_logit_per_sample_is_binary(shape):
    logits = torch.randn(shape)
    call = only(lambda: nn.BCEWithLogitsLoss()(logits, torch.ones(shape)))
    assert call.binary
    assert call.ignore_index is None
    assert call.logits.data_ptr() == logits.data_ptr()  # nothing is copied


def test_multi_label_logits_are_refused_by_name():
    call = only(lambda: functional.binary_cross_entropy_with_logits(LOGITS, LOGITS.sigmoid()))
    assert call.refused == "multi-label logits of shape (6, 4) in binary_cross_entropy_with_logits"


def test_axes_samples_and_ignore_index():
    segments, masks = torch.randn(2, 4, 3, 5), torch.zeros(2, 3, 5).long()
    call = only(lambda: functional.cross_entropy(segments, masks, ignore_index=255))
    assert (call.logits.shape, call.ignore_index) == (segments.shape, 255)
    assert only(lambda: functional.cross_entropy(segments, masks, None, None, 7)).ignore_index == 7
    single = only(lambda: functional.cross_entropy(LOGITS[0], TARGET[0]))
    assert single.logits.equal(LOGITS[:1])
    assert single.target.equal(TARGET[:1])


def test_probabilities_of_classes_name_no_class():
    soft = only(lambda: functional.cross_entropy(LOGITS, LOGITS.softmax(1)))
    assert soft.target.shape == LOGITS.shape
    assert class_targets(soft) == (None, False)


def test_the_same_logits_count_once():
    z = nn.Parameter(LOGITS.clone())
    with capture_losses() as losses:
        functional.cross_entropy(z, KNOWN), functional.cross_entropy(z.view(-1, 4), KNOWN, label_smoothing=0.1)
        functional.cross_entropy(LOGITS, KNOWN), functional.cross_entropy(LOGITS, KNOWN.flip(0))  # mixup
        functional.cross_entropy(LOGITS[:, :2], BINARY.long())
    same, mixed, head = losses.calls
    assert same.target.equal(KNOWN)
    assert not same.logits.requires_grad
    assert mixed.target is None
    assert head.logits.shape == (6, 2)


@pytest.mark.parametrize("change", [lambda z, y: z.zero_(), lambda z, y: y.zero_()], ids=["logits", "targets"])
def test_what_is_changed_after_the_loss_is_refused(change):
    z, y = LOGITS.clone(), KNOWN.clone()
    call = only(lambda: (functional.cross_entropy(z, y), change(z, y)))
    assert call.refused == "logits or targets of cross_entropy that were changed in place after it"
    with torch.inference_mode():
        assert only(lambda: functional.cross_entropy(LOGITS * 1, KNOWN)).target.equal(KNOWN)


def test_transforms_of_functions_are_not_recorded():
    with capture_losses() as losses:
        torch.func.grad(lambda z: functional.cross_entropy(z, KNOWN))(LOGITS)
        torch.func.vmap(functional.cross_entropy)(LOGITS, KNOWN)
    assert losses.calls == []


def test_blocks_nest_begin_anew_and_end_with_errors():
    outer, inner = capture_losses(), capture_losses()
    with outer:
        functional.cross_entropy(LOGITS, TARGET)
        with pytest.raises(IndexError), inner:
            functional.nll_loss(LOGITS.log_softmax(1), TARGET), functional.cross_entropy(LOGITS, TARGET + 4)
    functional.cross_entropy(LOGITS * 1, TARGET)
    assert [call.loss for call in outer.calls] == ["cross_entropy", "nll_loss"]
    assert [call.loss for call in inner.calls] == ["nll_loss"]
    with inner:
        pass
    assert inner.calls == []


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_steps_are_handed_over_one_by_one(compiled):
    def step(z):
        return functional.cross_entropy(z, KNOWN) + functional.cross_entropy(z, KNOWN.flip(0))

    found, batches = [], [LOGITS * n for n in range(1, 5)]
    counter = CompileCounterWithBackend("eager")
    run = torch.compile(step, backend=counter) if compiled else step
    with capture_losses(found.append):
        for place, z in enumerate(batches):
            run(z).item()  # what is called next hands a compiled step over
            assert len(found) == place
    assert all(call.logits.equal(z) and call.target is None for call, z in zip(found, batches, strict=True))
    assert counter.frame_count <= 1


@pytest.mark.filterwarnings("ignore:.*TF32")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("part", ["model", "step"])
def test_compiled_code_is_seen_and_compiled_once(part, backend):
    torch.compiler.reset()
    counter, model = CompileCounterWithBackend(backend), nn.Linear(3, 4)
    used = torch.compile(model, backend=counter, fullgraph=True) if part == "model" else model

    def step(x, y):
        inner = torch.func.grad(lambda z: functional.cross_entropy(z, y))(torch.ones(len(x), 4))  # is not recorded
        return functional.cross_entropy(used(x), y, ignore_index=1) + inner.sum()

    run = torch.compile(step, backend=counter, fullgraph=True) if part == "step" else step
    losses = capture_losses()
    for seed in range(5):
        x = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))
        with losses:
            run(x, KNOWN).backward()
        (call,) = losses.calls
        torch.testing.assert_close(call.logits, model(x).detach())
        assert call.target.equal(KNOWN)
        assert call.ignore_index == 1
        assert not call.logits.requires_grad
    assert counter.frame_count == 1


def test_a_sharded_tensor_is_told_full_tensor(free_port):
    from torch import distributed
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

    from torch_boc import BoCMetric

    distributed.init_process_group("gloo", init_method=f"tcp://localhost:{free_port}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        z, y = (DTensor.from_local(x, mesh, [Replicate()]) for x in (LOGITS, KNOWN))
        with capture_losses() as losses:
            functional.cross_entropy(z, y), functional.cross_entropy(z, y)
        (call,) = losses.calls
        with pytest.raises(TypeError, match=r"full_tensor\(\)"):
            BoCMetric(dim=1).update(call.logits, call.target)
    finally:
        distributed.destroy_process_group()
