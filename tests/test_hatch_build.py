"""The build of the native libraries: nothing is compiled twice, and without a compiler the package is pure Python."""

import sys
from pathlib import Path

import pytest

import hatch_build

# A compiler that writes its arguments where its result belongs: the digest, which every library carries, is among them.
WRITES = "pathlib.Path(arguments[arguments.index('-o') + 1]).write_text(' '.join(arguments))"


@pytest.fixture
def hook(monkeypatch):
    """The module, and an environment that says nothing about compilers."""
    for name in ("CXX", "TORCH_BOC_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    if not hatch_build.load_plan().variants():
        pytest.skip("there is no native library for this kind of computer")
    return hatch_build


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Puts a stand-in for a compiler into $CXX."""

    def put(body):
        script = tmp_path / "compiler.py"
        script.write_text(f"import pathlib, sys\narguments = sys.argv[1:]\n{body}\n")
        monkeypatch.setenv("CXX", f"{sys.executable} {script}")

    return put


def test_each_variant_is_compiled_once(hook, compiler, tmp_path):
    compiler(WRITES)
    plan = hook.load_plan()
    libraries = hook.build(tmp_path / "lib")
    assert [path.name for path in libraries] == [plan.file_name(name) for name in plan.variants()]
    for path, flags in zip(libraries, plan.variants().values(), strict=True):
        words = set(path.read_text().split())
        assert {*plan.flags(), *flags, f'-DBOC_SOURCES="{plan.digest()}"'} <= words
        assert {str(x) for x in plan.sources() if x.suffix == ".cpp"} <= words
        assert not {"-ffast-math", "-march=native", "-fopenmp"} & words
    libraries[-1].write_text("made of other sources")
    hook.build(tmp_path / "lib")
    assert plan.digest() in libraries[-1].read_text()
    compiler("sys.exit('compiled again')")
    assert hook.build(tmp_path / "lib") == libraries


FAULTS = {
    "nothing on the path": ("", r"there is no C\+\+ compiler"),
    "a compiler that is not there": ("no-such-compiler", "no-such-compiler does not run"),
    "a compiler that fails": (f"{sys.executable} -c 1/0", "ZeroDivisionError"),
}


@pytest.mark.parametrize(("command", "message"), FAULTS.values(), ids=FAULTS)
def test_without_a_compiler_that_works(hook, monkeypatch, tmp_path, capsys, command, message):
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hook.build(tmp_path / "lib") == []
    assert "No native library is built, and torch's operations compute everything: " in capsys.readouterr().err
    assert not list(tmp_path.glob("lib/*"))
    monkeypatch.setenv("TORCH_BOC_NATIVE", "1")
    with pytest.raises(RuntimeError, match=message):
        hook.build(tmp_path / "lib")


def hatchling(hook, monkeypatch, version, folder):
    """What the hook tells hatchling about a wheel."""
    data = {"force_include": {}}
    monkeypatch.setattr(hook, "CODE", folder)
    target = object.__new__(hook.NativeLibraries)
    target.initialize(version, data)
    target.finalize(version, data, "")
    return data


def test_what_a_wheel_and_an_editable_installation_have(hook, compiler, monkeypatch, tmp_path):
    compiler(WRITES)
    plan = hook.load_plan()
    names = set(map(plan.file_name, plan.variants()))
    monkeypatch.setattr(hook, "load_plan", lambda: plan)
    data = hatchling(hook, monkeypatch, "standard", tmp_path)
    assert {Path(name).name for name in data["force_include"].values()} == names
    assert data["pure_python"] is False
    assert data["tag"].startswith("py3-none-")
    assert "any" not in data["tag"]
    assert not list(tmp_path.glob("lib/*"))
    assert hatchling(hook, monkeypatch, "editable", tmp_path) == {"force_include": {}}
    assert {path.name for path in tmp_path.glob("lib/*")} == names
    monkeypatch.setenv("TORCH_BOC_NATIVE", "0")
    assert hatchling(hook, monkeypatch, "standard", tmp_path) == {"force_include": {}}


@pytest.mark.parametrize(("target", "tag"), [("11.0", "macosx_11_0_arm64"), ("", "macosx_15_0_arm64")])
def test_the_tag_of_a_mac_names_the_oldest_system_that_is_served(hook, monkeypatch, target, tag):
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr("platform.mac_ver", lambda: ("15.6.1", ("", "", ""), "arm64"))
    monkeypatch.setenv("MACOSX_DEPLOYMENT_TARGET", target)
    assert hook._platform_tag() == tag
