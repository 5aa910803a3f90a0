"""Logits whose classes are spread over two processes give what they give in one, and stay where they are."""

import os
import re
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

from torch_boc import BoCMetric, BoCProbe, BoCSeparation, CoherenceGap, bag_of_coins, kernels
from torch_boc.functional import compute_scores, gather, sample_columns

PROBE = BoCProbe(columns=["energy", "logit_gap", "gap", "log_p_value"])
NAN, INF = torch.nan, torch.inf
SPECIAL = torch.tensor(
    [
        [1.0, 2.0, 0.0, 2.0, 2.0, -1.0, 0.5],  # ties on both processes: the first counts
        [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0],  # all equal
        [1.0, 1.0, 1.0, 1.0 + 1e-6, 1.0, 1.0, 1.0 + 1e-6],  # flat
        [0.0, 1.0, 2.0, 3.0, 120.0, 4.0, 30.0],  # sharp, with the second on the same process as the top
        [0.0, 31.0, 2.0, 3.0, 120.0, 4.0, 30.0],  # sharp, with the second on the other one
        [0.0, 1.0, 2.0, 3.0, 400.0, 4.0, 30.0],  # odds below the smallest float32
        [-INF, 0.5, -INF, 1.0, -INF, 2.0, -INF],
        [3.0, -INF, -INF, -INF, -INF, -INF, -INF],
        [-INF, -INF, -INF, -INF, -INF, -INF, -INF],
        [0.0, 1.0, NAN, 3.0, NAN, 5.0, 6.0],  # NaN on both
        [0.0, 9.0, 1.0, 3.0, NAN, 5.0, 6.0],  # NaN after the largest
        [0.0, INF, 1.0, 3.0, 4.0, INF, 6.0],
        [-3e38, 3e38, 0.0, 0.0, 0.0, 0.0, 0.0],
    ]
)


def make(rows: int, classes: int, dtype: torch.dtype = torch.float32, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * classes)
    return (torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale).to(dtype)


CASES = {
    "even": make(12, 8),
    "uneven": make(12, 7),
    "two classes": make(9, 2),
    "three classes": make(9, 3),
    "many": make(5, 1001),
    "confident": make(20, 33, scale=60.0),
    "nearly equal": make(20, 33, scale=1e-5),
    "bfloat16": make(12, 51, torch.bfloat16),
    "float64": make(12, 51, torch.float64),
    "sharp in float64": make(12, 9, torch.float64, scale=300.0),
    "special": SPECIAL,
    "no rows": make(0, 7),
    "more axes": make(12, 7).reshape(2, 3, 2, 7),
}


def targets(logits: torch.Tensor) -> torch.Tensor:
    """Classes of both processes, some to be ignored, and one that is no class."""
    target = torch.arange(logits.shape[:-1].numel()) * 5 % logits.shape[-1]
    target[1::4] = -100
    target[2:3] = logits.shape[-1]
    return target.reshape(logits.shape[:-1])


class Sizes(TorchDispatchMode):
    """The most numbers that one tensor of a collective operation holds."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "c10d" in function.namespace:
            tensors = torch.utils._pytree.tree_leaves((args, kwargs))
            self.largest = max([self.largest, *(x.numel() for x in tensors if isinstance(x, torch.Tensor))])
        return function(*args, **(kwargs or {}))


def everything(logits, target, dim=-1) -> dict:
    """Whatever takes logits, from these."""
    how = {"ignore_index": -100, "nan_strategy": "ignore", "validate_args": False, "sync_on_compute": False}
    metrics = {"boc": BoCMetric(dim=dim, **how), "gap": CoherenceGap(dim=dim, **how)}
    for metric in metrics.values():
        metric.update(logits, target)
    return {
        "coins": bag_of_coins(logits, dim=dim),
        "class coins": () if target is None else tuple(bag_of_coins(logits, dim=dim, index=target)),
        "evidence": gather(logits, target, dim=dim, extras=True, ignore_index=-100),
        "columns": sample_columns(logits, dim=dim),
        "scores": compute_scores(logits, dim=dim),
        "probe": PROBE(logits) if dim == -1 else (),
        "total": tuple(metrics["boc"].total()),
        "gap": metrics["gap"].compute(),
    }


def errors(mesh: DeviceMesh) -> dict[str, str]:
    """What is said of logits that cannot be probed."""
    x = make(6, 8)
    sharded, target = distribute_tensor(x, mesh, [Shard(1)]), torch.zeros(6, dtype=torch.long)
    attempts = {
        "partial": lambda: bag_of_coins(DTensor.from_local(x, mesh, [Partial()])),
        "gradient": lambda: bag_of_coins(sharded.clone().requires_grad_()),
        "target": lambda: gather(sharded, distribute_tensor(target, mesh, [Shard(0)])),
        "rows": lambda: gather(distribute_tensor(x, mesh, [Shard(0)]), target),
        "lost classes": lambda: bag_of_coins(
            DTensor.from_local(x[:, :3], mesh, [Shard(1)], shape=x.shape, stride=x.stride())
        ),
    }
    said = {}
    for name, attempt in attempts.items():
        with pytest.raises(ValueError, match="expected") as error:
            attempt()
        said[name] = str(error.value)
    return said


def placed(mesh: DeviceMesh) -> dict:
    """Other placements, axes and meshes."""
    x, target = make(6, 7), targets(make(6, 7))
    rows, reverse = distribute_tensor(x, mesh, [Shard(0)]), DeviceMesh("cpu", [1, 0])
    gradient = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    bag_of_coins(gradient).gap.sum().backward()
    metric = BoCMetric(ignore_index=-100)
    metric.update(rows, distribute_tensor(target.clamp_max(6), mesh, [Shard(0)]))
    return {
        "replicated": everything(distribute_tensor(x, mesh, [Replicate()]), target),
        "rows": everything(rows, distribute_tensor(target, mesh, [Shard(0)])),
        "own target": gather(rows, target.chunk(2)[dist.get_rank()]),
        "gradient": gradient.grad.full_tensor(),
        "another axis": everything(distribute_tensor(x.reshape(2, 3, 7).movedim(-1, 1), mesh, [Shard(1)]), None, dim=1),
        "rows of another axis": gather(
            distribute_tensor(make(12, 7).reshape(2, 6, 7).movedim(-1, 0), mesh, [Shard(2)]),
            distribute_tensor(targets(make(12, 7)).reshape(2, 6), mesh, [Shard(1)]),
            dim=0,
        ),
        "target": gather(distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(target, mesh, [Replicate()])),
        "reversed": bag_of_coins(
            DTensor.from_local(
                SPECIAL.chunk(2, 1)[reverse.get_coordinate()[0]],
                reverse,
                [Shard(1)],
                shape=SPECIAL.shape,
                stride=SPECIAL.stride(),
            )
        ),
        "summary": metric.compute(),
    }


def traffic(mesh: DeviceMesh) -> dict:
    """What is exchanged for 4 rows of 50,000 classes."""
    x = distribute_tensor(make(4, 50_000), mesh, [Shard(1)])
    metrics = {"metric": BoCMetric(), "gap": CoherenceGap()}
    functions = {"coins": bag_of_coins, "columns": sample_columns, "scores": compute_scores, "probe": PROBE}
    functions |= {name: metric.update for name, metric in metrics.items()}
    flags = torch.arange(4) % 2 == 0
    for thresholds in (None, 128):
        metric = BoCSeparation(thresholds=thresholds)
        functions[f"separation, {thresholds}"] = lambda x, metric=metric: metric.update(x, flags)
    found = {}
    for name, function in functions.items():
        with CommDebugMode() as calls, Sizes() as sizes:
            function(x)
        found[name] = calls.get_total_counts(), sizes.largest
    return found


def refused(mesh: DeviceMesh) -> bool:
    """Whether probabilities are refused."""
    with pytest.raises(ValueError, match="got probabilities"):
        BoCMetric().update(distribute_tensor(make(6, 7).softmax(1), mesh, [Shard(1)]))
    return True


def separated(mesh: DeviceMesh) -> dict:
    metric = BoCSeparation(sync_on_compute=False)
    metric.update(distribute_tensor(make(30, 7), mesh, [Shard(1)]), torch.arange(30) % 2 == 0)
    return metric.compute()


def four(mesh: DeviceMesh) -> dict:
    """Rows sharded over one axis of a mesh, and classes over the other; and more processes than classes."""
    line, x, target = init_device_mesh("cpu", (4,)), make(12, 7), targets(make(12, 7))
    both = distribute_tensor(x, mesh, [Shard(0), Shard(1)])
    with pytest.raises(ValueError, match="sharded over one axis of the mesh, got placements"):
        bag_of_coins(distribute_tensor(make(12, 8), mesh, [Shard(1), Shard(1)]))
    return {
        "grid": everything(both, distribute_tensor(target, mesh, [Shard(0), Replicate()])),
        "few": everything(distribute_tensor(SPECIAL[:, 2:], line, [Shard(1)]), targets(SPECIAL[:, 2:])),
    }


def work_in_four(rank: int, port: int, folder: str) -> None:
    start(rank, port, 4)
    torch.save(four(init_device_mesh("cpu", (2, 2))), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def start(rank: int, port: int, processes: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=processes)


def work(rank: int, port: int, folder: str) -> None:
    start(rank, port, 2)
    mesh = init_device_mesh("cpu", (2,))
    found = {name: everything(distribute_tensor(x, mesh, [Shard(x.ndim - 1)]), targets(x)) for name, x in CASES.items()}
    found |= {"placed": placed(mesh), "errors": errors(mesh), "traffic": traffic(mesh), "refused": refused(mesh)}
    torch.save(found | {"separated": separated(mesh)}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def spawn(work, folder, processes: int) -> list[dict]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (port, str(folder)), nprocs=processes)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(processes)]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict]:
    return spawn(work, tmp_path_factory.mktemp("shards"), 2)


def assert_same(actual, expected, *, rtol: float = 2e-6, atol: float = 1e-45) -> None:
    """The same plain tensors: predictions and counts exactly, sums up to rounding."""
    actual, expected = torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(expected)
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        assert type(x) is type(y)
        if isinstance(x, torch.Tensor):
            exact = not x.is_floating_point()
            torch.testing.assert_close(x, y, rtol=0 if exact else rtol, atol=0 if exact else atol, equal_nan=True)


def without_log_odds(*results):
    """Results of `everything` without the log odds, then the log odds alone."""
    named = [x._asdict() if hasattr(x, "_asdict") else x for x in results]
    if not isinstance(named[0], dict) or "log_odds" not in named[0]:
        return *results, (), ()
    return *({k: v for k, v in x.items() if k != "log_odds"} for x in named), *(x["log_odds"] for x in named)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_with_half_of_the_classes_are_one_with_all(found, name):
    logits = CASES[name]
    with kernels.use("torch"):  # whose sums these are; the native library has digits of odds below 1e-38 as well
        expected = everything(logits, targets(logits))
    rounding = 1e-13 if logits.dtype == torch.float64 else 4e-6
    for rank in range(2):
        for part, value in expected.items():
            powers = part in ("columns", "scores", "probe", "total")  # of a chance, in the tail of 100 flips
            actual, value, *logs = without_log_odds(found[rank][name][part], value)
            assert_same(actual, value, rtol=rounding * (20 if powers else 1))
            assert_same(*logs, rtol=rounding, atol=rounding / 10)  # the log of odds of about 1 is near 0
        assert_same(found[rank][name], found[0][name], rtol=0, atol=0)


def test_rows_that_are_replicated_or_sharded_need_no_exchange(found):
    x, target = make(6, 7), targets(make(6, 7))
    for rank, rows in enumerate(zip(x.chunk(2), target.chunk(2), strict=True)):
        result = found[rank]["placed"]
        # The native library and torch round exp differently, in the last bit of a p-value.
        assert_same(result["replicated"], everything(x, target), rtol=1e-15, atol=0)
        assert_same(result["rows"], everything(*rows), rtol=1e-15, atol=0)
        assert_same(result["own target"], gather(*rows), rtol=0, atol=0)


def test_a_metric_adds_up_rows_that_are_sharded(found):
    metric = BoCMetric(ignore_index=-100)
    metric.update(make(6, 7), targets(make(6, 7)).clamp_max(6))
    for result in found:
        assert_same(result["placed"]["summary"], metric.compute(), rtol=1e-12)


def test_rows_that_are_sharded_have_a_gradient(found):
    x = make(6, 7).requires_grad_()
    bag_of_coins(x).gap.sum().backward()
    for result in found:
        torch.testing.assert_close(result["placed"]["gradient"], x.grad, rtol=1e-6, atol=1e-9)


def test_the_class_axis_and_the_axes_of_the_rows(found):
    x, long = make(6, 7).reshape(2, 3, 7), make(12, 7).reshape(2, 6, 7)
    target = targets(make(12, 7)).reshape(2, 6)
    for rank, result in enumerate(found):
        assert_same(result["placed"]["another axis"], everything(x, None) | {"probe": ()}, rtol=1e-5, atol=1e-7)
        expected = gather(long[:, rank * 3 : rank * 3 + 3], target[:, rank * 3 : rank * 3 + 3])
        assert_same(result["placed"]["rows of another axis"], expected, rtol=1e-6, atol=1e-7)


def test_a_target_that_is_a_dtensor(found):
    for result in found:
        expected = gather(make(6, 7), targets(make(6, 7)))
        assert_same(result["placed"]["target"], expected, rtol=1e-5, atol=1e-7)


def test_processes_in_another_order(found):
    """The first classes are on the second process: the first of several equal tops is still the first class."""
    for result in found:
        assert_same(result["placed"]["reversed"], bag_of_coins(SPECIAL), rtol=1e-5, atol=1e-7)


def test_no_logits_are_exchanged(found):
    """Of 4 rows of 50,000 classes: the tops, then at most nine numbers a row. A metric also checks its first batch.

    GEN and LogitGap over the N nearest rivals need the largest logits of whole rows: 200 and the top, of two processes.
    """
    for result in found:
        assert result["traffic"]["coins"] == (2, 4 * 6)
        assert result["traffic"]["columns"] == (2, 4 * 8)
        for name, (calls, largest) in result["traffic"].items():
            assert 2 <= calls <= 4, name
            assert largest <= (4 * 2 * 201 if name in ("evidence", "scores") else 4 * 9), name


def test_probabilities_are_refused(found):
    assert all(result["refused"] for result in found)


def test_separation(found):
    metric = BoCSeparation()
    metric.update(make(30, 7), torch.arange(30) % 2 == 0)
    for result in found:
        assert_same(result["separated"], metric.compute(), rtol=1e-12)


SAID = {
    "partial": r"expected logits that are sharded or replicated, got placements \(Partial",
    "gradient": r"expected logits without a gradient .* give logits.detach\(\)",
    "target": r"expected a target with placements \(Replicate\(\),\) .* got \(Shard\(dim=0\),\)",
    "rows": r"expected target of shape \(3,\), the logits' without the class axis, got shape \(6,\)",
    "lost classes": r"expected 4 of the 8 classes on this process, .* got 3",
}


@pytest.mark.parametrize("name", SAID)
def test_errors(found, name):
    for result in found:
        assert re.search(SAID[name], result["errors"][name])


@pytest.mark.slow
def test_four_processes(tmp_path):
    x, target, few = make(12, 7), targets(make(12, 7)), SPECIAL[:, 2:]
    for rank, result in enumerate(spawn(work_in_four, tmp_path, 4)):
        rows = slice(0, 6) if rank < 2 else slice(6, 12)
        assert_same(result["grid"], everything(x[rows], target[rows]), rtol=8e-5)
        assert_same(result["few"], everything(few, targets(few)), rtol=8e-5)
