"""Every call on a GPU of any kind: its results are those of the CPU, without waiting, on streams and in modes."""

import contextlib
import warnings

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tests.gpu.batches import make_logits
from tests.test_devices import make_calls
from torch_boc import BoCClassifier, BoCPredictor, kernels
from torch_boc.functional import bag_of_coins

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:nothing can be")]


@contextlib.contextmanager
def no_waiting(device):
    """On CUDA torch raises an error if the host waits."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def every_call(device, logits):
    """Those of a fake GPU, and backward, which a fake GPU does not know."""
    leaf = logits.detach().to(device).requires_grad_()

    def gradient():
        coins = bag_of_coins(leaf)
        return torch.autograd.grad((coins.gap + coins.concentration).sum(), leaf)

    return make_calls(device, logits) | {"backward": gradient}


def test_every_call_gives_what_the_cpu_gives_and_waits_for_nothing(accelerator):
    logits = make_logits(64, 10)
    with kernels.use("torch"):
        expected = {name: call() for name, call in every_call("cpu", logits).items()}
    for name, call in every_call(accelerator, logits).items():
        found = call()
        for x, y in zip(tree_leaves(found), tree_leaves(expected[name]), strict=True):
            if isinstance(x, torch.Tensor):
                torch.testing.assert_close(x.cpu().double(), y.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        with no_waiting(accelerator):
            call()


def test_a_side_stream(device):
    logits, stream = make_logits(256, 1000, device=device), torch.cuda.Stream()
    expected = bag_of_coins(logits)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = bag_of_coins(logits)
    stream.synchronize()
    assert torch.equal(found.odds, expected.odds)


def test_more_than_2_to_the_31_elements(device):
    rows = 2**31 // 1000 + 64
    if torch.cuda.mem_get_info(device)[0] < 3 * rows * 1000:
        pytest.skip("needs 6 GB of free memory")
    logits = torch.zeros(rows, 1000, dtype=torch.bfloat16, device=device)
    logits[-64:] = make_logits(64, 1000, dtype=torch.bfloat16, device=device)
    leaf, own = logits.requires_grad_(), logits[-64:].detach().clone().requires_grad_()
    whole, part = bag_of_coins(leaf), bag_of_coins(own)
    for x, y in zip(whole[:5], part[:5], strict=True):
        assert torch.equal(x[-64:], y)
    (gradient,) = torch.autograd.grad(whole.gap[-64:].sum(), leaf)
    assert torch.equal(gradient[-64:], torch.autograd.grad(part.gap.sum(), own)[0])


@pytest.mark.parametrize("mode", ["reduce-overhead", "autocast", "deterministic"])
def test_modes_of_torch(device, mode):
    logits = make_logits(64, 10, device=device)
    model = BoCClassifier(nn.Linear(10, 10), validate_args=False).to(device).eval()
    with torch.inference_mode():
        expected = model(logits).gap
    if mode == "reduce-overhead":
        compiled = torch.compile(model, mode=mode)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                torch.testing.assert_close(compiled(logits).probe.gap.clone(), expected, rtol=1e-4, atol=1e-6)
    elif mode == "autocast":
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            torch.testing.assert_close(model(logits).gap, expected, rtol=0.1, atol=0.02)
    else:
        torch.use_deterministic_algorithms(True)
        try:
            for path in ("auto", "torch"):
                with kernels.use(path):
                    for name, call in every_call(device, logits).items():
                        # Bets by torch's operations are running sums of floats, which have no such form.
                        if not name.startswith("monitor and mix" if path == "auto" else "monitor"):
                            call()
        finally:
            torch.use_deterministic_algorithms(False)


def test_the_predictor(accelerator):
    model, inputs = nn.Linear(10, 5), make_logits(200, 10)
    there, here = (BoCPredictor(model, device=x, progress=False) for x in (accelerator, "cpu"))
    gaps = [torch.cat([table["gap"] for table in x.predict(inputs)]) for x in (there, here)]
    torch.testing.assert_close(*gaps, rtol=1e-3, atol=1e-5)
