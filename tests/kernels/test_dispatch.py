"""Who computes what: the user's word, the device, the dtype, transforms and the compiler decide."""

import asyncio
import itertools
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from tests.functional.cases import random_logits
from tests.kernels.cases import needs_native
from torch_boc import BoCProbe
from torch_boc.core.martingale import StreamState, empty_stream
from torch_boc.core.tally import empty_tally
from torch_boc.functional import bag_of_coins, binomial_log_tail, log_p_value, sample_columns, sample_stats
from torch_boc.kernels import dispatch, operators, use
from torch_boc.kernels.cpu import build, loader

PROBE = ["torch_boc::columns", "torch_boc::log_tails"]


class Calls(TorchDispatchMode):
    """The names of our operators that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "torch_boc":
            self.names.append(func.name().split(".")[0])
        return func(*args, **(kwargs or {}))


def fused(function, *args):
    with Calls() as calls:
        function(*args)
    return calls.names


def bets(device):
    """On p-values of float64."""
    state = StreamState(*(x.to(device) for x in empty_stream()))
    p, number = torch.full((4,), 0.5, dtype=torch.float64, device=device), torch.arange(5, device=device)
    dispatch.martingale(p, number, [], 4.6, False, state)


def probe(logits):
    return log_p_value(bag_of_coins(logits))


@pytest.fixture
def fake_gpu():
    pytest.importorskip("triton")
    with FakeTensorMode():
        yield torch.empty(5, 10, device="cuda")


@pytest.mark.parametrize("path", ["auto", "triton", "native", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_gpu_computes_by_the_kernels_unless_torch_is_chosen(fake_gpu, path, dtype):
    wins, odds = torch.ones(5, device="cuda"), fake_gpu.select(1, 0)
    with use(path):
        assert fused(probe, fake_gpu.to(dtype)) == ([] if path == "torch" else PROBE)
        assert fused(binomial_log_tail, wins, 10**6, odds) == ([] if path == "torch" else PROBE[1:])
        assert fused(bets, "cuda") == ([] if path == "torch" else ["torch_boc::martingale"])


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_cpu_computes_by_the_native_library(dtype):
    logits = random_logits(5, 10, dtype=dtype)
    assert fused(probe, logits) == fused(probe, torch.nn.Parameter(logits, requires_grad=False)) == PROBE
    assert fused(bag_of_coins, logits.requires_grad_()) == ["torch_boc::row_sums"]
    with use("torch"):
        assert fused(probe, logits) == []


class Plain(torch.Tensor):
    """A subclass, as those that are spread over devices are."""


@needs_native
def test_what_is_left_to_torch_on_a_cpu(monkeypatch):
    """Whoever looks on must know every operation; Triton's interpreter takes the tensors of a CPU for its own."""
    logits = random_logits(5, 10).float()
    assert fused(probe, logits.as_subclass(Plain)) == []
    assert fused(lambda: vmap(lambda z: bag_of_coins(z).gap)(logits)) == []
    assert fused(binomial_log_tail, torch.ones(5), 1001, torch.ones(5)) == []
    assert fused(bets, "cpu") == []
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert fused(probe, logits) == []


@pytest.mark.parametrize(
    "function", [bag_of_coins, sample_stats, lambda z: sample_columns(z, columns=["gap", "energy"])]
)
def test_a_call_decides_once(monkeypatch, function):
    decided, decide = [], dispatch.choose_kernels
    monkeypatch.setattr(dispatch, "choose_kernels", lambda *x, **y: decided.append(x) or decide(*x, **y))
    function(random_logits(2**10, 2**10))  # several pieces
    assert len(decided) == 1


def test_unknown_paths():
    with pytest.raises(ValueError, match="expected a path among auto, torch, triton, native"), use("cuda"):
        pass
    with use("triton"), pytest.raises(RuntimeError, match="got tensors on cpu"):
        bag_of_coins(random_logits(5, 10))


@needs_native
def test_two_tasks_choose_differently():
    async def decided(path):
        with use(path):
            await asyncio.sleep(0)
            return dispatch.choose_kernels(random_logits(2, 3)) is None

    async def both():
        return await asyncio.gather(decided("torch"), decided("native"))

    assert asyncio.run(both()) == [True, False]
    assert dispatch._chosen.get() == dispatch._traced.path == "auto"


def operators_compiled(path, function=probe):
    """Our operators in the graph that a compiler gets, and the result."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    with use(path):
        value = compiled(random_logits(5, 10))
    targets = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    return [name.removesuffix(".default") for name in targets if name.startswith("torch_boc")], value


@needs_native
def test_torch_compile_gets_the_native_operators_on_a_cpu(monkeypatch):
    found, value = operators_compiled("auto")
    assert found == [name.replace("::", ".") for name in PROBE]
    torch.testing.assert_close(value, probe(random_logits(5, 10)), rtol=1e-12, atol=0)
    assert operators_compiled("torch")[0] == []
    # Traced for a GPU that is not here; what runs are the operators of the CPU.
    monkeypatch.setattr(dispatch, "available", lambda device: True)
    assert operators_compiled("triton")[0] == found
    for path, transform in itertools.product(("auto", "triton"), (vmap, grad)):  # which know torch's operations only
        assert operators_compiled(path, transform(lambda z: bag_of_coins(z).gap.sum()))[0] == []


@needs_native
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_standard_operations_only(strict):
    program = torch.export.export(BoCProbe(), (random_logits(5, 10),), strict=strict)
    assert not any("torch_boc" in str(node.target) for node in program.graph.nodes)


@needs_native
def test_the_operators_keep_the_rules_of_torch():
    """Shapes of fake tensors, schemas, autograd: as `torch.library.opcheck` looks at them."""
    logits, index = random_logits(4, 6).requires_grad_(), torch.arange(4)
    odds, wins = torch.rand(2, 4, dtype=torch.float64)
    some = ("test_schema", "test_faketensor", "test_autograd_registration")  # the other cannot add up int64
    torch.library.opcheck(operators.columns, (logits.detach(), ["odds", "gen", "lost"], index, True))
    torch.library.opcheck(operators.row_sums, (logits, True), test_utils=some)
    torch.library.opcheck(operators.log_tails, (wins.round(), 100, odds.clone().requires_grad_()), test_utils=some)
    torch.library.opcheck(operators.martingale, (odds, torch.arange(5), [], 4.6, False, *empty_stream()))
    rows = wins.expand(3, 4), odds.expand(3, 4).contiguous()
    mapped = vmap(lambda wins, odds: operators.log_tails(wins, 100, odds))(*rows)
    torch.testing.assert_close(mapped, operators.log_tails(rows[0], 100, rows[1]))
    torch.autograd.gradcheck(lambda z: operators.row_sums(z, True)[1:], logits, check_batched_grad=True)
    torch.autograd.gradgradcheck(lambda z: operators.row_sums(z, False)[2:4], logits)
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        operators.columns(logits.detach(), ["lost"], index[:3], True)
    with pytest.raises(ValueError, match="expected an index"):
        operators.columns(logits.detach(), ["lost"], None, True)
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        operators.tally([logits.detach()], (index[:3], None, None), 6, 100, 0.05, *empty_tally())
    with pytest.raises(ValueError, match=r"expected contiguous states in torch\.int64 on cpu, got torch\.float32"):
        operators.tally([logits.detach()], (index, None, None), 6, 100, 0.05, *(x.float() for x in empty_tally()))


def _threads(pipe):
    pipe.send(loader.threads())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_one_thread(monkeypatch):
    """The threads of OpenMP do not survive a fork."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert loader.threads() == 2
    mine, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_threads, args=(theirs,))
    child.start()
    assert mine.recv() == 1
    child.join()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_openmp_of_torch_is_among_the_libraries_of_the_process():
    """It is looked for where its names are not global, as they may not be on ARM."""
    assert any(Path(path).exists() for path in loader._loaded_openmps())


def test_the_digest_follows_sources_and_names(tmp_path):
    seen = {build.digest(tmp_path)}
    assert seen == {""}
    for name, text in (("a.cpp", "x"), ("a.cpp", "y"), ("b.h", "x"), ("c.py", "x")):
        (tmp_path / name).write_text(text)
        seen.add(build.digest(tmp_path))
    assert len(seen) == 4


def test_importing_the_kernels_needs_no_triton():
    code = "import sys; sys.modules['triton'] = None; import torch_boc.kernels.dispatch"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
