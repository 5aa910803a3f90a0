"""From a recording to a trace."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..language.record import TokenRecord
from .arguments import check_same
from .endings import Endings
from .prompts import Prompts
from .recording import Recording
from .sequences import after_prompt, beam_records, sampled_records, unscored


def sequence_records(recording: Recording, sequences: Tensor | None, endings: Endings) -> list[TokenRecord]:
    """The records of the generated tokens. Beams need the sequences that `generate` returned, on the CPU."""
    steps, prompt = recording.read(), recording.prompt.cpu()
    if sequences is None:
        return sampled_records(steps, endings)
    if recording.has_beams:
        return beam_records(sequences, prompt, steps, endings, recording.items)
    generated = sequences[:, prompt.shape[1] :]
    steps = steps.upto(generated.shape[1])  # on some devices, there is a step more than `generate` returns
    check_same(generated, steps.token.T)
    return sampled_records(steps, endings)


def with_prompts(
    records: Sequence[TokenRecord], prompts: Prompts | None, tokens: Tensor, *, rivals: int, scored: bool
) -> list[TokenRecord]:
    """The records, each with its prompt before it.

    Args:
        records: of the generated tokens; those of one prompt stand together.
        prompts: those that `g.generate` was given.
        tokens: (N, L), the prompt of each record as `generate` saw it, padding included, for want of `prompts`.
        rivals: the number of rivals of the records.
        scored: whether the prompts get numbers.
    """
    if prompts is None:
        if scored:
            raise ValueError("expected g.trace for score_prompt=True, which has the prompts, got g.trace_of(output)")
        before = [unscored(row, rivals) for row in tokens]
    else:
        found = prompts.records(rivals, scored=scored)
        before = [found[i * len(found) // len(records)] for i in range(len(records))]
    return [after_prompt(record, prompt) for record, prompt in zip(records, before, strict=True)]


def masked_tokens(records: Sequence[TokenRecord], num_classes: int) -> int:
    """How many tokens were chosen from scores of which more than half were masked."""
    return sum(int((record.numbers["masked"] * 2 > num_classes).sum()) for record in records)


def sources(call: dict[str, Any], tokenizer: Any) -> list[Any]:
    """Where the settings of a call of `generate` are looked for, in this order."""
    model = getattr(call["model"], "generation_config", None)
    return [call, call.get("generation_config"), model, tokenizer]
