"""Held-out samples as counts of their scores: a state of fixed size that can be added, gathered, saved and moved."""

import copy
import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..functional import registry
from ..functional.checks import ProbabilityCheck, classes_last
from ..functional.per_sample import SampleStats
from ..functional.score_bins import (
    FINEST,
    GIVEN,
    BinnedScores,
    ScoreConfig,
    bin_scores,
    join_group,
    num_bins,
    score_bin,
)


class CheckedState(nn.Module):
    """A module whose state has its `settings`, and which rejects states with other ones, and damaged states."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_post_hook(_refuse_damaged)

    def _adds_up(self) -> bool:
        """Whether the numbers of the state are consistent; it reads from the device."""
        raise NotImplementedError

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that give the state its meaning."""
        raise NotImplementedError

    def get_extra_state(self) -> Tensor:
        """The settings as bytes of JSON: a tensor, which every file format can hold."""
        return torch.tensor(list(json.dumps(self.settings).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing: the settings were compared before the buffers were loaded."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        key = f"{prefix}_extra_state"
        saved = {} if state_dict.get(key) is None else json.loads(bytes(state_dict[key].tolist()))
        if key in state_dict and saved != self.settings:
            kind = type(self).__name__
            raise ValueError(
                f"expected the state of a {kind} with {_listed(self.settings)}, got that of one with {_listed(saved)}; "
                f"make the {kind} with these arguments"
            )
        self._resize(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _resize(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Give the buffers the shapes of those that are loaded next."""

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return _listed(self.settings)


def _refuse_damaged(module: CheckedState, keys: Any) -> None:
    """Raise if the loaded state is inconsistent; torch itself raises if it has missing parts."""
    if not keys.missing_keys and not module._adds_up():
        kind = type(module).__name__
        raise ValueError(f"expected the state of a {kind} whose counts add up, got a damaged one; make it again")


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def update_in_turn(parts: Sequence[Any], first: int, stats: SampleStats) -> None:
    """Add held-out samples to several objects in turn, sample i to that of index (first + i) modulo their number.

    The objects have the same arguments. The samples are binned once for all of them.
    """
    for part in parts:
        part.checked(stats, "held-out")
    whole, invalid = parts[0]._bin_held_out(stats)
    keyed = [parts[0]._keyed(binned) for binned in whole]
    for number, part in enumerate(parts):
        turn = slice((number - first) % len(parts), None, len(parts))
        some = [(x.bin[turn], None, x.valid[turn], None if x.prediction is None else x.prediction[turn]) for x in keyed]
        part._count([BinnedScores(*columns) for columns in some], invalid[turn])


class CalibrationCounts(CheckedState):
    """What `ConformalTest` and `Acceptance` have in common: counts of held-out samples by the bin of their score.

    Args:
        score: a name in `torch_boc.functional.scores`, as for `ConformalTest`, which documents the other arguments too.

    Attributes:
        counts: a buffer of shape (groups times `kinds`, bins) in int64.
        classes: a buffer of shape (C,), how often each class is predicted.
        invalid: a buffer, the number of rows that are not counted because their score is not a number.
        num_classes: the number of classes, or None before the first batch.
    """

    kinds = 1  # the rows of counts for each group
    groupings: tuple[str, ...] = ("prediction", "confidence")
    expected = "held-out logits without NaN and +inf"
    update: Callable[..., None]
    _bin_held_out: Callable[..., tuple[list[BinnedScores], Tensor]]
    counts: Tensor
    classes: Tensor
    invalid: Tensor
    num_classes: int | None
    _rows: int  # how many rows were given; the buffers are not read for it
    _memory: tuple[Tensor, int, dict[object, Any]] | None  # the counts, their version, and what was computed from them

    def __init__(
        self,
        score: str = "gen",
        groups: str | int | None = None,
        *,
        resolution: int | None = None,
        dim: int | None = None,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        if type(groups) is int and groups > 0:
            self.expected += f", and groups from 0 to {groups - 1}"
        elif groups not in (None, *self.groupings):
            known = ", ".join(map(repr, self.groupings))
            raise ValueError(f"expected groups as None, {known} or the number of your own groups, got {groups!r}")
        fine = resolution if resolution is not None else 1024 if groups in (None, "confidence") else 64
        self.scoring = ScoreConfig(score, groups, fine)
        name = self.scoring.name
        if name not in registry.scores and name != GIVEN:
            raise ValueError(f"expected score among {', '.join(registry.scores)} and {GIVEN}, got {score!r}")
        if name in registry.scores and registry.scores[name].upside_down:
            raise ValueError(f"expected a score that is higher in-distribution, got {name!r}; use 'log_p_value'")
        if name == GIVEN and isinstance(groups, str):
            raise ValueError(f"expected no groups by logits for scores that are given, got {groups!r}")
        if not (isinstance(fine, int) and 1 <= fine <= FINEST and fine.bit_count() == 1):
            raise ValueError(f"expected resolution as a power of two from 1 to {FINEST}, got {fine}")
        self.dim, self.validate_args = dim, validate_args
        self._start(torch.device("cpu"), None)

    @property
    def samples(self) -> Tensor:
        """The number of held-out samples in each group, int64, on the device."""
        return self.counts.sum(-1)

    @property
    def calibrated(self) -> bool:
        """Whether there are held-out samples; the device is not asked."""
        return self._rows > 0

    def _calibrate(self, *batch: Tensor | None, **named: Tensor | None) -> Self:
        """Replace all earlier batches by this one; raises if there is no row, or one is not counted."""
        self.reset()
        self.update(*batch, **named)
        self.refuse_probabilities()
        if invalid := int(self.invalid):
            self.reset()
            raise ValueError(f"expected {self.expected}, got {invalid} other rows; leave them out")
        self.check_calibrated()
        return self

    def add(self, binned: BinnedScores) -> None:
        """Count the samples of a batch."""
        bins, _, weight, prediction = self._keyed(binned)
        self.counts.view(-1).scatter_add_(0, bins.reshape(-1), weight.reshape(-1))
        if prediction is not None:
            self.classes.scatter_add_(0, prediction.reshape(-1), weight.reshape(-1))

    def _keyed(self, binned: BinnedScores) -> BinnedScores:
        """The bins among those of all groups, with a weight in int64 for each sample."""
        bins, group, valid, prediction = binned
        key = bins if group is None else torch.add(bins, group, alpha=self.counts.shape[-1])
        return BinnedScores(key, None, valid.long(), prediction)

    def _count(self, batch: Sequence[BinnedScores], invalid: Tensor) -> None:
        """Add held-out samples, which may be counted in several ways, and the number of those that are `invalid`."""
        for binned in batch:
            self.add(binned)
        self.invalid.add_(invalid.sum())
        self._rows, self._memory = self._rows + invalid.numel(), None

    def merge(self, other: Self) -> Self:
        """Add the held-out samples of another one with the same arguments, for example of another process."""
        if other.scoring != self.scoring:
            raise ValueError(f"expected a {type(self).__name__} with {self.scoring}, got one with {other.scoring}")
        if other.num_classes is not None:
            self._agree_on_classes(other.num_classes)
        if other._rows:
            for name in ("counts", "classes", "invalid"):
                getattr(self, name).add_(getattr(other, name).to(self.counts.device))
        self._rows, self._memory = self._rows + other._rows, None
        return self

    def all_reduced(self, process_group: Any = None) -> Self:
        """A copy with the held-out samples of all processes; a plain copy if torch.distributed is not in use.

        All processes of the group must call it. This object does not change, and no sample is counted twice. If the
        numbers of classes differ, all processes raise.
        """
        whole, distributed = self.clone(), torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return whole
        if self._rows == 0 and torch.cuda.is_available() and distributed.get_backend(process_group) == "nccl":
            whole.move_to(torch.device("cuda", torch.cuda.current_device()))  # without a batch it is still on the CPU
        sizes: list[Any] = [None] * distributed.get_world_size(process_group)
        distributed.all_gather_object(sizes, (self.num_classes, self._rows), process_group)
        numbers = sorted({classes for classes, _ in sizes if classes is not None})
        if len(numbers) > 1:
            raise ValueError(f"expected the same number of classes in all processes, got {numbers}")
        if numbers:
            whole._agree_on_classes(numbers[0])
        with torch.inference_mode(False):  # as in `_start`
            for count in (whole.counts, whole.classes, whole.invalid):
                distributed.all_reduce(count, group=process_group)
        whole._rows = sum(rows for _, rows in sizes)
        return whole

    def clone(self) -> Self:
        """A copy with buffers of its own."""
        other = copy.copy(self)
        with torch.inference_mode(False):
            other._buffers = {name: x if x is None else x.clone() for name, x in self._buffers.items()}
        other._first = {kind: ProbabilityCheck(first.kind) for kind, first in self._first.items()}
        return other

    def reset(self) -> None:
        """Forget all held-out samples, and the number of classes."""
        self._start(self.counts.device, None)

    def _start(self, device: torch.device, num_classes: int | None) -> None:
        """Begin without held-out samples."""
        self.num_classes = num_classes
        self._rows, self._memory = 0, None
        self._first = {kind: ProbabilityCheck(f"first {kind} batch") for kind in ("held-out", "new")}
        rows, bins = self.scoring.num_groups(num_classes) * self.kinds, num_bins(self.scoring.resolution)
        with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
            for name, shape in {"counts": (rows, bins), "classes": (num_classes or 0,), "invalid": ()}.items():
                self.register_buffer(name, torch.zeros(shape, dtype=torch.int64, device=device))

    def bin_scores(
        self,
        preds: Tensor | SampleStats | BinnedScores | None,
        kind: str = "new",
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> BinnedScores:
        """The bins of the samples of a batch; raises if they cannot be compared with the held-out ones."""
        if isinstance(preds, BinnedScores):
            return preds
        if (preds is None) == (scores is None):
            raise ValueError(f"expected logits or scores, got {'neither' if scores is None else 'both'}")
        given = self.scoring.name == GIVEN
        plain = not isinstance(self.scoring.groups, str)
        if scores is not None and plain and not given and kind == "held-out" and self._rows == 0:
            self.scoring, given = self.scoring._replace(score=GIVEN), True  # the first batch decides
        if given != (scores is not None):
            expected, got = ("scores", "logits") if given else ("logits", "scores")
            raise ValueError(
                f"expected {expected} for a test with {self.scoring}, got {got}; use one kind for all samples, and "
                "scores only without groups by logits"
            )
        if scores is None:
            binned = bin_scores(self.checked(preds, kind), self.scoring)  # type: ignore[arg-type]
            return join_group(binned, group, self.scoring.groups)
        if not isinstance(scores, Tensor) or not scores.is_floating_point():
            got = getattr(scores, "dtype", type(scores).__name__)
            raise TypeError(f"expected scores as a floating-point tensor, got {got}")
        self._check_bins(kind, scores.device)
        scores = -scores.detach() if self.scoring.score.startswith("-") else scores.detach()
        binned = BinnedScores(score_bin(scores, self.scoring.resolution), None, ~scores.isnan())
        return join_group(binned, group, self.scoring.groups)

    def checked(self, preds: Tensor | SampleStats, kind: str = "new", target: Tensor | None = None) -> Any:
        """The logits of a batch with the classes on the last axis, or its statistics; raises if it cannot be compared.

        Args:
            preds: logits, or their statistics.
            kind: "new", or "held-out" for samples to be added. The first batch of each is searched for probabilities.
            target: the targets, whose shape can tell the class axis.
        """
        if isinstance(preds, SampleStats):
            device, classes = preds.coins.odds.device, preds.num_classes
        else:
            preds = classes_last(preds, self.dim, target).detach()
            device, classes = preds.device, preds.shape[-1]
        if classes != self.num_classes:
            self._agree_on_classes(classes)
        self._check_bins(kind, device)
        if self.validate_args and isinstance(preds, Tensor):
            self._first[kind].check(preds)
        return preds

    def _check_bins(self, kind: str, device: torch.device) -> None:
        """Go to the device of the first held-out batch; raise for another device, or if there is nothing to compare."""
        if self._rows == 0:
            self.check_calibrated() if kind == "new" else self.move_to(device)
        if device != self.counts.device:
            raise ValueError(
                f"expected logits on {self.counts.device}, where the counts are, got {device}; move one with .to(...)"
            )

    def warn_of_invalid(self) -> None:
        """Raise if there are no held-out samples; warn if rows were left out. It reads from the device."""
        self.check_calibrated()
        if invalid := int(self.invalid):
            warnings.warn(f"{invalid} held-out rows were left out; expected {self.expected}", stacklevel=3)

    def check_calibrated(self) -> None:
        """Raise if there are no held-out samples."""
        if self._rows == 0:
            raise ValueError("expected held-out samples to compare with, got none; call calibrate(logits) first")

    def refuse_probabilities(self) -> None:
        """Raise if a first batch has probabilities. It reads from the device."""
        for first in self._first.values():
            first.raise_if_found()

    def move_to(self, device: torch.device) -> None:
        """Move to a device, if the counts are on another one."""
        if device != self.counts.device:
            with torch.inference_mode(False):  # as in `_start`
                self.to(device)

    def _agree_on_classes(self, classes: int) -> None:
        if self.num_classes is None:
            self._start(self.counts.device, classes)
        elif classes != self.num_classes:
            raise ValueError(
                f"expected logits with {self.num_classes} classes, as in the first batch, got {classes}; "
                "give `dim`, the class axis, or `reset` to start again"
            )

    def _cached(self, key: object, compute: Callable[[], Any]) -> Any:
        """What `compute` returns. It is computed again after the counts have changed, and in compiled code."""
        counts = self.counts
        if torch.compiler.is_compiling() or counts.is_inference():  # torch does not count changes in inference mode
            return compute()
        # The tensor itself is compared: a new tensor may have the id of an earlier one.
        if self._memory is None or self._memory[0] is not counts or self._memory[1] != counts._version:
            self._memory = counts, counts._version, {}
        computed = self._memory[2]
        if key not in computed:
            computed[key] = compute()
        return computed[key]

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold."""
        return {**vars(self), "_memory": None}

    @property
    def settings(self) -> dict[str, Any]:
        """How samples are scored and compared."""
        return self.scoring._asdict()

    def _adds_up(self) -> bool:
        """Whether no count is negative, and each sample has a bin and, unless its score was given, a class."""
        if type(self.counts) is not Tensor:  # a fake tensor has no values
            return True
        groups, classes = self.samples, self.classes
        if self.scoring.groups != "prediction":
            groups, classes = groups.sum(), classes.sum()
        numbers = (self.counts, self.classes, self.invalid)
        return all(bool((x >= 0).all()) for x in numbers) and (
            self.scoring.name == GIVEN or torch.equal(groups, classes)
        )

    def set_extra_state(self, state: Tensor) -> None:
        """Set the number of rows from the buffers that were loaded."""
        self._rows = int(self.counts.sum()) + int(self.invalid)

    def _resize(self, state_dict: dict[str, Any], prefix: str) -> None:
        self.reset()
        if classes := len(state_dict.get(f"{prefix}classes", ())):
            self._agree_on_classes(classes)

    def extra_repr(self) -> str:
        """The arguments, for `print(module)`."""
        return f"{super().extra_repr()}, " + (f"{self._rows:,} held-out rows" if self._rows else "not calibrated")
