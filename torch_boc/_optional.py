"""The one place that imports packages which torch_boc can do without, and names the extra that brings each."""

import sys
from importlib import import_module
from typing import Any

# What messages call a package, if not by its module; and the extra that brings it, if not `eval`.
NAMES = {"numpy": "NumPy", "pytorch_ood": "pytorch-ood", "ray": "Ray Data", "scipy": "SciPy", "sklearn": "scikit-learn"}
EXTRAS = {"ray": "ray", "rich": "cli", "transformers": "transformers"}


def require(package: str, *submodules: str, purpose: str) -> Any:
    """A package with the named submodules imported, or an ImportError that says how to get it.

    Args:
        package: the name of its module.
        submodules: their names below the package.
        purpose: the beginning of the message, such as "plots need".
    """
    names = [package, *(f"{package}.{name}" for name in submodules)]
    if None not in map(sys.modules.get, names):  # asked for once for each column of a wide table
        return sys.modules[package]
    try:
        module, *_ = [import_module(name) for name in names]
    except ImportError as error:
        extra = EXTRAS.get(package, "eval")
        raise ImportError(f"{purpose} {NAMES.get(package, package)}: pip install 'torch-boc[{extra}]'") from error
    return module


def require_pyarrow() -> Any:
    """PyArrow, for tables in files."""
    return require("pyarrow", "compute", "csv", "fs", "parquet", purpose="tables need")
