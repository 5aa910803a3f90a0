"""The one place that imports packages which torch_boc can do without, and names the extra that brings each."""

import sys
from importlib import import_module
from typing import Any

# The name of each package in messages, and the extra that brings it.
PACKAGES = {
    "matplotlib": ("matplotlib", "eval"),
    "numpy": ("NumPy", "eval"),
    "pandas": ("pandas", "eval"),
    "pyarrow": ("pyarrow", "eval"),
    "pytorch_ood": ("pytorch-ood", "eval"),
    "ray": ("Ray Data", "ray"),
    "rich": ("rich", "cli"),
    "safetensors": ("safetensors", "eval"),
    "scipy": ("SciPy", "eval"),
    "sklearn": ("scikit-learn", "eval"),
    "tqdm": ("tqdm", "eval"),
    "transformers": ("transformers", "transformers"),
}


def require(package: str, *submodules: str, purpose: str) -> Any:
    """A package with the named submodules imported, or an ImportError that says how to get it.

    Args:
        package: a key of `PACKAGES`.
        submodules: their names below the package.
        purpose: the beginning of the message, such as "plots need".
    """
    names = [package, *(f"{package}.{name}" for name in submodules)]
    if None not in map(sys.modules.get, names):  # asked for once for each column of a wide table
        return sys.modules[package]
    try:
        module, *_ = [import_module(name) for name in names]
    except ImportError as error:
        called, extra = PACKAGES[package]
        raise ImportError(f"{purpose} {called}: pip install 'torch-boc[{extra}]'") from error
    return module


def require_pyarrow() -> Any:
    """PyArrow, for tables in files."""
    return require("pyarrow", "compute", "csv", "fs", "parquet", purpose="tables need")
