"""`import torch_boc` costs little: everything else is imported when it is first asked for, and is found there."""

import ast
import subprocess
import sys
from pathlib import Path

import torch_boc
from tests.examples.blocks import first_snippet
from tests.installed import others

HEAVY = ("torchmetrics", "lightning", "pytorch_lightning", "transformers", "pandas", "matplotlib", "pyarrow", "ray")
PARTS = sorted(name for name in dir(torch_boc) if name.islower() and not name.startswith("_") and name != "watch")
PARTS = [name for name in PARTS if name not in ("bag_of_coins", "boc_metrics")]


def run(code):
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_imported_when():
    """The top level and the help need no torch; probing logits, as the workers of a fleet do, needs torch alone."""
    parts = "core", "kernels", "functional", "data", "nn", "inference", "ray"
    code = f"""
def loaded(*names):
    return [name for name in names if sys.modules.get(name)]

import torch_boc
from torch_boc.cli import main
print(loaded("torch", *{HEAVY}))
try:
    main(["--help"])
except SystemExit:
    pass
print(loaded("torch", *{HEAVY}))
import torch_boc.functional
print(loaded("torch._dynamo", *{HEAVY}))  # the compiler takes as long as torch itself
[getattr(torch_boc, name) for name in {parts}], torch_boc.bag_of_coins
print(loaded(*{HEAVY}))
print(*[getattr(torch_boc, name).__name__ for name in {PARTS}])
"""
    lines = run(code).splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[]"] * 4
    assert lines[-1].split() == [f"torch_boc.{name}" for name in PARTS]


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


def test_torch_and_torchmetrics_suffice():
    """The README's first example needs no more; what does names the extra to install."""
    missing = [name for name in others("torch", "torchmetrics") if name != "torch_boc"]
    assert {"pandas", "scipy", "sklearn", "matplotlib", "transformers", "lightning", "typer", "rich"} <= set(missing)
    code = f"""
import torchmetrics  # before the others are hidden: it imports some of them where they are installed
before = {{name: sys.modules[name] for name in {missing} if name in sys.modules}}
sys.modules.update(dict.fromkeys({missing}))  # a module that is None here cannot be imported
{first_snippet()}
import torch_boc
review = torch_boc.ConformalTest().calibrate(torch.randn(500, 10)).flag(torch.randn(50, 10), alpha=0.05)
print(review.shape, metric.compute()["gap"] > 0, torch_boc.bag_of_coins(torch.randn(5, 3)).gap.min() >= 0)
for name in {missing}:
    del sys.modules[name]
sys.modules.update(before)
sys.modules.update(dict.fromkeys(("pandas", "sklearn", "pyarrow", "pytorch_ood", "typer", "rich", "safetensors")))
from torch import nn
from torch_boc import *
assert nn is torch.nn
from torch_boc import calibration, evaluation
# Not before: torchmetrics imports these if they are installed.
sys.modules.update(dict.fromkeys(("lightning", "lightning.pytorch", "pytorch_lightning", "transformers")))
calibration.TemperatureScaling().fit(torch.tensor([[3.0, 0.0]] * 3), torch.tensor([0, 0, 1]))
for call in (lambda: torch_boc.lightning, lambda: torch_boc.transformers, lambda: evaluation.evaluate([[1.0, 2.0]])):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    first, *errors = run(code).splitlines()
    assert first == "torch.Size([50]) tensor(True) tensor(True)"
    for error, extra in zip(errors, ("lightning", "transformers", "eval"), strict=True):
        assert f"pip install 'torch-boc[{extra}]'" in error
