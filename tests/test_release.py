"""What is stated in several files says the same in all of them: the version, versions of Python and torch, licences."""

import re
import tomllib
from pathlib import Path

import yaml

import torch_boc
from torch_boc import zoo

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_versions():
    """That of the package has one place; the tests of every push run on those of Python and torch that are promised."""
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "torch_boc/__init__.py"}
    assert str(read("CITATION.cff")["version"]) == torch_boc.__version__
    matrix = read(".github/workflows/tests.yml")["jobs"]["suite"]["strategy"]["matrix"]
    classifiers = [x.rpartition(" ")[2] for x in PROJECT["project"]["classifiers"] if ":: Python :: 3." in x]
    assert matrix["python"] == classifiers
    assert PROJECT["project"]["requires-python"] == f">={classifiers[0]}"
    (oldest,) = re.findall(r"'(torch==[^']+)'", (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    bounds = dict(x.split(">=") for x in PROJECT["project"]["dependencies"])
    assert f"OLDEST := {oldest}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert dict(x.split("==") for x in oldest.split() if "==" in x) == {
        name: f"{bound}.0" for name, bound in bounds.items()
    }


def test_what_publishes_runs_nothing_of_ours():
    """Code that could change the files must not hold the right to publish them; actions are named by their commits."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}
        steps = [step["uses"] for job in workflow["jobs"].values() for step in job.get("steps", []) if "uses" in step]
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step) for step in steps)
    jobs = read(".github/workflows/publish.yml")["jobs"]
    (name,) = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert [step["uses"].partition("@")[0] for step in jobs[name]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]


def test_the_table_of_licences_is_complete():
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    wanted += [*PROJECT["dependency-groups"]["release"], *(x for extra in extras for x in extra)]
    names = {re.match(r"[\w-]+", x)[0] for x in wanted} - {"torch-boc"} | {*zoo.names()}
    rows = [line for line in (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    listed = {word for row in rows for word in re.findall(r"[\w.-]+", row.split("|")[1])}
    assert names <= listed
    assert PROJECT["project"]["license-files"] == ["LICENSE", "THIRD_PARTY.md"]
