"""`BoCGeneration`: the numbers of each token that `model.generate` emits."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import StopStringCriteria

from ..functional.tokens import RIVALS, TOKEN_COLUMNS, token_numbers
from ..language.record import TokenRecord
from ..language.trace import Trace

# The numbers of a token that are kept, before its rivals; the confidence follows from the odds. They are in float32,
# even token and rank, which are exact in it for vocabularies of up to 2^24 tokens. The last ones are about all classes,
# and a mask of -inf makes them meaningless.
OF_ALL_CLASSES = ("lost_coins", "gap", "concentration")
KEPT = ("token", "rank", "masked", "ended", "log_probability", "odds", "entropy", *OF_ALL_CLASSES)


class BoCGeneration:
    """Records the numbers of the probe for each token that a language model emits.

        g = BoCGeneration(model, tokenizer)
        output = g.generate(**inputs)
        g.trace.save("trace.html")

    The scores pass through unchanged, so the text is the same as without it. Numbers are computed and kept on the
    device, 80 bytes for each token with 5 rivals, and nothing is read back while the model generates. A new call of
    `generate` replaces the recording of the last one.

    Which scores: in `generate`, processors of your own come after penalties and suppressed tokens, and before
    temperature, top-k and top-p. So the numbers are those at temperature 1 over the whole vocabulary. A processor of
    your own that masks tokens with -inf changes them. The column `masked` counts such tokens. Where more than half of
    the vocabulary is masked, `gap`, `lost_coins` and `concentration` are NaN, because they would be artefacts of the
    mask, with a warning.

    Greedy decoding and sampling are recorded. Beam search and assisted (speculative) decoding are refused.

    Padding after the end of a sequence is cut off. `finish` of a record is why the sequence ended:

    - "eos": it has an end-of-sequence token;
    - "length": it reached the end of the call, as by `max_new_tokens`;
    - "": something else ended it, such as a stop string.

    Args:
        model: what generates.
        tokenizer: turns tokens into text in the trace.
        rivals: how many of the likeliest tokens to keep at each position.
        prompt: whether the prompt is a part of the records, without its padding. It has no numbers, because `generate`
            makes no logits there; `score_tokens` has them.
    """

    def __init__(self, model: Any, tokenizer: Any = None, *, rivals: int = RIVALS, prompt: bool = False) -> None:
        self.model, self.tokenizer, self.prompt, self.rivals = model, tokenizer, prompt, rivals
        self._trace: Trace | None = None

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """What `model.generate(...)` returns, recorded.

        Args:
            args: as for `model.generate`.
            kwargs: as for `model.generate`; processors of your own come before the recording.
        """
        call: dict[str, Any] = {**dict(zip(("inputs", "generation_config"), args, strict=False)), **kwargs}
        sources = call, call.get("generation_config"), getattr(self.model, "generation_config", None)
        criteria, tokenizer = [*(call.get("stopping_criteria") or [])], call.get("tokenizer")
        strings, eos = _stated("stop_strings", sources), _stated("eos_token_id", sources)
        if strings and tokenizer is not None:  # without it, `generate` has its own error
            criteria.append(StopStringCriteria(tokenizer, strings))
        recording, self._trace = Recording(criteria, self.rivals), None
        recorded = {
            "logits_processor": [*(call.get("logits_processor") or []), recording],
            "stopping_criteria": [recording],
        }
        output = self.model.generate(*args, **{**kwargs, **recorded})
        sequences = output if isinstance(output, Tensor) else output.sequences
        ends = torch.as_tensor([] if eos is None else eos).flatten().tolist()
        records = recording.records(ends, sequences.shape[1])
        spoiled = sum(int((record.numbers["masked"] * 2 > recording.num_classes).sum()) for record in records)
        if spoiled:
            warnings.warn(
                f"{spoiled} tokens were chosen from scores of which more than half were masked with -inf: their gap, "
                "lost_coins and concentration are NaN; leave out the processor that masks",
                stacklevel=2,
            )
        if self.prompt:
            records = self._with_prompts(records, recording.prompt, call.get("attention_mask"))
        self._trace = Trace(records, num_classes=recording.num_classes, tokenizer=self.tokenizer)
        return output

    @property
    def trace(self) -> Trace:
        """The tokens of the last call of `generate` with their numbers."""
        if self._trace is None:
            raise ValueError("expected a recorded call of generate, got none; call g.generate(...)")
        return self._trace

    def _with_prompts(self, records: list[TokenRecord], ids: Tensor, mask: Tensor | None) -> list[TokenRecord]:
        """The records with their prompts before them, without padding if the call has a mask of it."""
        if mask is None or mask.shape[1] != ids.shape[1] or self.model.config.is_encoder_decoder:
            mask = torch.ones_like(ids)
        joined = []
        for i, record in enumerate(records):
            prompt = ids[i][mask[i * len(mask) // len(ids)] != 0].cpu()  # the sequences of one prompt stand together
            before = (0, 0, len(prompt), 0)
            numbers = {name: pad(x, before[2:], value=torch.nan) for name, x in record.numbers.items()}
            lists = pad(record.rivals, before, value=-1), pad(record.rival_log_probabilities, before, value=torch.nan)
            tokens = torch.cat([prompt, record.tokens])
            joined.append(TokenRecord(tokens, numbers, *lists, prompt_length=len(prompt), finish=record.finish))
        return joined


def _stated(name: str, sources: Iterable[Any]) -> Any:
    """The value of this name in the first source that states it.

    A mapping holds the arguments of a call, so None in it is a statement too; in other sources None states nothing.
    """
    for source in sources:
        if isinstance(source, Mapping) and name in source:
            return source[name]
        if (value := getattr(source, name, None)) is not None:
            return value
    return None


class Recording:
    """One call of `generate`, step by step, on the device. No value is read back before `records`.

    As a logits processor it sees the scores, and as a stopping criterion the tokens that were chosen.

    Args:
        criteria: those of the call, which decide here which sequences end.
        rivals: how many of the likeliest tokens are kept.
    """

    def __init__(self, criteria: Sequence[Any], rivals: int) -> None:
        self.criteria, self.rivals = criteria, rivals
        self.rows: list[Tensor] = []  # one for each step
        self.scored: tuple[Tensor, Tensor] | None = None  # ids and scores whose token has not come yet
        self.moved: Tensor | bool = False

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """As a logits processor, return the scores; as a stopping criterion, return which sequences are ended."""
        before, kept = self.scored or (input_ids, None)
        processes = isinstance(scores, Tensor)
        if processes != (kept is None) or input_ids.shape != (len(before), before.shape[1] + (kept is not None)):
            _refuse()
        if processes:
            if not self.rows:
                self.prompt, self.num_classes = input_ids, scores.shape[-1]
            self.scored = (input_ids, scores.clone())  # a later processor may change them in place
            return scores
        assert kept is not None
        ended = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        for criterion in self.criteria:
            ended = ended | criterion(input_ids, scores)
        self.scored, self.moved = None, self.moved | (input_ids[:, :-1] != before).any()
        token, masked = input_ids[:, -1], kept.isneginf().count_nonzero(-1)
        numbers = token_numbers(kept, token.clamp(0, self.num_classes - 1), rivals=self.rivals)
        columns = {"token": token, "masked": masked, "ended": ended, **numbers._asdict()}
        for name in OF_ALL_CLASSES:
            columns[name] = columns[name].masked_fill(masked * 2 > self.num_classes, torch.nan)
        row = torch.stack([columns[name].float() for name in KEPT], -1)
        self.rows.append(torch.cat([row, numbers.rivals.float(), numbers.rival_log_probabilities.float()], -1))
        return ended

    def records(self, eos: Sequence[int], length: int) -> list[TokenRecord]:
        """The record of each of the returned sequences, which have this length. This waits for the device."""
        if not self.rows or bool(self.moved):
            _refuse()
        # On some devices there is a step more than `generate` returns.
        values, records = torch.stack(self.rows, 1).cpu()[:, : length - self.prompt.shape[1]].double(), []
        for steps in values:
            columns = dict(zip(KEPT, steps.T, strict=False))
            columns["confidence"] = (1.0 + columns["odds"]).reciprocal()
            chosen = torch.isin(columns["token"], torch.tensor(eos, dtype=torch.float64))
            ends = (chosen | (columns["ended"] > 0)).nonzero().flatten().tolist()
            end = ends[0] + 1 if ends else len(steps)
            finish = "length" if not ends else "eos" if chosen[ends[0]] else ""
            rivals, chances = steps[:end, len(KEPT) :].chunk(2, dim=-1)
            numbers = {name: columns[name][:end] for name in (*TOKEN_COLUMNS, "masked")}
            records.append(TokenRecord(columns["token"][:end].long(), numbers, rivals.long(), chances, finish=finish))
        return records


def _refuse() -> None:
    raise ValueError(
        "expected one token for each sequence at each step, got another way of decoding; use greedy decoding or "
        "sampling, with num_beams=1: beam search and assisted (speculative) decoding cannot be recorded"
    )
