"""Find the logits in whatever a classifier returns."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def find_logits(output: Any) -> Tensor:
    """The logits in a model's output: the tensor itself, the "logits" of a mapping, or the attribute `logits`.

    A tuple or list is refused: which of its tensors are the logits is a guess that would be wrong silently.

    >>> find_logits({"loss": torch.tensor(0.5), "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        logits = output.get("logits")
        found = f"a {type(output).__name__} with keys {', '.join(map(str, output)) or 'none'}"
    else:
        logits = getattr(output, "logits", None)
        found = f"a {type(output).__name__}"
    if isinstance(logits, Tensor):
        return logits
    raise TypeError(
        "expected a model output that is a tensor, a mapping with 'logits' or an object with .logits, "
        f"got {found}; wrap the model in a module whose forward returns the logits, as in `return self.model(x)[0]`"
    )
