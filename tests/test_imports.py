"""`import torch_boc` costs little: everything else is imported when it is first asked for, and is found there."""

import ast
import subprocess
import sys
from pathlib import Path

import torch_boc

HEAVY = ("torchmetrics", "lightning", "pytorch_lightning", "transformers", "pandas", "matplotlib", "pyarrow")
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
    parts = "core, torch_boc.storage, torch_boc.kernels, torch_boc.functional, torch_boc.data, torch_boc.nn"
    assert run(f"import torch_boc\ntorch_boc.{parts}, torch_boc.bag_of_coins\nprint(heavy())") == "[]"


def test_every_part_is_an_attribute():
    assert {"core", "data", "lightning", "report", "storage", "transformers"} < set(PARTS)
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


def test_the_packages_of_the_adapters_may_be_missing():
    """`from torch_boc import *` needs none of them; each adapter says which extra brings what it needs."""
    code = """
from torch_boc import *
import torch_boc
print([name for name in ("lightning", "transformers") if name in globals() or f"torch_boc.{name}" in sys.modules])
sys.modules.update(dict.fromkeys(["lightning", "lightning.pytorch", "pytorch_lightning", "transformers"]))
for name in ("lightning", "transformers"):
    try:
        getattr(torch_boc, name)
    except ImportError as error:
        print(error)
"""
    none, lightning, transformers = run(code).splitlines()
    assert none == "[]"
    assert "pip install 'torch-boc[lightning]'" in lightning
    assert "pip install 'torch-boc[transformers]'" in transformers
