"""The scores of held-out samples, counted in buffers: what a conformal test is calibrated with."""

import copy
import json
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..functional.checks import are_probabilities, bare, check_classes, classes_last, probabilities_message
from ..functional.conformal import count_places, num_places
from ..functional.evidence import Evidence
from ..functional.screening import Placing, Scoring, check_scoring, place_samples

MOST_CLASSES = 2**62


class HeldOut(nn.Module):
    """Counts of the scores of held-out samples. `ConformalTest` documents the arguments.

    Attributes:
        counts: a buffer of shape (groups, places) in int64.
        invalid: a buffer, the number of rows with NaN or +inf, which are not counted.
        num_classes: the number of classes, or None before the first batch.
    """

    counts: Tensor
    invalid: Tensor

    def __init__(self, scoring: Scoring, num_classes: int | None, dim: int, validate_args: bool) -> None:
        super().__init__()
        self.scoring, self.dim, self.validate_args = check_scoring(scoring), dim, validate_args
        self._given_classes = None if num_classes is None else check_classes(num_classes)
        self.num_classes = self._given_classes
        self._rows = 0  # how many rows were given; the buffers are not read for it
        self._looked_at: dict[str, Tensor] = {}  # which batches were searched for probabilities, and whether they are
        with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
            self.register_buffer("counts", self._empty(torch.device("cpu")))
            self.register_buffer("invalid", torch.zeros((), dtype=torch.int64))

    @property
    def samples(self) -> Tensor:
        """The number of held-out samples in each group, int64, on the device."""
        return self.counts.sum(-1)

    @property
    def calibrated(self) -> bool:
        """Whether there are held-out samples; the device is not asked."""
        return self._rows > 0

    def update(self, preds: Tensor | Evidence, counted: Tensor | None = None) -> None:
        """Add a batch of held-out samples. No value is read back.

        Args:
            preds: logits of shape (..., C), or their evidence.
            counted: booleans of shape (...), which samples count; by default all, or those that the evidence counts.
        """
        if self._rows == 0:
            self._follow(
                preds.coins.odds.device if isinstance(preds, Evidence) else classes_last(preds, self.dim).device
            )
        placing = self.place(preds, "held-out")
        if counted is None and isinstance(preds, Evidence):
            counted = preds.counted
        unplaced = ~placing.valid
        if counted is not None:
            counted = counted.reshape(-1)
            placing, unplaced = placing._replace(valid=placing.valid & counted), unplaced & counted
        self.add(placing)
        self.invalid.add_(unplaced.sum())
        self._rows += len(placing.place)

    def merge(self, other: "HeldOut") -> Self:
        """Add the held-out samples of another test with the same arguments, for example of another process."""
        if other.scoring != self.scoring:
            raise ValueError(
                f"expected a test with {_described(self.scoring)}, got one with {_described(other.scoring)}"
            )
        if other.num_classes is not None:
            self._agree_on_classes(other.num_classes)
            self.counts.add_(other.counts.to(self.counts.device))
            self.invalid.add_(other.invalid.to(self.invalid.device))
        self._rows += other._rows
        return self

    def gathered(self, process_group: Any = None) -> Self:
        """A copy with the held-out samples of all processes; a plain copy if torch.distributed is not in use.

        All processes of the group must call it. This object stays as it is, so that no sample is counted twice.
        """
        whole = self.clone()
        with torch.inference_mode(False):  # as in `reset`
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                whole._add_other_processes(process_group)
        return whole

    def clone(self) -> Self:
        """A copy with buffers of its own."""
        other = copy.copy(self)
        with torch.inference_mode(False):
            other._buffers = {name: x if x is None else x.clone() for name, x in self._buffers.items()}
        other._looked_at = {}
        return other

    def _add_other_processes(self, process_group: Any) -> None:
        """Add the held-out samples of the other processes; if the classes differ, all processes raise."""
        if self._rows == 0 and torch.cuda.is_available() and torch.distributed.get_backend(process_group) == "nccl":
            self._follow(torch.device("cuda", torch.cuda.current_device()))  # without a batch it is still on the CPU
        own, device = self.num_classes, self.counts.device
        bounds = torch.tensor([own or 0, -(own or MOST_CLASSES)], device=device)
        torch.distributed.all_reduce(bounds, torch.distributed.ReduceOp.MAX, process_group)
        most, least = bounds.abs().tolist()
        if 0 < most != least:
            raise ValueError(f"expected the same number of classes in all processes, got {least} to {most}")
        if most:
            self._agree_on_classes(most)
        rows = torch.tensor(self._rows, device=device)
        for count in (self.counts, self.invalid, rows):
            torch.distributed.all_reduce(count, torch.distributed.ReduceOp.SUM, process_group)
        self._rows = int(rows)

    def reset(self) -> None:
        """Forget all held-out samples. Forget the number of classes, too, unless it was given as an argument."""
        device = self.counts.device
        self.num_classes, self._rows, self._looked_at = self._given_classes, 0, {}
        with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
            self.counts, self.invalid = self._empty(device), torch.zeros((), dtype=torch.int64, device=device)

    def place(self, preds: Tensor | Evidence, kind: str = "new", *, dim: int | None = None) -> Placing:
        """Where the samples of a batch are; raises if they cannot be compared with the held-out ones.

        Args:
            preds: logits, or their evidence.
            kind: the first batch of each kind is searched for probabilities.
            dim: the class axis of the logits, if it is not that of the test.
        """
        if not isinstance(preds, Evidence):
            return place_samples(self.comparable(preds, dim, kind), self.scoring)
        self._compare(preds.coins.odds.device, preds.num_classes)
        return place_samples(preds, self.scoring)

    def comparable(self, logits: Tensor, dim: int | None = None, kind: str = "new") -> Tensor:
        """The logits without a gradient and with the classes last; raises if they cannot be compared.

        Args:
            logits: the samples.
            dim: the class axis, if it is not that of the test.
            kind: as for `place`.
        """
        rows = bare(classes_last(logits, self.dim if dim is None else dim))
        self._compare(rows.device, rows.shape[-1])
        self._look(rows, kind)
        return rows

    def _compare(self, device: torch.device, classes: int) -> None:
        """Raise if samples on this device, with so many classes, cannot be compared with the held-out ones."""
        self._agree_on_classes(classes)
        if device != self.counts.device:
            raise ValueError(
                f"expected logits on {self.counts.device}, where the counts are, got {device}; move one with .to(...)"
            )

    def add(self, placing: Placing) -> None:
        """Count the samples of a batch, of which `place` has said where they are."""
        groups, places = self.counts.shape
        self.counts.add_(count_places(placing.place, placing.valid, places, placing.group, groups))

    def add_counts(self, counts: Tensor) -> Self:
        """Add held-out samples that were counted elsewhere, in the places of this test, and return the test.

        Args:
            counts: (places,), or (groups, places) with groups.
        """
        rows = counts if counts.ndim == 2 else counts.unsqueeze(0)
        if rows.dtype != torch.int64 or rows.shape != self.counts.shape:
            raise ValueError(
                f"expected counts of shape {tuple(self.counts.shape)} in int64, got shape {tuple(counts.shape)} in "
                f"{counts.dtype}"
            )
        self.counts.add_(rows)
        self._rows += int(counts.sum())
        return self

    def check_calibrated(self) -> None:
        """Raise if there are no held-out samples."""
        if self._rows == 0:
            raise ValueError("expected held-out samples to compare with, got none; call calibrate(logits) first")

    def _follow(self, device: torch.device) -> None:
        """Move to the device of the first batch."""
        if device != self.counts.device:
            with torch.inference_mode(False):
                self.to(device)

    def _agree_on_classes(self, classes: int) -> None:
        if self.num_classes is None:
            self.num_classes = classes
            if self.scoring.num_groups(classes) != len(self.counts):
                with torch.inference_mode(False):
                    self.counts = self._empty(self.counts.device)
        elif classes != self.num_classes:
            raise ValueError(
                f"expected logits with {self.num_classes} classes, as in the first batch, got {classes}; "
                "`dim` says where the classes are, and `reset` starts again"
            )

    def _empty(self, device: torch.device) -> Tensor:
        shape = self.scoring.num_groups(self.num_classes), num_places(self.scoring.resolution)
        return torch.zeros(shape, dtype=torch.int64, device=device)

    def _look(self, rows: Tensor, kind: str) -> None:
        """See whether the first batch has probabilities. On a CPU, the error comes at once; elsewhere, later."""
        if torch.compiler.is_compiling() or not self.validate_args or kind in self._looked_at or rows.numel() == 0:
            return
        self._looked_at[kind] = are_probabilities(rows, -1)
        if rows.device.type == "cpu":
            self.refuse_probabilities()

    def refuse_probabilities(self) -> None:
        """Raise if the first batch has probabilities. It reads from the device."""
        for kind, found in list(self._looked_at.items()):
            if bool(found):
                del self._looked_at[kind]
                remedy = "pass the logits, or preds.log(), or validate_args=False if they are logits after all"
                raise ValueError(probabilities_message(f"every row of the first {kind} batch", remedy))

    def get_extra_state(self) -> Tensor:
        """The arguments and the number of classes as bytes of JSON: a tensor, so that every file format can hold it."""
        settings = {**self.scoring._asdict(), "num_classes": self.num_classes}
        return torch.tensor(list(json.dumps(settings).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the number of rows; the rest was compared and set before the buffers were loaded."""
        self._rows = int(self.counts.sum()) + int(self.invalid)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state = state_dict.get(f"{prefix}_extra_state")
        if state is not None:
            settings = json.loads(bytes(state.tolist()).decode())
            classes, saved = settings.pop("num_classes"), Scoring(**settings)
            if saved != self.scoring:
                expected, got = _described(self.scoring), _described(saved)
                raise ValueError(f"expected the state of a test with {expected}, got that of one with {got}")
            if self._given_classes is None:
                self.reset()
            if classes is not None:
                self._agree_on_classes(classes)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return f"{_described(self.scoring)}, " + (f"{self._rows:,} held-out rows" if self._rows else "not calibrated")


def _described(scoring: Scoring) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in scoring._asdict().items())
