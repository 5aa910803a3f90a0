"""`import torch_boc` costs little: everything else is imported when it is first asked for, and is found there."""

import ast
import subprocess
import sys
from pathlib import Path

import torch_boc

HEAVY = ("torchmetrics", "lightning", "pytorch_lightning", "transformers", "pandas", "matplotlib", "pyarrow", "ray")
PARTS = sorted(name for name in dir(torch_boc) if name.islower() and not name.startswith("_") and name != "watch")
PARTS.remove("bag_of_coins")


def run(code):
    """What a fresh process prints."""
    code = f"import sys\nHEAVY = {HEAVY}\nheavy = lambda: [name for name in HEAVY if sys.modules.get(name)]\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_top_level_imports_nothing_heavy():
    assert run("import torch_boc\nprint(heavy(), 'torch' in sys.modules)") == "[] False"


def test_probing_logits_needs_torch_alone():
    """So do the workers of a fleet, each of which imports what it runs."""
    parts = "core", "kernels", "functional", "data", "nn", "inference", "ray"
    code = f"import torch_boc\n[getattr(torch_boc, name) for name in {parts}], torch_boc.bag_of_coins\nprint(heavy())"
    assert run(code) == "[]"


def test_ray_is_imported_when_a_function_needs_it():
    assert run("import torch_boc.ray\nprint(torch_boc.ray.predict.__name__, sys.modules.get('ray'))") == "predict None"


def test_every_part_is_an_attribute():
    assert {"core", "data", "lightning", "ray", "report", "transformers"} < set(PARTS)
    code = f"import torch_boc\nprint(*[getattr(torch_boc, name).__name__ for name in {PARTS}])"
    assert run(code).split() == [f"torch_boc.{name}" for name in PARTS]


def test_type_checkers_see_what_is_there():
    """Imports under TYPE_CHECKING never run, so that a wrong one would tell mypy another thing in silence."""
    (block,) = (node for node in ast.parse(Path(torch_boc.__file__).read_text()).body if isinstance(node, ast.If))
    seen = set()
    for node in block.body:
        home = torch_boc if node.module is None else getattr(torch_boc, node.module)
        for alias in node.names:
            name = alias.asname or alias.name
            assert getattr(torch_boc, name) is getattr(home, alias.name)
            seen.add(name)
    assert seen | {"__version__"} == set(dir(torch_boc))


def test_the_packages_of_the_extras_may_be_missing():
    """`from torch_boc import *` and temperature scaling need none of them; the others say which extra to install."""
    missing = ("pandas", "sklearn", "pyarrow", "pytorch_ood", "typer", "rich", "safetensors")
    adapted = ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers")
    code = f"""
sys.modules.update(dict.fromkeys({missing}))
from torch_boc import *
import torch, torch_boc
sys.modules.update(dict.fromkeys({adapted}))  # not before: torchmetrics imports transformers if it is installed
print([name for name in ("lightning", "transformers") if name in globals() or f"torch_boc.{{name}}" in sys.modules])
assert all(hasattr(evaluation, name) for name in evaluation.__all__)
calibration.calibrators()
calibration.TemperatureScaling().fit(torch.tensor([[3.0, 0.0]] * 3), torch.tensor([0, 0, 1]))
for call in (lambda: torch_boc.lightning, lambda: torch_boc.transformers, lambda: evaluation.evaluate([[1.0, 2.0]])):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    none, *errors = run(code).splitlines()
    assert none == "[]"
    for error, extra in zip(errors, ("lightning", "transformers", "eval"), strict=True):
        assert f"pip install 'torch-boc[{extra}]'" in error
