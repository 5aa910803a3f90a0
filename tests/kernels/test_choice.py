"""Who computes what: the user's word, the device, the dtype, transforms and the compiler decide."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from tests.functional.cases import random_logits
from tests.kernels.cases import needs_native
from torch_boc.functional import bag_of_coins, binomial_log_tail, gather, log_p_value, sample_columns
from torch_boc.kernels import choice, use
from torch_boc.kernels.cpu import library

PROBE = ["torch_boc::row_sums", "torch_boc::coins", "torch_boc::log_p_value"]
FUSED = {*PROBE, "torch_boc::log_tail"}


class Calls(TorchDispatchMode):
    """The names of the operators that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # A view, or a question for the device of a fake tensor, starts nothing.
        if not any(x.alias_info for x in func._schema.returns) and func.namespace != "prim":
            self.names.append(func.name().split(".")[0])
        return func(*args, **(kwargs or {}))


def fused(function, *args):
    with Calls() as calls:
        function(*args)
    return FUSED & set(calls.names)


def probe(logits):
    return log_p_value(bag_of_coins(logits))


@pytest.fixture
def fake_gpu():
    pytest.importorskip("triton")
    with FakeTensorMode():
        yield torch.empty(5, 10, device="cuda")


@pytest.mark.parametrize("path", ["auto", "triton", "native"])
def test_a_gpu_computes_by_the_kernels(fake_gpu, path):
    with use(path):
        assert fused(probe, fake_gpu) == set(PROBE)
        assert fused(binomial_log_tail, torch.ones(5, device="cuda"), 10**6, fake_gpu.select(1, 0)) == {
            "torch_boc::log_tail"
        }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_gpu_starts_three_operators_and_nothing_else(fake_gpu, dtype):
    logits = fake_gpu.to(dtype)
    with Calls() as calls:
        probe(logits)
    assert calls.names == PROBE


def test_torch_means_torch(fake_gpu):
    with use("torch"):
        assert not fused(probe, fake_gpu)
        assert not fused(probe, random_logits(5, 10))


@needs_native
@pytest.mark.parametrize("path", ["auto", "native"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_cpu_computes_by_the_native_library(path, dtype):
    logits = random_logits(5, 10, dtype=dtype)
    with use(path):
        assert fused(probe, logits) == set(PROBE)
        assert fused(probe, torch.nn.Parameter(logits, requires_grad=False)) == set(PROBE)
        assert fused(binomial_log_tail, torch.ones(5), 1000, torch.ones(5)) == {"torch_boc::log_tail"}


@pytest.fixture
def no_library(monkeypatch):
    monkeypatch.setattr(library, "_chosen", lambda: (None, "it is not there"))


def test_without_a_library_a_cpu_computes_in_torch(no_library):
    assert not fused(probe, random_logits(5, 10))


def test_a_native_path_that_is_not_there_is_an_error(no_library):
    with use("native"), pytest.raises(RuntimeError, match="the native path is not available: it is not there"):
        probe(random_logits(5, 10))


class Plain(torch.Tensor):
    """A subclass, as those that are spread over devices are."""


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:FutureWarning")
def test_what_auto_leaves_to_torch_on_a_cpu(monkeypatch):
    """Whoever looks on must know every operation; Triton's interpreter takes the tensors of a CPU for its own."""
    logits = random_logits(5, 10).float()
    assert not fused(probe, logits.as_subclass(Plain))
    traced = []
    torch.jit.trace(lambda x: traced.append(choice.decide(x).rows) or x + 1, logits, check_trace=False)
    assert traced == [False]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not fused(probe, logits)


@needs_native
def test_what_the_native_path_leaves_to_torch():
    with use("native"):
        assert not fused(binomial_log_tail, torch.ones(5), 1001, torch.ones(5))
        assert "torch_boc::coins" not in fused(bag_of_coins, random_logits(5, 2))
        assert "torch_boc::coins" not in fused(bag_of_coins, random_logits(5, 10).requires_grad_())
        assert not fused(lambda: vmap(lambda z: bag_of_coins(z).gap)(random_logits(5, 10)))


@pytest.mark.parametrize("function", [bag_of_coins, gather, lambda z: sample_columns(z, columns=["gap", "energy"])])
def test_a_call_decides_once(monkeypatch, function):
    decided, decide = [], choice._fused_dtypes
    monkeypatch.setattr(choice, "_fused_dtypes", lambda *x: decided.append(x) or decide(*x))
    function(random_logits(2**10, 2**10))  # several pieces
    assert len(decided) == 1


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # torch's own use of it
def test_forward_mode_is_left_to_torch():
    odds = torch.linspace(0.1, 2, 5, dtype=torch.float64)
    with use("native"), forward_ad.dual_level():
        dual = forward_ad.make_dual(odds, torch.ones_like(odds))
        tangent = forward_ad.unpack_dual(binomial_log_tail(torch.ones(5), 3, dual)).tangent
    lose = odds / (1 + odds)  # the tail is 1 - lose^3
    expected = -3 * lose**2 / (1 + odds) ** 2 / (1 - lose**3)
    torch.testing.assert_close(tangent, expected, rtol=1e-9, atol=0)


def test_triton_without_a_gpu_is_an_error():
    with use("triton"), pytest.raises(RuntimeError, match="got tensors on cpu"):
        bag_of_coins(random_logits(5, 10))


@pytest.mark.parametrize("path", ["cuda", "", "Triton"])
def test_unknown_paths(path):
    with pytest.raises(ValueError, match="expected a path among auto, torch, triton, native"), use(path):
        pass


def test_the_choice_ends_with_its_block(fake_gpu):
    with use("torch"):
        with pytest.raises(ZeroDivisionError), use("triton"):
            raise ZeroDivisionError
        assert not fused(probe, fake_gpu)
    assert fused(probe, fake_gpu)


def test_two_threads_choose_differently():
    """Each enters its block before the other computes, and leaves it after."""
    logits, both_inside, both_done = torch.empty(5, 10, device="meta"), Barrier(2, timeout=30), Barrier(2, timeout=30)

    def decided(path):
        with use(path):
            both_inside.wait()
            try:
                return choice.decide(logits).rows
            except RuntimeError as error:  # for there is no Triton on this device
                return str(error)
            finally:
                both_done.wait()

    with ThreadPoolExecutor(2) as threads:
        plain, kernels = threads.map(decided, ["torch", "triton"])
    assert plain is False
    assert "expected tensors on a GPU that Triton knows" in kernels


def test_two_tasks_choose_differently():
    async def decided(path):
        with use(path):
            await asyncio.sleep(0)
            return choice._chosen.get()

    async def both():
        return await asyncio.gather(decided("torch"), decided("native"))

    assert asyncio.run(both()) == ["torch", "native"]
    assert choice._chosen.get() == choice._traced.path == "auto"


def operators(path, function=probe):
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


def test_a_choice_compiles_again():
    torch.compiler.reset()
    compiled = torch.compile(probe, backend="eager", fullgraph=True)
    logits = random_logits(5, 10)
    expected = compiled(logits)
    with use("triton"), pytest.raises(Exception, match="got tensors on cpu"):
        compiled(logits)
    torch.testing.assert_close(compiled(logits), expected, rtol=0, atol=0)


@needs_native
@pytest.mark.parametrize("path", ["auto", "native"])
def test_torch_compile_gets_the_native_operators_on_a_cpu(path):
    found, value = operators(path)
    assert found == [name.replace("::", ".") for name in PROBE]
    torch.testing.assert_close(value, probe(random_logits(5, 10)), rtol=1e-12, atol=0)


@needs_native
def test_torch_compile_gets_the_operators_that_triton_was_asked_for(monkeypatch):
    """They are traced for a GPU that is not here; what runs are those of the CPU."""
    monkeypatch.setattr(choice, "available", lambda device: True)
    assert operators("triton")[0] == [name.replace("::", ".") for name in PROBE]


def test_torch_compile_gets_the_formulas_elsewhere(no_library):
    """The compiler fuses them with what is around."""
    assert operators("auto")[0] == operators("torch")[0] == []
    with pytest.raises(Exception, match="the native path is not available"):
        operators("native")


@needs_native
@pytest.mark.parametrize("transform", [vmap, grad], ids=["vmap", "grad"])
def test_torch_compile_of_a_transform_gets_the_formulas(transform):
    """Their rules can be nested, those of our operators cannot."""

    def gap(z):
        return bag_of_coins(z).gap.sum()

    assert operators("auto", transform(gap))[0] == []


@needs_native
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_standard_operations_only(strict):
    class Probe(torch.nn.Module):
        def forward(self, z):
            return probe(z)

    program = torch.export.export(Probe(), (random_logits(5, 10),), strict=strict)
    assert not any("torch_boc" in str(node.target) for node in program.graph.nodes)


@pytest.mark.parametrize("path", ["auto", "torch", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_path_gives_the_same(path, dtype):
    for classes in (2, 10, 47, 48, 1000):
        logits = random_logits(33, classes, dtype=dtype)
        with use("torch"):
            expected = bag_of_coins(logits)
        with use(path):
            actual = bag_of_coins(logits)
            value = log_p_value(actual)
        for x, y in zip(actual, expected, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(value, log_p_value(actual), rtol=1e-11, atol=0)
