"""`BoCGeneration`: the numbers of each token that `model.generate` emits."""

import warnings
from typing import Any

from torch import Tensor

from ..data.finding import describe
from ..functional.tokens import RIVALS
from ..language.trace import Trace
from ..nn.conformal import ConformalTest
from .arguments import check_arguments, check_generates, check_output, check_scores, warn_of_masks, warn_of_unknown_ends
from .endings import find_endings, stated
from .prompts import Prompts
from .recording import Recording
from .stopping import Stop
from .traces import masked_tokens, sequence_records, sources, with_prompts


class BoCGeneration:
    """Records the numbers of the probe for each token that a language model emits, and can stop sequences by them.

        g = BoCGeneration(model, tokenizer)
        output = g.generate(**inputs)
        g.trace.save("trace.html")

    Use `g.generate` for batches: it sees the arguments of the call, and so which tokens end a sequence. Where something
    else calls `generate`, give it the object twice, and give the object `eos_token_id` if that call does:

        output = model.generate(**inputs, logits_processor=[g], stopping_criteria=[g])

    Padding counts as text if the object does not know the tokens that end a sequence. It warns if it knows none of them
    and there are several sequences.

    The same object is both a logits processor, which sees the scores, and a stopping criterion, which sees the token
    that was chosen. The scores pass through unchanged, so the text is the same as without it. Numbers are computed and
    kept on the device, 84 bytes for each token with 5 rivals (88 with a test), and nothing is read back before `trace`
    is. The buffers grow by 64 tokens at a time; with beams, every candidate takes as much. A new call of `generate`
    replaces the recording of the last one; if you give the very tensor that the last one returned as the new prompt,
    call `reset` first.

    Which scores: in `generate`, processors of your own come after penalties and suppressed tokens, and before
    temperature, top-k and top-p. So the numbers are those at temperature 1 over the whole vocabulary. A processor that
    you put before this one and that masks tokens with -inf changes them. The column `masked` counts such tokens. Where
    more than half of the vocabulary is masked, `gap`, `lost_coins`, `concentration` and `p_in_distribution` are NaN,
    because they would be artefacts of the mask, and `trace` warns once.

    Ways of decoding:

    - Greedy decoding and sampling are recorded.
    - Beam search is recorded with all of its candidates. Only the output says which of them became text: use
      `g.generate(model, ...)`, or `g.trace_of(output)`.
    - Assisted (speculative) decoding is refused.
    - Continuous batching is not recorded, because it does not say which sequence a row belongs to. The scores pass
      through, and a warning says so.

    Padding after the end of a sequence is cut off. `finish` of a record says why the sequence ended:

    - "eos": it has an end-of-sequence token;
    - "stop": the rule given here stopped it;
    - "length": it has as many new tokens as `max_new_tokens` or `max_length` allow. These are known if the call is
      `g.generate`, or if the model's generation config has them;
    - "": something else ended it.

    Args:
        model: what generates; it states the end-of-sequence and padding tokens.
        tokenizer: turns tokens into text in the trace; it states these tokens if the model does not.
        rivals: how many of the likeliest tokens to keep at each place.
        eos_token_id: the tokens that end a sequence, if you give other ones to `model.generate` than the model states;
            [] if there are none.
        pad_token_id: the padding token, likewise.
        num_beams: the number of beams. `g.generate` finds it by itself. Otherwise it is needed only if the model has an
            encoder and there are several texts in a batch.
        stop: a `Stop`, when to stop a sequence.
        test: a `ConformalTest`, calibrated with logits of trusted text. It adds the column `p_in_distribution`. Beam
            search normalises the logits first, so there its score must not depend on their mean, as `log_odds`.
        prompt: whether the prompt is a part of the records. With `g.generate` its padding is left out.
        score_prompt: whether the tokens of the prompt get numbers too, as if the model had emitted them. This takes
            another pass of the model over the prompt, because `generate` makes no logits there, and needs `g.generate`.
    """

    supports_continuous_batching = True

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        *,
        rivals: int = RIVALS,
        eos_token_id: int | list[int] | None = None,
        pad_token_id: int | None = None,
        num_beams: int | None = None,
        stop: Stop | None = None,
        test: ConformalTest | None = None,
        prompt: bool = False,
        score_prompt: bool = False,
    ) -> None:
        check_arguments(rivals, num_beams, stop, test)
        self.model, self.tokenizer, self.rivals, self.stop, self.test = model, tokenizer, rivals, stop, test
        # `generate` takes an attribute called eos_token_id for a sign of its own criterion.
        self._eos, self._pad, self._beams = eos_token_id, pad_token_id, num_beams
        self.prompt, self.score_prompt = prompt or score_prompt, score_prompt
        self._endings = find_endings(eos_token_id, pad_token_id, ())
        self._recording: Recording | None = None
        self._call: dict[str, Any] | None = None  # the arguments of `generate`, while it runs
        self._trace: Trace | None = None
        self._warned = False

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """As a logits processor, return the scores; as a stopping criterion, return which sequences are stopped."""
        if isinstance(scores, Tensor):
            self._take(input_ids, scores)
            return scores
        if not (scores is None or isinstance(scores, tuple)):
            raise TypeError(f"expected scores as a tensor, a tuple or None, got {describe(scores)}")
        if self._recording is None or not self._recording.waits:
            raise ValueError(
                "expected scores before their tokens, got tokens alone; give this object to generate twice: "
                "logits_processor=[g], stopping_criteria=[g]"
            )
        return self._recording.step(input_ids)

    def generate(self, model: Any = None, *args: Any, **kwargs: Any) -> Any:
        """What `model.generate(...)` returns, recorded: `trace` is then right in every way of decoding.

        Args:
            model: by default that of the constructor.
            args: as for `model.generate`.
            kwargs: as for `model.generate`; processors and criteria of your own come before this object.
        """
        model = self.model if model is None else model
        check_generates(model)
        find = Prompts.scorable if self.score_prompt else Prompts.of
        prompts = find(model, args, kwargs) if self.prompt else None
        own = {name: [*(kwargs.get(name) or []), self] for name in ("logits_processor", "stopping_criteria")}
        self.reset()
        self._call = {"model": model, **dict(zip(("inputs", "generation_config"), args, strict=False)), **kwargs}
        try:
            output = model.generate(*args, **{**kwargs, **own})
            self._trace = self._make_trace(check_output(output), prompts)
        finally:
            self._call = None
        return output

    def reset(self) -> None:
        """Forget the recording, so that the next call of `generate` begins a new one."""
        self._recording = self._trace = None

    @property
    def trace(self) -> Trace:
        """The tokens of the last call of `generate` with their numbers. Reading it waits for the device."""
        recording = self._recorded()
        if self._trace is not None:
            return self._trace
        if recording.has_beams:
            raise ValueError(
                "expected the output of the beam search, which says which beams became text, got none; use "
                "g.trace_of(output), or g.generate(model, ...) in place of model.generate(...)"
            )
        return self._make_trace(None, None)

    def trace_of(self, output: Any) -> Trace:
        """The trace of the sequences that the last call of `generate` returned: a tensor, or an output with it."""
        return self._make_trace(check_output(output), None)

    def _take(self, ids: Tensor, scores: Tensor) -> None:
        """Keep the scores of a step until its token is known."""
        if ids.ndim == 1:
            if not self._warned:
                warnings.warn("nothing is recorded in continuous batching: its rows have no identity", stacklevel=3)
            self._warned = True
            return
        check_scores(ids, scores)
        recording = self._recording
        if recording is not None and recording.waits:
            raise ValueError(
                "expected the token of the last scores, got more scores; give this object as stopping_criteria=[g] as "
                "well as logits_processor=[g]. Assisted (speculative) decoding cannot be recorded. If the last "
                "generate was interrupted, call g.reset()"
            )
        if recording is None or not recording.continues(ids, scores.shape[-1]):
            recording = self._recording = self._begin(ids, scores)
        recording.take(ids, scores)

    def _begin(self, ids: Tensor, scores: Tensor) -> Recording:
        """The recording of a call of `generate` that has just begun."""
        if self.score_prompt and self._call is None:
            raise ValueError("expected g.generate(model, ...) for score_prompt=True, got model.generate(...)")
        found = sources(self._call or {"model": self.model}, self.tokenizer)
        self._endings = find_endings(self._eos, self._pad, found, ids.shape[1])
        if len(ids) > 1 and self._call is None and self._eos is None and not self._endings.eos:
            warn_of_unknown_ends()
        self._trace = None
        beams = self._beams or stated("num_beams", found) or 1
        return Recording(
            ids,
            scores.shape[-1],
            rivals=min(self.rivals, scores.shape[-1]),
            num_beams=beams if beams > 1 else None,
            stop=self.stop,
            test=self.test,
        )

    def _recorded(self) -> Recording:
        if self._recording is None or len(self._recording.integers) == 0:
            raise ValueError(
                "expected a recorded call of generate, got none; use g.generate(model, ...), or "
                "model.generate(..., logits_processor=[g], stopping_criteria=[g])"
            )
        return self._recording

    def _make_trace(self, sequences: Tensor | None, prompts: Prompts | None) -> Trace:
        """The trace of these sequences, or of all rows; warn if masks spoil numbers in it."""
        recording = self._recorded()
        records = sequence_records(recording, sequences, self._endings)
        if self.prompt:
            tokens = (recording.prompt.cpu() if sequences is None else sequences)[:, : recording.prompt.shape[1]]
            records = with_prompts(records, prompts, tokens, rivals=recording.rivals, scored=self.score_prompt)
        if (spoiled := masked_tokens(records, recording.num_classes)) and not self._warned:
            self._warned = True
            warn_of_masks(spoiled)
        return Trace(records, num_classes=recording.num_classes, tokenizer=self.tokenizer)
