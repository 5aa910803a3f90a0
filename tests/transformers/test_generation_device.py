"""Recording reads nothing back from the device and takes a fixed number of bytes for each token."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from tests.dispatch import MemoryMeter, NoHostSync
from tests.transformers.cases import gpt2
from tests.transformers.generating import prompts
from torch_boc import ConformalTest
from torch_boc.transformers import BoCGeneration, Stop
from torch_boc.transformers.buffers import STEPS

CLASSES = 600


def steps(g, number, rows=3, candidates=3, device="cpu", classes=CLASSES):
    """The calls that `generate` makes: with more candidates than rows, as beam search does."""
    ids = torch.zeros(rows, 4, dtype=torch.long, device=device)
    for _ in range(number):
        scores = torch.randn(rows, classes, device=device)
        assert g(ids, scores) is scores
        token = torch.randint(classes, (candidates, 1), device=device)
        grown = torch.cat([ids.repeat(candidates // rows, 1), token], 1)
        stopped = g(grown, None)
        assert stopped.shape == (candidates,)
        assert stopped.dtype == torch.bool
        ids = grown if rows == candidates else grown[:rows]


def make_test():
    return ConformalTest().calibrate(torch.randn(200, CLASSES, generator=torch.Generator().manual_seed(0)))


def rules():
    yield "plain", lambda: BoCGeneration(eos_token_id=[])
    yield "stop", lambda: BoCGeneration(eos_token_id=[], stop=Stop("lost_coins", above=30.0, window=3))
    yield "rank", lambda: BoCGeneration(eos_token_id=[], stop=Stop("rank", above=30.0, window=3))
    yield "beams", lambda: BoCGeneration(eos_token_id=[], num_beams=3)
    yield (
        "test",
        lambda: BoCGeneration(eos_token_id=[], test=make_test(), stop=Stop("p_in_distribution", below=0.1, window=2)),
    )


@pytest.mark.parametrize("candidates", [3, 6], ids=["rows", "beams"])
@pytest.mark.parametrize(("name", "make"), list(rules()))
def test_nothing_is_read_back(name, make, candidates):
    g = make()
    with NoHostSync():
        steps(g, 5, candidates=candidates)
    if candidates == 3:
        assert [len(record) for record in g.trace.records] == [5, 5, 5] or name != "plain"


@pytest.mark.parametrize("candidates", [3, 6], ids=["rows", "beams"])
@pytest.mark.parametrize("stop", [None, Stop("confidence", below=0.1, window=2)])
def test_on_an_accelerator(candidates, stop):
    """Fake tensors have no values: whatever asks for one fails."""
    g = BoCGeneration(eos_token_id=[], stop=stop)
    with FakeTensorMode(), NoHostSync():
        steps(g, 3, candidates=candidates, device="cuda")


@pytest.mark.parametrize(("rivals", "test", "limit"), [(5, False, 84), (5, True, 88), (10, False, 124)])
@pytest.mark.parametrize("rows", [1, 8])
def test_bytes_of_a_token(rivals, test, limit, rows):
    live = []
    for pieces in (1, 3):
        with MemoryMeter() as meter:
            g = BoCGeneration(eos_token_id=[], rivals=rivals, test=make_test() if test else None)
            steps(g, pieces * STEPS, rows, rows)
            assert g._recording.nbytes == limit * rows * pieces * STEPS
            live.append(meter.live)
    # A token takes 8 bytes more in the ids of the last step, which are the tensor that `generate` returns.
    assert live[1] - live[0] == (limit + 8) * rows * 2 * STEPS
    assert limit + 8 <= 128 or rivals > 5


def test_scores_are_let_go():
    g = BoCGeneration(eos_token_id=[])
    steps(g, 2)
    assert g._recording._scored is None


def test_memory_does_not_grow_with_the_vocabulary():
    sizes = []
    for classes in (50, 5000):
        g = BoCGeneration(eos_token_id=[])
        steps(g, 3, classes=classes)
        sizes.append(g._recording.nbytes)
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=str)
def test_traces_of_long_texts_cross_pieces_of_the_buffers(options):
    model = gpt2().eval()
    model.config.n_positions = 400
    model.transformer.wpe = torch.nn.Embedding(400, 16)
    g = BoCGeneration(model)
    output = g.generate(model, **prompts(2), max_new_tokens=2 * STEPS + 5, pad_token_id=0, eos_token_id=None, **options)
    for record, sequence in zip(g.trace.records, output, strict=True):
        emitted = sequence[5:].tolist()
        assert record.tokens.tolist() == emitted[: len(record)]
        assert len(record) >= 2 * STEPS or set(emitted[len(record) :]) == {0}
