"""The prompts of a call of `generate`: without their padding, and scored if asked for."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..language.record import TokenRecord
from .scoring import score_tokens
from .sequences import unscored


class Prompts(NamedTuple):
    """The prompts of a batch.

    Attributes:
        model: what generates.
        ids: (B, L).
        mask: (B, L), 0 for padding; None if there is none.
    """

    model: Any
    ids: Tensor
    mask: Tensor | None

    @classmethod
    def of(cls, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "Prompts | None":
        """The prompts among the arguments of `generate`; None if there are none, or if they go to an encoder."""
        ids = next((x for x in (*args[:1], kwargs.get("input_ids"), kwargs.get("inputs")) if x is not None), None)
        if not isinstance(ids, Tensor) or ids.is_floating_point() or model.config.is_encoder_decoder:
            return None
        return cls(model, ids, kwargs.get("attention_mask"))

    @classmethod
    def scorable(cls, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "Prompts":
        """The prompts among the arguments of `generate`; or raise if they cannot get numbers."""
        found = cls.of(model, args, kwargs)
        if found is None:
            got = "a model with one" if model.config.is_encoder_decoder else "no input_ids"
            raise ValueError(
                f"expected input_ids for a model without an encoder for score_prompt=True, got {got}; take prompt=True"
            )
        return found

    def records(self, rivals: int, *, scored: bool) -> list[TokenRecord]:
        """A record for each prompt, with numbers if asked for."""
        if scored:
            with torch.no_grad():
                return score_tokens(self.model, self.ids, attention_mask=self.mask, rivals=rivals)
        present = torch.ones_like(self.ids) if self.mask is None else self.mask
        pairs = zip(self.ids.cpu(), present.cpu(), strict=True)
        return [unscored(row[kept != 0], rivals) for row, kept in pairs]
