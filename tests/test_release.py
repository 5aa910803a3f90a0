"""What is stated in several files says the same in all of them: the version, versions of Python and torch, licences."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import torch_boc
from tests import release
from torch_boc import zoo

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_version_has_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "torch_boc/__init__.py"}
    assert str(read("CITATION.cff")["version"]) == torch_boc.__version__


def test_the_tests_run_on_the_versions_that_are_promised():
    matrix = read(".github/workflows/tests.yml")["jobs"]["suite"]["strategy"]["matrix"]
    classifiers = [x.rpartition(" ")[2] for x in PROJECT["project"]["classifiers"] if ":: Python :: 3." in x]
    assert matrix["python"] == classifiers
    assert PROJECT["project"]["requires-python"] == f">={classifiers[0]}"
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_the_oldest_versions_are_those_of_the_lower_bounds():
    (versions,) = re.findall(r"'(torch==[^']+)'", (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    bounds = dict(x.split(">=") for x in PROJECT["project"]["dependencies"])
    assert dict(x.split("==") for x in versions.split()) == {name: f"{bound}.0" for name, bound in bounds.items()}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_more_rights_than_it_needs(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"].startswith(path.stem)
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job or "uses" in job
        for step in [step for step in job.get("steps", []) if "uses" in step]:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
            if step["uses"].startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_publishes_runs_nothing_of_ours():
    """Code that could change the files must not hold the right to publish them."""
    jobs = read(".github/workflows/publish.yml")["jobs"]
    (name,) = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert [step["uses"].partition("@")[0] for step in jobs[name]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert jobs[name]["needs"] == "wheels"
    assert jobs["wheels"]["needs"] == "version"


def named():
    """What the table of names and licences must have a row for."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    wanted += [*PROJECT["dependency-groups"]["release"], *(x for extra in extras for x in extra)]
    return [*sorted({re.match(r"[\w-]+", x)[0] for x in wanted} - {"torch-boc"}), *zoo.names()]


@pytest.mark.parametrize("name", named())
def test_the_table_of_licences_is_complete(name):
    rows = [line for line in (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert any(name in re.findall(r"[\w.-]+", row.split("|")[1]) for row in rows)


def test_what_is_shipped_names_its_licences():
    assert PROJECT["project"]["license-files"] == ["LICENSE", "THIRD_PARTY.md"]


def test_a_wheel_is_weighed(tmp_path, capsys):
    file = tmp_path / "some-1.0-py3-none-any.whl"
    with release.zipfile.ZipFile(file, "w") as packed:
        packed.writestr("large.npz", bytes(2_000_000))
        for index in range(3):
            packed.writestr(f"small-{index}.py", bytes(1_000))
    release.weigh(file)
    first, large, rest = capsys.readouterr().out.splitlines()
    assert first == "release-check: some-1.0-py3-none-any.whl: 2.00 MB"
    assert large.split() == ["2.00", "MB", "large.npz"]
    assert rest.split(None, 2) == ["0.00", "MB", "3 other files"]


def test_a_command_that_fails_ends_the_check():
    with pytest.raises(SystemExit, match="exit code 3 of "):
        release.run(release.sys.executable, "-c", "raise SystemExit(3)")
