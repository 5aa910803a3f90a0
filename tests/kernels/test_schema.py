"""One table of names, dtypes and places: torch computes what it does not know; a library that differs is refused."""

import shutil

import pytest
import torch

from tests.kernels.cases import needs_native
from tests.kernels.test_dispatch import operators_compiled
from torch_boc.core import row_numbers as by_torch
from torch_boc.core import schema, score_terms
from torch_boc.functional import sample_stats
from torch_boc.kernels import dispatch, use
from torch_boc.kernels.cpu import build, loader


@pytest.mark.parametrize("path", ["torch", pytest.param("native", marks=needs_native)])
def test_a_number_that_no_kernel_knows_is_computed_by_torch(path, monkeypatch):
    """A new extra in `core/score_terms.py` was uninitialised memory where the library computed."""
    known = score_terms._numbers

    def numbers(logits, names, temperature):
        found = dict(zip(names, known(logits, tuple(x for x in names if x != "second"), temperature), strict=False))
        return tuple(found.get(name, logits.double().sort(-1).values[..., -2]) for name in names)

    monkeypatch.setattr(by_torch, "EXTRAS", (*score_terms.EXTRAS, "second"))
    monkeypatch.setattr(score_terms, "_numbers", numbers)
    logits = torch.tensor([[5.0, 3.0, 1.0], [0.5, 0.0, 2.0], [0.0, 0.0, -1.0]])
    with use(path):
        found = dispatch.columns(logits, ["log_odds", "second"])
    assert found["second"].tolist() == [3.0, 0.5, 0.0]
    log_odds = sample_stats(logits.double(), extras=["log_odds"]).log_odds
    torch.testing.assert_close(found["log_odds"], log_odds, rtol=1e-6, atol=0)


@needs_native
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("QUANTITIES", {"prediction": "index", "odds": "real"}, "expected 'columns prediction:index odds:real', got"),
        ("GAP_BINS", 1201, "expected 'gap_histogram 1201 -12 50', got 'gap_histogram 601 -12 50'"),
        ("ALL_SUMS", (*schema.ALL_SUMS, "entropy"), "expected 'sums .* entropy', got"),
        ("PULLS", schema.PULLS[::-1], "expected 'pulls on_margin .*', got 'pulls prediction .*'"),
        ("SAMPLES", schema.SAMPLES[1:], "expected 'samples counted .*', got 'samples target counted .*'"),
        ("TEMPERATURE", 5.0, "expected 'scores 5 0.1 100 2 10 5 200', got 'scores 4 0.1 100 2 10 5 200'"),
    ],
)
def test_a_library_of_another_table_is_refused(name, value, message, monkeypatch):
    monkeypatch.setattr(schema, name, value)
    with pytest.raises(RuntimeError, match=f"does not compute the numbers of core/schema.py: {message}"):
        loader._load(loader.LIBRARIES / build.file_name(loader.variant()))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Another folder of libraries, empty."""
    monkeypatch.setattr(loader, "LIBRARIES", tmp_path)
    loader.chosen.cache_clear(), loader.library.cache_clear()
    yield tmp_path
    loader.chosen.cache_clear(), loader.library.cache_clear()


MISSING = {
    "none": (None, "there was no C.. compiler when it was built"),
    "broken": (lambda data: b"no library", "cannot be loaded"),
    "old": (lambda data: data.replace(build.digest().encode(), b"0" * 16), "is older than the C.. code next to it"),
}


@pytest.mark.parametrize(("change", "reason"), MISSING.values(), ids=MISSING)
@needs_native
def test_without_a_library_torch_computes_and_says_why(folder, change, reason):
    if change is not None:
        name = build.file_name(next(iter(build.variants())))
        (folder / name).write_bytes(change((build.FOLDER / "lib" / name).read_bytes()))
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    assert sample_stats(logits).coins.prediction.item() == 2
    assert operators_compiled("auto")[0] == []
    with use("native"), pytest.raises(RuntimeError, match=f"the native path is not available: .*{reason}"):
        sample_stats(logits)


@needs_native
def test_a_slower_variant_serves_if_the_fastest_is_missing(folder):
    name = next(iter(build.variants()))
    shutil.copy(build.FOLDER / "lib" / build.file_name(name), folder)
    assert loader.variant() == name
