"""Native libraries: only those of the package's own folder, never an old one, and a clear word if there is none."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.kernels.cases import needs_native
from torch_boc.functional import bag_of_coins
from torch_boc.kernels import use
from torch_boc.kernels.cpu import library, openmp, variants

ROOT = Path(__file__).parents[2]
LOGITS = torch.tensor([[0.0, 1.0, 2.0]])


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Another folder of libraries, empty."""
    monkeypatch.setattr(library, "LIBRARIES", tmp_path)
    library._chosen.cache_clear()
    library._load.cache_clear()
    yield tmp_path
    library._chosen.cache_clear()
    library._load.cache_clear()


def put(folder, variant="baseline", data=None):
    """A library in the folder, with other bytes or as it is."""
    name = variants.file_name(variant)
    path = folder / name
    if data is None:
        shutil.copy(variants.FOLDER / "lib" / name, path)
    else:
        path.write_bytes(data)
    return path


def assert_torch_computes():
    assert not library.available()
    assert library.variant() is None
    assert bag_of_coins(LOGITS).prediction.item() == 2
    with use("native"), pytest.raises(RuntimeError, match="the native path is not available: "):
        bag_of_coins(LOGITS)


@needs_native
def test_the_fastest_that_the_cpu_can_run():
    assert library.variant() == library.present()[-1]
    assert library.why_not() == ""
    assert library.library() is library.library(library.variant())


@needs_native
@pytest.mark.skipif("avx2" not in variants.variants(), reason="x86-64 has several variants")
@pytest.mark.parametrize(("capability", "variant"), [("default", "baseline"), ("avx2", "avx2"), ("avx512", "avx512")])
def test_torch_says_what_the_cpu_can_run(capability, variant):
    code = "import torch; from torch_boc.kernels.cpu.library import variant\n"
    code += "print(torch.backends.cpu.get_cpu_capability(), variant())"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    word, chosen = run.stdout.split()
    if word.lower() != capability:
        pytest.skip(f"this CPU has {word} only")
    assert chosen == variant


def test_no_library(folder):
    assert_torch_computes()
    assert "there was no C++ compiler when it was built" in library.why_not()


def test_another_kind_of_computer(folder, monkeypatch):
    monkeypatch.setattr(library, "variants", dict)
    assert_torch_computes()
    assert library.why_not() == "there is no native library for this kind of computer"


def test_a_library_that_cannot_be_loaded(folder):
    for name in variants.variants():
        put(folder, name, b"no library")
    assert_torch_computes()
    assert "cannot be loaded" in library.why_not()


@needs_native
def test_a_library_that_is_older_than_the_code(folder):
    name = library.present()[0] if library.present() else next(iter(variants.variants()))
    path = variants.FOLDER / "lib" / variants.file_name(name)
    put(folder, name, path.read_bytes().replace(variants.digest().encode(), b"0123456789abcdef"))
    assert_torch_computes()
    assert "is older than the C++ code beside it: run `make native`" in library.why_not()


@needs_native
def test_a_slower_one_serves_if_the_fastest_is_missing(folder):
    name = next(iter(variants.variants()))
    put(folder, name)
    assert (library.available(), library.variant()) == (True, name)
    assert bag_of_coins(LOGITS).prediction.item() == 2


def test_the_digest_follows_sources_and_names(tmp_path):
    seen = {variants.digest(tmp_path)}
    assert seen == {""}
    for name, text in (("a.cpp", "x"), ("a.cpp", "y"), ("b.h", "x"), ("c.py", "x")):
        (tmp_path / name).write_text(text)
        seen.add(variants.digest(tmp_path))
    assert len(seen) == 4


@needs_native
def test_threads_that_ask_at_once(folder):
    for name in variants.variants():
        put(folder, name)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: bag_of_coins(LOGITS).odds.item(), range(3)))
    assert found == [found[0]] * 3


def _threads(pipe):
    pipe.send(library.threads())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert library.threads() == 2
        mine, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_threads, args=(theirs,))
        child.start()
        assert mine.recv() == 1
        child.join()
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform != "linux", reason="torch for Linux brings OpenMP")
def test_the_openmp_of_torch():
    assert len(openmp.parallel_functions()) == len(openmp.NAMES)
    assert "omp" in Path(openmp.openmp()).name
    assert openmp.openmp() in openmp._loaded()
