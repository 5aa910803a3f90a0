"""The records of generated sequences, from the steps of a recording."""

import torch
from torch import Tensor

from ..language.record import TokenRecord
from .beams import walk
from .buffers import Steps
from .endings import Endings


def sampled_records(steps: Steps, endings: Endings) -> list[TokenRecord]:
    """The record of each row, for greedy decoding and sampling."""
    return [_sampled(steps, row, endings) for row in range(steps.token.shape[1])]


def _sampled(steps: Steps, row: int, endings: Endings) -> TokenRecord:
    length, finish = endings.of(steps.token[:, row].tolist(), steps.stopped[:, row].tolist())
    if bool((steps.previous[:length, row] < 0).any()):
        raise ValueError(
            "expected rows that stay in their places from one step to the next, got reordered rows; this way of "
            "decoding cannot be recorded"
        )
    return _record(steps, [row] * length, finish)


def beam_records(
    sequences: Tensor, prompt: Tensor, steps: Steps, endings: Endings, items: int | None
) -> list[TokenRecord]:
    """The record of each sequence that a beam search returned.

    Args:
        sequences: (n, length) on the CPU, prompts included.
        prompt: (rows, length) on the CPU, the prompt of each beam.
        steps: what was recorded.
        endings: what ends a sequence.
        items: how many texts the beams belong to, if it is known.
    """
    start, candidates = prompt.shape[1], steps.token.shape[1]
    records = []
    for i, sequence in enumerate(sequences):
        begins = (steps.previous[0] >= 0) & (prompt[steps.previous[0].clamp_min(0)] == sequence[:start]).all(-1)
        if items is not None:
            begins &= torch.arange(candidates) * items // candidates == i * items // len(sequences)
        tokens = sequence[start:].tolist()
        records.append(_beam(tokens, steps, begins.nonzero().squeeze(1).tolist(), endings))
    return records


def _beam(tokens: list[int], steps: Steps, first: list[int], endings: Endings) -> TokenRecord:
    path = walk(tokens, steps, first)
    stopped = [bool(steps.stopped[step, row]) for step, row in enumerate(path)]
    length, finish = endings.of(tokens[: len(path)], stopped)
    rest = tokens[len(path) :]
    if finish != "eos" and (not path or len(set(rest)) > 1 or (rest and rest[0] not in _fillers(endings))):
        raise ValueError(
            "expected a sequence that was recorded, got another, or one whose rows match several texts; give the "
            "output of the last generate, with num_beams= for the recorder if the model has an encoder, and call "
            "g.reset() before another generate"
        )
    return _record(steps, path[:length], finish)


def _fillers(endings: Endings) -> set[int | None]:
    """What beam search fills the rows of short sequences with."""
    return {endings.pad, -1, *endings.eos}


def _record(steps: Steps, path: list[int], finish: str) -> TokenRecord:
    """The tokens in these rows, one of each step."""
    row = torch.tensor(path, dtype=torch.int64)
    step = torch.arange(len(path))
    return TokenRecord(
        steps.token[step, row],
        {name: column[step, row] for name, column in steps.columns.items()},
        steps.rivals[step, row],
        steps.rival_log_probabilities[step, row],
        finish=finish,
    )


def after_prompt(record: TokenRecord, prompt: TokenRecord) -> TokenRecord:
    """The record with its prompt before it; what the prompt has no numbers for is NaN."""
    missing = torch.full((len(prompt),), torch.nan, dtype=torch.float64)
    return TokenRecord(
        torch.cat([prompt.tokens, record.tokens]),
        {name: torch.cat([prompt.numbers.get(name, missing), x]) for name, x in record.numbers.items()},
        torch.cat([prompt.rivals, record.rivals]),
        torch.cat([prompt.rival_log_probabilities, record.rival_log_probabilities]),
        prompt_length=len(prompt),
        finish=record.finish,
    )


def unscored(tokens: Tensor, rivals: int) -> TokenRecord:
    """The record of a prompt without numbers."""
    nothing = torch.full((len(tokens), rivals), -1)
    return TokenRecord(tokens, {}, nothing, nothing.double() * torch.nan)
