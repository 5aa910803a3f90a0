"""What others expect of a model of transformers: its attributes through a wrapper, and an output that is a mapping."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .outputs import BoCOutput, ProbeOutput, ScreenedOutput

# The attributes of a model that pipelines, `generate` and Trainer ask for.
PASSED = (
    *("base_model_prefix", "can_generate", "config", "device", "dtype", "framework", "generate", "generation_config"),
    *("hf_device_map", "input_modalities", "main_input_name", "name_or_path", "output_modalities"),
    *("prepare_inputs_for_generation", "save_pretrained"),
)


class Passed:
    """An attribute of a wrapper that is that of the wrapped model. If the model has none, the wrapper has none."""

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the name of the attribute."""
        self.name = name

    def __get__(self, wrapper: Any, owner: type | None = None) -> Any:
        """The model's attribute."""
        return self if wrapper is None else getattr(wrapper.model, self.name)

    def __set__(self, wrapper: Any, value: Any) -> None:
        """Set the model's attribute."""
        setattr(wrapper.model, self.name, value)


def passes(cls: type) -> type:
    """A class decorator: the attributes `PASSED` are those of `self.model`."""
    for name in PASSED:
        attribute = Passed()
        attribute.__set_name__(cls, name)
        setattr(cls, name, attribute)
    return cls


def make_output(logits: Tensor, probe: ProbeOutput | ScreenedOutput | dict[str, Tensor], output: Any) -> BoCOutput:
    """What a wrapped classifier returns.

    If the output of the model is a `ModelOutput` of transformers, the result is one, too: a mapping with the entries of
    that output and the columns of the probe, which pipelines can move, cut into samples and read. Compiled and
    exported models return a plain `BoCOutput`, whose structure they must know beforehand.
    """
    kind = None if torch.compiler.is_compiling() else _model_output(type(output))
    return BoCOutput(logits, probe, output) if kind is None else _joined(kind)(logits, probe, output)


def _model_output(kind: type) -> type | None:
    """The class `ModelOutput` of transformers among the bases of a class; transformers need not be installed."""
    return next((x for x in kind.__mro__ if x.__name__ == "ModelOutput" and x.__module__[:13] == "transformers."), None)


@cache
def _joined(kind: Any) -> Any:
    """The class of outputs that are a `BoCOutput` and a `ModelOutput`, which is `kind`."""

    class BoCModelOutput(BoCOutput, kind):
        """A `BoCOutput` whose entries are those of the model's own output, and the columns of the probe."""

        def __new__(cls, *args: Any, **entries: Any) -> Any:
            # Libraries make changed copies of an output with type(output)(entries): these are plain mappings.
            return super().__new__(cls) if len(args) == 3 else kind(*args, **entries)

        def __init__(self, logits: Tensor, probe: Any, output: Any) -> None:
            columns = probe if isinstance(probe, dict) else probe._asdict()
            more = {name: column for name, column in columns.items() if name not in output}
            for name, value in {**output, **more}.items():
                self[name] = value  # an attribute of this name, too
            for name, value in {**columns, "logits": logits, "probe": probe, "output": output}.items():
                object.__setattr__(self, name, value)

        def __reduce__(self) -> Any:
            return make_output, (self.logits, self.probe, self.output)

    return BoCModelOutput
