"""What calls ask of a GPU, on one that is not here: few operations, no waiting, no float64 where there is none."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from tests.dispatch import Counted, needs_fake_gpu
from tests.functional.cases import random_logits
from tests.kernels.cases import needs_native
from torch_boc import (
    Acceptance,
    BoCClassifier,
    BoCMetric,
    BoCProbe,
    BoCSeparation,
    CoherenceGap,
    ConformalTest,
    DriftMonitor,
    RiskMonitor,
    kernels,
)
from torch_boc.core import dtypes
from torch_boc.core.tally import empty_tally
from torch_boc.functional import bag_of_coins, compute_scores
from torch_boc.functional.conformal import bin_p_values, discovery_level
from torch_boc.functional.registry import required_extras
from torch_boc.functional.selective import risk_summary
from torch_boc.functional.separation import binned_aupr, binned_auroc, binned_fpr_at_tpr
from torch_boc.functional.summary import DEFAULT_KEYS, summarize
from torch_boc.kernels import dispatch
from torch_boc.lightning.loader_metrics import BatchCounts, LoaderMetrics

pytestmark = needs_fake_gpu


def metric(kind, device, **options):
    """A metric on the device, without the search for probabilities."""
    with unset_fake_temporarily():  # torchmetrics copies what a state begins with, which fake tensors do not allow
        made = kind(validate_args=False, **options)
    made._device = torch.device(device)
    for name in made._defaults:
        if isinstance(state := getattr(made, name), torch.Tensor):
            wide = dtypes.wide_dtype(made._device) if state.is_floating_point() else state.dtype
            setattr(made, name, torch.zeros(state.shape, dtype=wide, device=device))
    return made


def make_calls(device, logits=None):
    """Calls with a batch on this device, by name; the objects are ready, as after their first batch."""
    logits = torch.empty(64, 10, device=device) if logits is None else logits.to(device)
    target = torch.zeros(len(logits), dtype=torch.int64, device=device)
    tests = {groups: ConformalTest(groups=groups, validate_args=False) for groups in (None, "prediction", "confidence")}
    accept = Acceptance(validate_args=False)
    parts = {"conformal_test": tests[None], "acceptance": accept}
    classifier = BoCClassifier(torch.nn.Identity(), **parts, validate_args=False)
    accept.update(logits, target)
    probe = BoCProbe(validate_args=False)
    calls = {"probe": lambda: probe(logits), "scores": lambda: compute_scores(logits)}
    for groups, test in tests.items():
        test.update(logits)
        monitors = [DriftMonitor(test, mix=mix).to(device) for mix in (False, True)]
        calls[f"test by {groups}"] = lambda test=test: test(logits)
        calls[f"flag by {groups}"] = lambda test=test: test.flag(logits, 0.1)
        calls[f"monitor by {groups}"] = lambda monitor=monitors[0]: monitor.update(logits)
        calls[f"monitor and mix by {groups}"] = lambda monitor=monitors[1]: monitor.update(logits)
    whole, one = metric(BoCMetric, device), metric(BoCSeparation, device)
    binned = metric(BoCSeparation, device, exact_up_to=0)
    gap = metric(CoherenceGap, device)
    risks = metric(BoCMetric, device, keys=("aurc", "gap"))
    loader = LoaderMetrics.__new__(LoaderMetrics)  # of the callback with everything, on the first loader
    parts = [[kind(validate_args=False) for _ in range(2)] for kind in (ConformalTest, Acceptance)]
    loader.metric, loader.separation = metric(BoCMetric, device, keys=DEFAULT_KEYS), metric(BoCSeparation, device)
    (loader.tests, loader.acceptances), loader.ood = parts, False
    loader._extras = required_extras([*loader.separation.scores, "gen", "log_odds"])
    loader._samples, loader.batches = 0, BatchCounts()
    audit = RiskMonitor().to(device)
    calls |= {
        "classifier": lambda: classifier(logits),
        "audit": lambda: audit.update(target == 0),
        "callback": lambda: loader.update(logits, target),
        "accept": lambda: accept.accept(logits),
        "sets": lambda: accept.sets(logits),
        "update": lambda: whole.update(logits, target),
        "update of one gap": lambda: gap.update(logits, target),
        "update with risks": lambda: risks.update(logits, target),
        "separation": lambda: one.update(logits, ood=False),
        "separation in bins": lambda: binned.update(logits, ood=False),
    }
    return calls


@pytest.mark.parametrize("path", ["auto", "torch"])
def test_no_call_waits_after_the_first(path):
    with FakeTensorMode(), kernels.use(path):
        for name, call in make_calls("cuda").items():
            call()
            with Counted() as counted:
                call()
            assert not counted.waits, name


def test_a_device_without_float64_gets_none(monkeypatch):
    """MPS, and some GPUs of Intel: their fake tensors know few operations, so that one of NVIDIA stands for them."""
    monkeypatch.setattr(dtypes, "_xpu_has_float64", lambda device: False)
    assert {dtypes.wide_dtype(torch.device(x)) for x in ("mps", "xpu")} == {torch.float32}
    assert dtypes.wide_dtype(torch.device("cuda")) == torch.float64
    monkeypatch.setattr(dtypes, "_has_float64", lambda device: False)
    with FakeTensorMode(), Counted() as counted:
        for call in make_calls("cuda").values():
            call()
        summarize(empty_tally(device="cuda"))
        assert dispatch.choose_kernels(torch.empty(2, 3, device="cuda")) is None
        with kernels.use("triton"), pytest.raises(RuntimeError, match="that has float64"):
            bag_of_coins(torch.empty(2, 3, device="cuda"))
    assert counted.dtypes.isdisjoint({torch.float64})


def test_counts_are_added_up_as_integers():
    """On a GPU there is no deterministic running sum of floats."""
    with FakeTensorMode(), Counted() as counted:
        counts = torch.zeros(2, 98304, dtype=torch.int64, device="cuda")
        binned_auroc(*counts), binned_aupr(*counts), binned_fpr_at_tpr(*counts)
        discovery_level(bin_p_values(counts), counts, 0.1)
        risk_summary(counts, 15)
        summarize(empty_tally(device="cuda"))
    assert counted.float_sums == 0


@pytest.mark.parametrize("classes", [10, 50257])
def test_rows_cut_a_batch_for_kernels_not_logits(classes):
    with FakeTensorMode():
        whole = metric(BoCMetric, "cuda", ignore_index=None)
        logits, target = torch.empty(4096, classes, device="cuda"), torch.zeros(4096, dtype=torch.int64, device="cuda")
        with Counted() as counted:
            whole.update(logits, target)
    assert counted.names == ["torch_boc.columns", "torch_boc.tally"]


# Of calls with kernels, by the name of the call: each operation is a launch or more.
MOST = {"flag": 23, "test": 21, "monitor": 60, "monitor and mix": 177, "accept": 14, "sets": 11, "scores": 54}
MOST |= {"callback": 90, "update": 3, "update of one gap": 14, "update with risks": 23, "separation": 20}
MOST |= {"classifier": 55, "probe": 18}


@pytest.mark.parametrize("samples", [64, 1024])
def test_calls_with_kernels_take_few_operations(samples):
    """For any number of samples in a batch."""
    with FakeTensorMode(), kernels.use("auto"):
        for name, call in make_calls("cuda", torch.empty(samples, 10, device="cuda")).items():
            call()
            with Counted() as counted:
                call()
            if (kind := name.split(" by ")[0]) in MOST:
                assert len(counted.names) <= MOST[kind], (name, len(counted.names))


@pytest.mark.parametrize(("keys", "most"), [(DEFAULT_KEYS, 120), (None, 395)])
def test_an_update_by_torch_takes_few_operations(keys, most):
    """Each is a launch on a GPU without Triton. Without p-values there is no continued fraction."""
    with FakeTensorMode(), kernels.use("torch"):
        made = metric(BoCMetric, "cuda", keys=keys)
        logits, target = torch.empty(64, 10, device="cuda"), torch.zeros(64, dtype=torch.int64, device="cuda")
        made.update(logits, target)
        with Counted() as counted:
            made.update(logits, target)
    assert len(counted.names) <= most, counted.names


@needs_native
@pytest.mark.filterwarnings("ignore:nothing can be")
def test_a_classifier_with_test_and_acceptance_reads_the_logits_once():
    logits, target = random_logits(64, 10), torch.arange(64) % 10
    parts = {"conformal_test": ConformalTest().calibrate(logits), "acceptance": Acceptance().calibrate(logits, target)}
    model = BoCClassifier(torch.nn.Identity(), **parts)
    with torch.inference_mode():
        model(logits)
        with Counted() as counted:
            model(logits)
    assert counted.names.count("torch_boc.columns") == 1
