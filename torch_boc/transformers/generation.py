"""`BoCGeneration`: the numbers of each token that `model.generate` emits."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import StopStringCriteria

from ..data.finding import describe
from ..functional.tokens import RIVALS, TOKEN_COLUMNS, token_numbers
from ..language.record import TokenRecord
from ..language.trace import Trace

# The buffer grows by this many steps at a time.
STEPS = 64
# The numbers of a token in the buffer, before its rivals; the confidence follows from the odds. They are in float32,
# also token and rank, which are exact in it for vocabularies of up to 2^24 tokens. The last ones are about all classes,
# so that a mask of -inf makes them meaningless.
OF_ALL_CLASSES = ("lost_coins", "gap", "concentration")
KEPT = ("token", "rank", "masked", "ended", "log_probability", "odds", "entropy", *OF_ALL_CLASSES)


class BoCGeneration:
    """Records the numbers of the probe for each token that a language model emits.

        g = BoCGeneration(model, tokenizer)
        output = g.generate(**inputs)
        g.trace.save("trace.html")

    Use `g.generate` for batches: it sees the arguments of the call, and so which tokens end a sequence. Where something
    else calls `generate`, give it the object twice, and give the object `eos_token_id` if that call does:

        output = model.generate(**inputs, logits_processor=[g], stopping_criteria=[g])

    Padding counts as text if the object does not know the tokens that end a sequence. It warns if it knows none of them
    and there are several sequences. Stop strings and criteria of your own need `g.generate` as well if the padding
    token also ends sequences: otherwise the first padding of a sequence that they ended counts as its end.

    The same object is both a logits processor, which sees the scores, and a stopping criterion, which sees the token
    that was chosen. The scores pass through unchanged, so the text is the same as without it. Numbers are computed and
    kept on the device, 80 bytes for each token with 5 rivals, and nothing is read back before `trace` is. The buffers
    grow by 64 tokens at a time. A new call of `generate` replaces the recording of the last one; if you give the very
    tensor that the last one returned as the new prompt, call `reset` first.

    Which scores: in `generate`, processors of your own come after penalties and suppressed tokens, and before
    temperature, top-k and top-p. So the numbers are those at temperature 1 over the whole vocabulary. A processor that
    you put before this one and that masks tokens with -inf changes them. The column `masked` counts such tokens. Where
    more than half of the vocabulary is masked, `gap`, `lost_coins` and `concentration` are NaN, because they would be
    artefacts of the mask, and `trace` warns.

    Greedy decoding and sampling are recorded. Beam search and assisted (speculative) decoding are refused. Continuous
    batching is not recorded, because it does not say which sequence a row belongs to: transformers then leaves this
    object out.

    Padding after the end of a sequence is cut off. `finish` of a record says why the sequence ended:

    - "eos": it has an end-of-sequence token;
    - "length": it has as many new tokens as `max_new_tokens` or `max_length` allow. These are known if the call is
      `g.generate`, or if the model's generation config has them;
    - "": something else ended it, such as a stop string.

    Args:
        model: what generates; it states the end-of-sequence and padding tokens.
        tokenizer: turns tokens into text in the trace; it states these tokens if the model does not.
        rivals: how many of the likeliest tokens to keep at each place.
        eos_token_id: the tokens that end a sequence, if you give other ones to `model.generate` than the model states;
            [] if there are none.
        prompt: whether the prompt is a part of the records. With `g.generate` its padding is left out. It has no
            numbers, because `generate` makes no logits there; `score_tokens` has them.
    """

    supports_continuous_batching = False

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        *,
        rivals: int = RIVALS,
        eos_token_id: int | list[int] | None = None,
        prompt: bool = False,
    ) -> None:
        if isinstance(rivals, bool) or not isinstance(rivals, int) or rivals < 1:
            raise ValueError(f"expected rivals as a positive integer, got {rivals!r}")
        self.model, self.tokenizer, self.prompt, self.rivals = model, tokenizer, prompt, rivals
        # `generate` takes an attribute called eos_token_id for a sign of its own criterion.
        self._eos = eos_token_id
        self._endings = Endings.find(eos_token_id, ())  # or an error
        self._recording: Recording | None = None
        self._call: dict[str, Any] = {}  # the arguments of `generate`, while it runs
        self._criteria: list[Any] = []  # those of the call, which this object asks
        self._trace: Trace | None = None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """As a logits processor, return the scores; as a stopping criterion, return which sequences are stopped."""
        recording = self._recording
        waits = recording is not None and recording.scored is not None
        if not isinstance(scores, Tensor):
            if recording is None or not waits:
                raise ValueError(
                    "expected scores before their tokens, got tokens alone; give this object to generate twice: "
                    "logits_processor=[g], stopping_criteria=[g]"
                )
            ended = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
            for criterion in self._criteria:
                ended = ended | criterion(input_ids, scores)
            recording.step(input_ids, ended)
            return ended
        if waits:
            raise ValueError(
                "expected the token of the last scores, got more scores; give this object as stopping_criteria=[g] as "
                "well as logits_processor=[g]. Assisted (speculative) decoding cannot be recorded. If the last "
                "generate was interrupted, call g.reset()"
            )
        # `generate` hands the same tensor to both calls, so that another one begins a new recording.
        if recording is None or input_ids is not recording.last or scores.shape[-1] != recording.num_classes:
            recording = self._recording = self._begin(input_ids, scores.shape[-1])
        recording.scored = (input_ids, scores.clone())  # a later processor may change them in place
        return scores

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """What `model.generate(...)` returns, recorded.

        Args:
            args: as for `model.generate`.
            kwargs: as for `model.generate`; processors and criteria of your own come before this object.
        """
        if not callable(getattr(self.model, "generate", None)):
            raise TypeError(f"expected a model that generates, got {describe(self.model)}; give BoCGeneration(model)")
        own = {"logits_processor": [*(kwargs.get("logits_processor") or []), self], "stopping_criteria": [self]}
        self.reset()
        self._call = {**dict(zip(("inputs", "generation_config"), args, strict=False)), **kwargs}
        self._criteria = [*(kwargs.get("stopping_criteria") or [])]
        strings, tokenizer = _stated("stop_strings", self._sources()), kwargs.get("tokenizer")
        if strings and tokenizer is not None:  # without it, `generate` has its own error
            self._criteria.append(StopStringCriteria(tokenizer, strings))
        try:
            output = self.model.generate(*args, **{**kwargs, **own})
            self._trace = self._make_trace(output if isinstance(output, Tensor) else output.sequences)
        finally:
            self._call, self._criteria = {}, []
        return output

    def reset(self) -> None:
        """Forget the recording, so that the next call of `generate` begins a new one."""
        self._recording = self._trace = None

    @property
    def trace(self) -> Trace:
        """The tokens of the last call of `generate` with their numbers. Reading it waits for the device."""
        return self._trace or self._make_trace()

    def _sources(self) -> tuple[Any, ...]:
        """What states the settings of a call of `generate`, the first one first."""
        config = getattr(self.model, "generation_config", None)
        return self._call, self._call.get("generation_config"), config, self.tokenizer

    def _begin(self, ids: Tensor, num_classes: int) -> "Recording":
        """The recording of a call of `generate` that has just begun."""
        self._endings = Endings.find(self._eos, self._sources(), ids.shape[1])
        if len(ids) > 1 and not self._call and self._eos is None and not self._endings.eos:
            warnings.warn(
                "expected the tokens that end the sequences of a batch, got none: padding after the end of a sequence "
                "counts as its text; use g.generate(...) in place of model.generate(...), or give BoCGeneration the "
                "model or eos_token_id=, which is [] if no token ends a sequence",
                stacklevel=3,
            )
        self._trace = None
        return Recording(ids, num_classes, min(self.rivals, num_classes))

    def _make_trace(self, sequences: Tensor | None = None) -> Trace:
        """The trace of all rows."""
        recording = self._recording
        if recording is None or recording.steps == 0:
            raise ValueError(
                "expected a recorded call of generate, got none; use g.generate(...), or "
                "model.generate(..., logits_processor=[g], stopping_criteria=[g])"
            )
        # On some devices there is a step more than `generate` returns.
        length = None if sequences is None else sequences.shape[1] - recording.prompt.shape[1]
        records = recording.records(self._endings, length)
        if self.prompt:
            records = self._with_prompts(records, recording.prompt)
        spoiled = sum(int((record.numbers["masked"] * 2 > recording.num_classes).sum()) for record in records)
        if spoiled:
            warnings.warn(
                f"{spoiled} tokens were chosen from scores of which more than half were masked with -inf: their gap, "
                "lost_coins and concentration are NaN; put the processor that masks (top-k, top-p) after this one",
                stacklevel=3,
            )
        return Trace(records, num_classes=recording.num_classes, tokenizer=self.tokenizer)

    def _with_prompts(self, records: list[TokenRecord], ids: Tensor) -> list[TokenRecord]:
        """The records with their prompts before them, without padding if the call has a mask of it."""
        mask = self._call.get("attention_mask")
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


class Endings(NamedTuple):
    """What ends sequences.

    Attributes:
        eos: the tokens that end a sequence.
        pad: the token that fills the rows of sequences that have ended; None if it is not known.
        limit: the most new tokens of a sequence; None if it is not known.
    """

    eos: frozenset[int]
    pad: int | None
    limit: int | None = None

    @classmethod
    def find(cls, eos: Any, sources: Sequence[Any], start: int = 0) -> "Endings":
        """The endings as given, or from the first source that states them: mappings, configs or tokenizers.

        As in `generate`, `max_new_tokens` of any source counts before `max_length` of any, which counts the prompt of
        the length `start` too.
        """
        ends = _stated("eos_token_id", sources) if eos is None else eos
        pad, new, whole = (_stated(name, sources) for name in ("pad_token_id", "max_new_tokens", "max_length"))
        limit = whole - start if new is None and whole is not None else new
        ends = torch.as_tensor([] if ends is None else ends).flatten().tolist()
        return cls(frozenset(ends), None if pad is None else int(pad), limit)

    def of(self, tokens: Sequence[int], ended: Sequence[int]) -> tuple[int, str]:
        """How many of the tokens were emitted, and why the sequence ended; "" if something else ended it.

        Args:
            tokens: what was generated, with the padding after the end.
            ended: whether a criterion had ended the sequence at each token.

        >>> Endings(frozenset([2]), 0).of([5, 7, 2, 0, 0], [0] * 5)
        (3, 'eos')
        """
        length = len(tokens)
        while length and tokens[length - 1] == self.pad:
            length -= 1
        for place, (token, end) in enumerate(zip(tokens, ended, strict=True), start=1):
            if token in self.eos:
                return place, "eos"
            if end:
                return place, "length" if place == self.limit else ""
        return length, "length" if length == self.limit else ""


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
    """One call of `generate`, step by step, in a buffer on the device. No value is read back before `records`.

    Args:
        ids: (rows, length), the tokens before the first step.
        num_classes: the size of the vocabulary.
        rivals: how many of the likeliest tokens are kept.
    """

    def __init__(self, ids: Tensor, num_classes: int, rivals: int) -> None:
        self.prompt, self.num_classes, self.rivals = ids, num_classes, rivals
        self.pieces: list[Tensor] = []  # of the buffer
        self.steps = 0
        self.scored: tuple[Tensor, Tensor] | None = None  # ids and scores whose token has not come yet
        self.last: Tensor | None = None  # the ids after the last step
        self._moved = torch.zeros((), dtype=torch.bool, device=ids.device)

    def step(self, ids: Tensor, ended: Tensor) -> None:
        """Record the last tokens of `ids`, and which sequences others have `ended`."""
        assert self.scored is not None
        (before, rows), self.scored = self.scored, None
        expected = (len(before), before.shape[1] + 1)
        if ids.shape != expected:
            raise ValueError(
                f"expected a token for each sequence, and so ids of shape {expected}, got {tuple(ids.shape)}; use "
                "greedy decoding or sampling, with num_beams=1: beam search cannot be recorded"
            )
        self.last, self._moved = ids, self._moved | (ids[:, :-1] != before).any()
        token, masked = ids[:, -1], rows.isneginf().count_nonzero(-1)
        numbers = token_numbers(rows, token.clamp(0, self.num_classes - 1), rivals=self.rivals)
        found = {"token": token, "masked": masked, "ended": ended, **numbers._asdict()}
        for name in OF_ALL_CLASSES:
            found[name] = found[name].masked_fill(masked * 2 > self.num_classes, torch.nan)
        row = torch.stack([found[name].float() for name in KEPT], -1)
        row = torch.cat([row, numbers.rivals.float(), numbers.rival_log_probabilities.float()], -1)
        if self.steps % STEPS == 0:
            self.pieces.append(row.new_empty((STEPS, *row.shape)))
        self.pieces[-1][self.steps % STEPS] = row
        self.steps += 1

    def records(self, endings: Endings, length: int | None = None) -> list[TokenRecord]:
        """The record of each row, of the first `length` steps or of all. This waits for the device."""
        if bool(self._moved):
            raise ValueError(
                "expected rows that stay in their places from one step to the next, got reordered rows; this way of "
                "decoding cannot be recorded"
            )
        values = torch.cat([piece.cpu() for piece in self.pieces])[: self.steps][:length].double()
        records = []
        for steps in values.unbind(1):
            found = dict(zip(KEPT, steps.T, strict=False))
            found["confidence"] = (1.0 + found["odds"]).reciprocal()
            end, finish = endings.of(found["token"].long().tolist(), found["ended"].tolist())
            rivals, chances = steps[:end, len(KEPT) :].chunk(2, dim=-1)
            numbers = {name: found[name][:end] for name in (*TOKEN_COLUMNS, "masked")}
            records.append(TokenRecord(found["token"][:end].long(), numbers, rivals.long(), chances, finish=finish))
        return records
