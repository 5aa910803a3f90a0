"""The build of the native libraries: nothing is compiled twice, and without a compiler the package is pure Python."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A compiler that writes its arguments where its result belongs: the digest, which every library carries, is among them.
WRITES = "pathlib.Path(arguments[arguments.index('-o') + 1]).write_text(' '.join(arguments))"


@pytest.fixture
def hook(monkeypatch):
    """The module, and an environment that says nothing about compilers."""
    for name in ("CXX", "TORCH_BOC_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.load_plan().variants():
        pytest.skip("there is no native library for this kind of computer")
    return module


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Puts a stand-in for a compiler into $CXX."""

    def put(body):
        script = tmp_path / "compiler.py"
        script.write_text(f"import pathlib, sys\narguments = sys.argv[1:]\n{body}\n")
        monkeypatch.setenv("CXX", f"{sys.executable} {script}")

    return put


def test_a_library_for_each_variant(hook, compiler, tmp_path, capsys):
    compiler(WRITES)
    plan = hook.load_plan()
    found = hook.build(tmp_path / "lib")
    assert [path.name for path in found] == [plan.file_name(name) for name in plan.variants()]
    for path, flags in zip(found, plan.variants().values(), strict=True):
        words = path.read_text().split()
        assert {*plan.flags(), *flags, f'-DBOC_SOURCES="{plan.digest()}"'} <= set(words)
        assert [word for word in words if word.endswith(".cpp")] == [
            str(x) for x in plan.sources() if x.suffix == ".cpp"
        ]
        assert not {"-ffast-math", "-march=native", "-fopenmp"} & set(words)
    assert capsys.readouterr().err.startswith("torch_boc: Compiling ")


def test_what_is_there_is_not_compiled_again(hook, compiler, tmp_path, capsys):
    compiler(WRITES)
    first = hook.build(tmp_path / "lib")
    compiler("sys.exit('compiled again')")
    capsys.readouterr()
    assert hook.build(tmp_path / "lib") == first
    assert capsys.readouterr().err == ""


def test_what_is_old_is_compiled_again(hook, compiler, tmp_path):
    compiler(WRITES)
    *_, last = hook.build(tmp_path / "lib")
    last.write_text("made of other sources")
    hook.build(tmp_path / "lib")
    assert hook.load_plan().digest() in last.read_text()


NO_COMPILER = r"there is no C\+\+ compiler"
FAULTS = {
    "nothing on the path": ("", NO_COMPILER),
    "a compiler that is not there": ("no-such-compiler", "no-such-compiler does not run"),
    "a compiler that fails": (f"{sys.executable} -c 1/0", "ZeroDivisionError"),
}


@pytest.mark.parametrize(("command", "message"), FAULTS.values(), ids=FAULTS)
def test_without_a_compiler_that_works(hook, monkeypatch, tmp_path, capsys, command, message):
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hook.build(tmp_path / "lib") == []
    err = capsys.readouterr().err
    assert "torch_boc: No native library is built, and torch's operations compute everything: " in err
    assert message.replace("\\", "") in err
    assert not list(tmp_path.glob("lib/*"))
    monkeypatch.setenv("TORCH_BOC_NATIVE", "1")
    with pytest.raises(RuntimeError, match=message):
        hook.build(tmp_path / "lib")


def test_left_out_on_request(hook, compiler, monkeypatch, tmp_path, capsys):
    compiler(WRITES)
    monkeypatch.setenv("TORCH_BOC_NATIVE", "0")
    assert hook.build(tmp_path / "lib") == []
    assert capsys.readouterr().err == "torch_boc: TORCH_BOC_NATIVE=0: no native library is built.\n"


def test_another_kind_of_computer(hook, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("platform.machine", lambda: "sparc64")
    assert hook.build(tmp_path / "lib") == []
    assert "there is none for " in capsys.readouterr().err


def hatchling(hook, monkeypatch, version, folder):
    """What the hook tells hatchling about a wheel."""
    data = {"force_include": {}}
    monkeypatch.setattr(hook, "CODE", folder)
    target = object.__new__(hook.NativeLibraries)
    target.initialize(version, data)
    target.finalize(version, data, "")
    return data


def test_a_wheel_has_the_libraries_and_the_tag_of_the_platform(hook, compiler, monkeypatch, tmp_path):
    compiler(WRITES)
    plan = hook.load_plan()
    monkeypatch.setattr(hook, "load_plan", lambda: plan)
    data = hatchling(hook, monkeypatch, "standard", tmp_path)
    assert list(data["force_include"].values()) == [
        f"torch_boc/kernels/cpu/lib/{plan.file_name(name)}" for name in plan.variants()
    ]
    assert data["pure_python"] is False
    assert data["tag"].startswith("py3-none-")
    assert "any" not in data["tag"]
    assert not list(tmp_path.glob("lib/*"))


MACS = {"11.0": "macosx_11_0_arm64", "14": "macosx_14_0_arm64", "12.3": "macosx_12_0_arm64", "": "macosx_15_0_arm64"}


@pytest.mark.parametrize(("target", "tag"), MACS.items(), ids=lambda x: x or "none")
def test_the_tag_of_a_mac_names_the_oldest_system_that_is_served(hook, monkeypatch, target, tag):
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr("platform.mac_ver", lambda: ("15.6.1", ("", "", ""), "arm64"))
    monkeypatch.setenv("MACOSX_DEPLOYMENT_TARGET", target)
    assert hook._platform_tag() == tag


def test_a_wheel_without_them_is_pure(hook, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_BOC_NATIVE", "0")
    assert hatchling(hook, monkeypatch, "standard", tmp_path) == {"force_include": {}}


def test_an_editable_installation_has_them_in_the_tree(hook, compiler, monkeypatch, tmp_path):
    compiler(WRITES)
    plan = hook.load_plan()
    monkeypatch.setattr(hook, "load_plan", lambda: plan)
    assert hatchling(hook, monkeypatch, "editable", tmp_path) == {"force_include": {}}
    assert {path.name for path in tmp_path.glob("lib/*")} == set(map(plan.file_name, plan.variants()))
