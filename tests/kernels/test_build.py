"""The kernels for the CPU are compiled once, by whatever compiler there is, and their absence has a clear word."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.kernels.cases import needs_compiler
from torch_boc.functional import bag_of_coins
from torch_boc.kernels import build, use


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache, and a library that is looked for anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    build._library.cache_clear()
    yield tmp_path / "torch_boc" / "kernels"
    build._library.cache_clear()


def compiler(folder, body):
    """A stand-in for a compiler, as $CXX has it."""
    script = folder / "compiler.py"
    script.write_text(f"import subprocess, sys\narguments = sys.argv[1:]\n{body}\n")
    return f"{sys.executable} {script}"


@needs_compiler
def test_compiled_once(cache, monkeypatch):
    build.library()
    (path,) = cache.iterdir()
    build._library.cache_clear()
    monkeypatch.setattr(build, "_compile", None)
    build.library()
    assert list(cache.iterdir()) == [path]


@needs_compiler
def test_a_compiler_without_openmp(cache, monkeypatch, tmp_path):
    real = next(filter(None, map(shutil.which, build.COMPILERS)))
    body = f"sys.exit(1) if '-fopenmp' in arguments else sys.exit(subprocess.call([{real!r}, *arguments]))"
    monkeypatch.setenv("CXX", compiler(tmp_path, body))
    with use("compiled"):
        assert bag_of_coins(torch.tensor([[0.0, 1.0, 2.0]])).prediction.item() == 2


def test_no_compiler(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with use("compiled"), pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler .* choose another path"):
        bag_of_coins(torch.zeros(2, 3))


def test_a_compiler_that_is_not_there(cache, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"could not run the C\+\+ compiler no-such-compiler"):
        build.library()


def test_a_compiler_that_fails_says_why_and_leaves_nothing(cache, monkeypatch, tmp_path):
    body = "sys.exit(0) if '--version' in arguments else sys.exit('it went wrong')"
    monkeypatch.setenv("CXX", compiler(tmp_path, body))
    with pytest.raises(RuntimeError, match="it went wrong"):
        build.library()
    assert not list(cache.iterdir())


@needs_compiler
def test_a_cache_that_cannot_be_written(cache, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(RuntimeError, match=r"could not keep .* let \$XDG_CACHE_HOME name a folder"):
        build.library()


@needs_compiler
def test_threads_that_ask_at_once(cache):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: build.library(), range(3)))
    assert found == [found[0]] * 3
    assert len(list(cache.iterdir())) == 1
