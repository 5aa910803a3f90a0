"""Acceptance as a module: the guarantee on real logits, the sets, and what is rejected."""

import math
import warnings

import pytest
import torch

from tests.functional.cases import random_logits
from torch_boc import Acceptance, zoo
from torch_boc.functional import sample_stats, scores

KINDS = {"plain": {}, "by class": {"groups": "prediction", "resolution": 256}}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())


def samples(rows=3000, seed=1, sharpness=2.0):
    """Logits, and targets that are drawn from the softmax of the sharpened logits."""
    logits = random_logits(rows, 5, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    return logits, torch.multinomial((sharpness * logits).softmax(-1), 1, generator=generator)[:, 0]


def calibrated(rows=3000, **options):
    return Acceptance(**options).calibrate(*samples(rows))


@kinds
def test_accepted_are_scores_from_the_threshold_on(options):
    accept, (logits, target) = calibrated(**options), samples()
    accepted = accept.accept(logits, 0.1, 0.1)
    threshold, group = accept.threshold(0.1, delta=0.1), logits.argmax(-1)
    log_odds, by_class = scores["log_odds"](logits), bool(options)
    least = threshold.score[group] if by_class else threshold.score
    assert torch.equal(accepted, log_odds.float() >= least.float())
    assert 0.05 < accepted.double().mean() < 0.95
    members = torch.nn.functional.one_hot(group).double() if by_class else torch.ones(len(group), 1).double()
    coverage = (members * accepted[:, None]).sum(0) / members.sum(0)
    torch.testing.assert_close(threshold.coverage.double().reshape(-1), coverage, rtol=1e-6, atol=0)
    wrong = (logits.argmax(-1) != target).double()
    assert ((members * (wrong * accepted)[:, None]).sum(0) <= 0.1 * (members * accepted[:, None]).sum(0)).all()


def test_samples_at_the_threshold_are_accepted():
    logits = torch.eye(5)[0] * torch.tensor([9.0, 7.0, 1.0]).repeat_interleave(500)[:, None]
    accept = Acceptance().calibrate(logits, (torch.arange(1500) >= 1000).long())
    assert accept.threshold().coverage == pytest.approx(2 / 3)
    assert torch.equal(accept(logits), torch.arange(1500) < 1000)


def test_groups_of_the_users_own_are_as_many_separate_acceptances():
    (logits, target), site = samples(4000), torch.arange(4000) % 3
    target = torch.where(site == 2, target.flip(0), target)  # a site where the network is no good
    whole = Acceptance(groups=3)
    for rows in torch.arange(4000).split(900):
        whole.update(logits[rows], target[rows], group=site[rows])
    new, new_site = samples(500, seed=2)[0], torch.arange(500) % 5 - 1
    with pytest.warns(match="in 1 of 3 groups, of which the largest has 1333 held-out"):
        accepted, threshold = whole.accept(new, 0.1, group=new_site), whole.threshold(0.1)
    for number in range(2):
        one = Acceptance(resolution=64).calibrate(logits[site == number], target[site == number])
        assert torch.equal(accepted[new_site == number], one.accept(new[new_site == number], 0.1))
        assert [x[number] for x in threshold] == [*one.threshold(0.1)]
        assert threshold.coverage[number] > 0.1
    assert not accepted[(new_site < 0) | (new_site > 1)].any()  # unknown, or without a threshold
    whole.update(logits, target, group=site + 1)
    assert whole.invalid == 1333


COVERED = {"minilm-clinc150": 0.87, "resnet20-cifar10": 0.69, "roberta-agnews": 0.2, "vit-cifar10": 0.21}


@pytest.mark.parametrize("name", COVERED)
def test_the_guarantee_holds_on_real_logits(name):
    """20 random splits at 1 % and 95 %; the observed error of the other half varies around the true one."""
    entry = zoo.load(name)
    test, splits = entry.test_and_splits()
    held_out = next(iter(splits.values()))
    logits, target = torch.cat([held_out.logits, test.logits]), torch.cat([held_out.target, test.target])
    covered, broken = 0.0, 0
    for seed in range(20):
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
        first, second = order[: len(held_out)], order[len(held_out) :]
        accept = Acceptance().calibrate(logits[first], target[first])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "nothing can be accepted")
            accepted = accept.accept(logits[second])
        covered += accepted.double().mean() / 20
        broken += (logits[second].argmax(-1) != target[second])[accepted].double().mean() > 0.01
    assert covered >= COVERED[name]
    assert broken <= 3


@pytest.mark.parametrize(
    ("coverage", "nonempty", "by_class"),
    [(0.6, False, False), *((0.9, x, y) for x in (False, True) for y in (False, True)), (0.95, False, False)],
)
def test_sets_are_those_of_ranks_and_cover(coverage, nonempty, by_class):
    """By sorting; and the coverage is reached on the samples of each class, or on all of them."""
    (held_out, target), (new, truth) = samples(20_000), samples(40_000, seed=2)
    accept = Acceptance("prediction", resolution=2**10).calibrate(held_out, target)
    options = {"nonempty": nonempty, "by_class": by_class}
    sets, probability = accept.sets(new, coverage, **options), held_out.softmax(-1).gather(1, target[:, None])[:, 0]
    own = torch.where(held_out.argmax(-1) == target, math.inf, probability) if nonempty else probability
    chosen = [target == c for c in range(5)] if by_class else [target >= 0] * 5
    ranks = [math.floor((1 - coverage) * (int(x.sum()) + 1) + 1e-9) for x in chosen]
    limits = torch.stack([own[x].sort().values[rank - 1] for x, rank in zip(chosen, ranks, strict=True)])
    top = torch.nn.functional.one_hot(new.argmax(-1), 5).bool()
    clear = ((new.softmax(-1) / limits - 1).abs() > 0.01).all(-1)  # scores in one bin are ties
    expected = (new.softmax(-1) >= limits) | (top & nonempty)
    assert torch.equal(sets[clear], expected[clear])
    assert clear.double().mean() > 0.9
    covered = sets.gather(1, truth[:, None])[:, 0].double()
    for group in [truth == c for c in range(5)] if by_class else [truth >= 0]:
        assert covered[group].mean() == pytest.approx(coverage, abs=0.02)
    assert bool(sets.any(-1).all()) is nonempty or coverage == 0.95
    accept.dim, new[0, 0] = 1, math.nan
    turned = accept.sets(new.T[None], coverage, **options)[0].T
    assert torch.equal(turned[1:], sets[1:])
    assert not turned[0].any()


def test_samples_that_do_not_count_and_rows_that_cannot():
    logits, target = samples(600)
    counted = torch.arange(600) % 3 > 0
    one, other = Acceptance(), Acceptance()
    one.update(sample_stats(logits, torch.where(counted, target, -1), extras=["log_odds"], ignore_index=-1))
    other.update(logits[counted], target[counted])
    assert torch.equal(one.counts, other.counts)
    logits[5, 2], target[7] = math.nan, -100
    with pytest.raises(ValueError, match=r"held-out logits without NaN .* targets that are classes, got 2 other"):
        Acceptance().calibrate(logits, target)
    one.update(logits, target)
    assert one.invalid == 2
    with pytest.warns(match="2 held-out rows were left out"):
        one.threshold(0.2)
    assert not one.accept(logits, 0.2)[5]
    assert not one.sets(logits)[5].any()


def test_a_remedy_is_suggested_if_nothing_can_be_accepted():
    logits, target = samples(100)
    with pytest.warns(
        match=r"max_error=0\.01 and delta=0\.05: 100 held-out.* it needs at least 299 .* or max_error=0\.\d+"
    ):
        accepted = Acceptance().calibrate(logits, target).accept(logits)
    assert not accepted.any()
    sure = torch.linspace(9, 5, 300)[:, None] * torch.eye(5)[0]
    accept = Acceptance().calibrate(sure, (torch.arange(300) % 80 == 0).long())
    with pytest.warns(
        match=r": 300 held-out samples, 4 .*; it needs about \d+00 held-out samples like these or max_error=0\.061"
    ):
        threshold = accept.threshold(0.02)
    assert threshold.score == math.inf
    assert threshold.coverage == 0
    with pytest.warns(match="in [1-5] of 5 groups, of which the largest has"):
        Acceptance("prediction").calibrate(logits, target).accept(logits)
    few = Acceptance().calibrate(logits[:50], target[:50])
    with pytest.warns(match="sets hold all classes at coverage=0.99, which needs at least 99 held-out samples, got 50"):
        assert few.sets(logits.index_fill(1, torch.tensor(4), -math.inf), 0.99).all()
    rare = Acceptance("prediction").calibrate(logits[target != 3], target[target != 3])
    with pytest.warns(match="every set holds 1 of 5 classes at coverage=0.6, .* at least 2 held-out samples, got 0"):
        assert rare.sets(logits, 0.6, by_class=True)[:, 3].all()


def test_it_compiles_in_one_graph_and_is_exported():
    accept, (logits, _) = calibrated(), samples(60, seed=2)
    logits = logits.float()
    with pytest.raises(Exception, match="call accept or threshold once"):
        torch.export.export(accept, (logits,))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "nothing can be accepted")
        expected = accept.accept(logits, 0.1), accept(logits)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: accept.accept(x, 0.1), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(logits), expected[0])
    torch.compiler.reset()
    program = torch.export.export(accept, (logits,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert torch.equal(program.module()(logits[:7]), expected[1][:7])
