"""`pip install torch-boc` alone brings torch and torchmetrics, and the README's first example needs no more."""

import subprocess
import sys

from tests.installed import others
from tests.snippets import first_snippet, runnable, undefined

# As if nothing else were installed: a module that is None in `sys.modules` cannot be imported.
BLOCK = "import sys\nsys.modules.update(dict.fromkeys({names!r}))\n"


def run(code, *, names):
    """The outcome of `code` in a process that cannot import the modules `names`."""
    command = [sys.executable, "-c", BLOCK.format(names=names) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def blocked():
    """All that is installed and that torch and torchmetrics do not need, besides this package."""
    return [name for name in others("torch", "torchmetrics") if name != "torch_boc"]


def test_the_example_runs_on_torch_and_torchmetrics_alone():
    shown = "\nprint(review.shape, monitor.alarm, coins.gap.shape, coins.gap.min() >= 0)"
    done = run(runnable(first_snippet()) + shown, names=blocked())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0].startswith("torch.Size([500]) ")
    assert done.stdout.strip().endswith("torch.Size([500]) tensor(True)")


def test_the_packages_of_the_extras_are_blocked():
    """Otherwise the test above would prove nothing."""
    names = blocked()
    assert {"pandas", "scipy", "sklearn", "matplotlib", "transformers", "lightning", "typer", "rich"} <= set(names)
    assert not {"torch", "torchmetrics", "numpy", "packaging", *sys.stdlib_module_names} & set(names)
    done = run("from torch_boc._optional import require_pyarrow\nrequire_pyarrow()", names=names)
    assert "pip install 'torch-boc[eval]'" in done.stderr


def test_names_that_nobody_has_defined():
    assert undefined("import a.b, c as d\nx = e(d, a)\nfor y in z:\n    print(x, y)") == ["e", "z"]
    assert undefined(first_snippet()) == ["new_logits", "validation_logits"]
