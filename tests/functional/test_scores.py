"""The registry of scores: names, formulas, directions, and one pass for all."""

import pytest
import torch
from mpmath import mp

from tests import reference
from tests.functional.cases import SCORES, as_tensor, confident_logits, random_logits
from tests.kernels.cases import needs_native
from tests.passes import count_passes
from torch_boc import kernels
from torch_boc.functional import bag_of_coins, compute_scores, gather, scores
from torch_boc.functional.registry import need_extras

over_scores = pytest.mark.parametrize("name", SCORES)
f64 = torch.float64


def rivals(z):
    """The logits without the top one of each row."""
    return z.sort(-1, descending=True).values[:, 1:]


def from_reference(attribute, sign=1):
    return lambda z: sign * as_tensor([getattr(reference.probe(row), attribute) for row in z.tolist()])


def log_p_values(z):
    return as_tensor([reference.log_p_value(row, 100) for row in z.tolist()])


def entropy(z):
    return -(z.softmax(-1) * z.log_softmax(-1)).sum(-1)


def distances(z):
    """How far each rival is below the top, nearest first, exactly."""
    with mp.workdps(40):
        ordered = [sorted(map(mp.mpf, row), reverse=True) for row in z.tolist()]
        return [[row[0] - rival for rival in row[1:]] for row in ordered]


def log_odds(z):
    with mp.workdps(40):
        return as_tensor([-mp.log(mp.fsum(mp.exp(-x) for x in row)) for row in distances(z)])


def minus_gen(z):
    """GEN as it is published: the 100 largest probabilities, to the power of 0.1, and those of their complements."""
    found = []
    with mp.workdps(400):  # more digits than 1 - p loses
        for row in distances(z):
            weights = [mp.mpf(1), *(mp.exp(-x) for x in row)]
            total, rest = mp.fsum(weights), mp.fsum(weights[1:])
            chances = [(x / total, 1 - x / total) for x in weights[1:100]]
            found.append(-mp.fsum((p * q) ** mp.mpf("0.1") for p, q in [(1 / total, rest / total), *chances]))
        return as_tensor(found)


def logit_gap_top(z):
    number = {2: 1, 3: 1, 10: 5, 20: 10, 100: 20, 150: 30}[z.shape[-1]]
    return as_tensor([sum(row[:number]) / number for row in distances(z)])


def tempered(z, temperature=4):
    with mp.workdps(40):
        chances = [[1 / (1 + mp.exp(-x / temperature)) for x in row] for row in distances(z)]
        return as_tensor([mp.fsum(row) / len(row) for row in chances])


FORMULAS = {
    "msp": lambda z: z.softmax(-1).amax(-1),
    "log_odds": log_odds,
    "gen": minus_gen,
    "logit_gap_top": logit_gap_top,
    "tempered_dominance": tempered,
    "energy": lambda z: torch.logsumexp(z, -1),
    "max_logit": lambda z: z.amax(-1),
    "entropy": lambda z: -entropy(z),
    "logit_gap": lambda z: (z.amax(-1, keepdim=True) - rivals(z)).mean(-1),
    "dominance": from_reference("dominance"),
    "gap": from_reference("gap", -1),
    "log_p_value": log_p_values,
    "concentration": from_reference("concentration", -1),
    "structural_score": lambda z: -torch.expm1(log_p_values(z)),
}


NEW = ("log_odds", "gen", "logit_gap_top", "tempered_dominance")


def familiar(samples=200):
    """One class far above rivals that are alike."""
    z = random_logits(samples, 10, scale=0.3, seed=1)
    z[:, 4] += 10.0
    return z


def unfamiliar(samples=200):
    """Two classes close together, not far above the others."""
    z = random_logits(samples, 10, scale=0.3, seed=2)
    z[:, 2] += 4.0
    z[:, 7] += 3.5
    return z


def auroc(high, low):
    """The chance that one of `high` exceeds one of `low`; a tie counts half."""
    difference = high[:, None] - low
    return ((difference > 0).double() + 0.5 * (difference == 0)).mean().item()


def test_the_names_are_those_of_the_contract():
    assert tuple(scores) == SCORES
    assert all(scores[name].name == name and scores[name].summary for name in scores)


@over_scores
@pytest.mark.parametrize("classes", [2, 3, 10, 20, 100, 150])
def test_each_score_is_its_formula(name, classes):
    z = random_logits(8, classes, seed=classes)
    torch.testing.assert_close(scores[name](z), FORMULAS[name](z), rtol=1e-10, atol=1e-13)


@over_scores
def test_float32_logits_give_float64_scores(name):
    z = random_logits(8, 10, dtype=torch.float32)
    value = scores[name](z)
    assert value.dtype == f64
    torch.testing.assert_close(value, scores[name](z.double()), rtol=1e-4, atol=1e-6)


@over_scores
def test_higher_is_more_in_distribution_but_for_the_paper_score(name):
    area = auroc(scores[name](familiar()), scores[name](unfamiliar()))
    assert scores[name].upside_down == (name == "structural_score")
    assert area < 0.05 if scores[name].upside_down else area > 0.95


def test_the_auroc_of_the_test_is_one():
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    assert auroc(a, b) == pytest.approx(0.625)
    assert auroc(b, a) == pytest.approx(0.375)


@over_scores
def test_one_at_a_time_and_all_at_once_agree(name):
    z = random_logits(8, 10)
    torch.testing.assert_close(compute_scores(z)[name], scores[name](z), rtol=1e-14, atol=0)
    torch.testing.assert_close(compute_scores(z, [name])[name], scores[name](z), rtol=0, atol=0)


def test_names_decide_what_comes_and_in_which_order():
    z = random_logits(3, 4)
    assert list(compute_scores(z)) == list(SCORES)
    assert list(compute_scores(z, ["gap", "msp"])) == ["gap", "msp"]
    assert list(compute_scores(z, iter(["energy"]))) == ["energy"]
    assert compute_scores(z, []) == {}


@pytest.mark.parametrize("names", [None, ["msp"], ["gap", "log_p_value"], ["entropy", "logit_gap", "energy"]])
def test_several_scores_share_one_pass(names, monkeypatch):
    passes = count_passes(monkeypatch)
    compute_scores(random_logits(3, 4), names)
    assert passes == [names is None or "entropy" in names]


@over_scores
def test_dim_is_moveaxis(name):
    z = random_logits(3, 4, 5)
    torch.testing.assert_close(scores[name](z, dim=1), scores[name](z.movedim(1, -1)), rtol=1e-12, atol=1e-14)


@over_scores
def test_trials_matter_for_the_p_values_alone(name):
    z = random_logits(8, 10)
    same = torch.equal(scores[name](z, trials=20), scores[name](z, trials=100))
    assert same == (name not in ("log_p_value", "structural_score"))


@over_scores
def test_an_empty_batch_is_empty(name):
    assert scores[name](torch.empty(0, 5)).shape == (0,)


@pytest.mark.parametrize("name", ["msp", "log_odds", "gap", "entropy", "gen", "log_p_value", "dominance"])
def test_confident_rows_do_not_tie(name):
    """A float32 softmax is 1 from odds of 6e-8 on; the scores still tell such rows apart, to 1e-12 or beyond."""
    z = torch.stack([confident_logits(10, odds) for odds in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8)]).float()
    assert (scores[name](z).diff() < 0).all()


@pytest.mark.parametrize("name", ["entropy", "logit_gap", "energy", "max_logit", *NEW])
def test_a_class_of_minus_infinity(name):
    z = torch.tensor([[2.0, -torch.inf, 0.0, 1.0]], dtype=f64)
    rest = torch.tensor([[2.0, 0.0, 1.0]], dtype=f64)
    expected = {
        "log_odds": log_odds(rest),
        "gen": minus_gen(rest),
        "logit_gap_top": torch.tensor([1.5], dtype=f64),  # of the two nearest rivals
        "tempered_dominance": (2 * tempered(rest) + 1) / 3,
        "entropy": -entropy(torch.tensor([[2.0, 0.0, 1.0]], dtype=f64)),
        "logit_gap": torch.tensor([torch.inf], dtype=f64),
        "energy": torch.logsumexp(z, -1),
        "max_logit": torch.tensor([2.0], dtype=f64),
    }
    torch.testing.assert_close(scores[name](z), expected[name], rtol=1e-14, atol=0)


@over_scores
def test_each_score_has_a_symbol_of_its_own(name):
    assert scores[name].symbol
    assert [other for other in scores if scores[other].symbol == scores[name].symbol] == [name]


def test_unknown_scores_and_a_registry_that_nobody_changes():
    with pytest.raises(KeyError):
        scores["p"]
    with pytest.raises(ValueError, match=r"expected scores among msp, .*got 'p'"):
        compute_scores(random_logits(2, 3), ["p"])
    with pytest.raises(TypeError):
        scores["gap"] = scores["msp"]


def test_the_scores_of_the_coins_are_those_of_the_coins():
    z = random_logits(6, 9)
    coins, values = bag_of_coins(z), compute_scores(z)
    for name, expected in (
        ("msp", coins.confidence),
        ("dominance", coins.dominance),
        ("gap", -coins.gap),
        ("concentration", -coins.concentration),
    ):
        torch.testing.assert_close(values[name], expected, rtol=1e-14, atol=0)


PATHS = ("torch", pytest.param("native", marks=needs_native))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lead", [0.0, 20.0, 86.0, 95.0, 200.0, 740.0, 3000.0])
@pytest.mark.parametrize("classes", [2, 10, 300])
def test_the_log_odds_never_saturate(classes, lead, dtype, path):
    """Float32 odds underflow when the top leads by 87 to 103, float64 odds when it leads by 745."""
    z = random_logits(4, classes, scale=1.0, seed=classes)
    z[:, 1] = z.amax(1) + lead + 0.5
    z = z.to(dtype)
    with kernels.use(path):
        found = scores["log_odds"](z)
    torch.testing.assert_close(found, log_odds(z), rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=2e-7)


@pytest.mark.parametrize("path", PATHS)
def test_log_odds_of_rows_without_a_rival_and_without_a_result(path):
    inf, nan = torch.inf, torch.nan
    z = torch.tensor([[3.0, -inf, -inf], [nan, 0.0, 1.0], [inf, 0.0, 1.0], [-inf, -inf, -inf], [1.0, 1.0, -inf]])
    with kernels.use(path):
        found = compute_scores(z, NEW)
    assert found["log_odds"].tolist() == pytest.approx([inf, nan, nan, nan, 0.0], nan_ok=True)
    assert found["gen"][0] == 0.0
    assert found["tempered_dominance"][0] == 1.0
    assert all(value[1:4].isnan().all() and not value[[0, 4]].isnan().any() for value in found.values())


def test_log_odds_rank_as_confidence():
    z = random_logits(200, 10)
    odds = scores["log_odds"](z)
    assert odds.argsort().tolist() == scores["msp"](z).argsort().tolist()
    torch.testing.assert_close(odds.sigmoid(), scores["msp"](z), rtol=1e-12, atol=0)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("classes", [3, 10, 99, 100, 101, 150, 1500])
def test_ties_and_order_do_not_matter(name, classes, path):
    """Many equal logits, at the top and at the edge of the largest ones; classes in any order, any shift."""
    z = random_logits(6, classes, scale=1.0, seed=classes).round()
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(0))
    with kernels.use(path):
        one, other = scores[name](z), scores[name](z[:, order] + 8.0)
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    if classes in (3, 10, 100, 150):
        torch.testing.assert_close(one, FORMULAS[name](z), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("classes", [10, 300])
def test_gen_is_that_of_pytorch_ood(classes):
    detectors = pytest.importorskip("pytorch_ood.detector")
    z, number = (
        random_logits(50, classes, scale=1.0),
        min(100, classes),
    )  # no probability below 1e-7, which theirs clamps
    theirs = detectors.GEN(None, gamma=0.1, M=100).predict_logits(z)  # the mean, not the sum
    torch.testing.assert_close(scores["gen"](z), -number * theirs, rtol=1e-10, atol=0)


def test_a_score_takes_only_the_extras_that_it_needs():
    assert need_extras(["msp", "energy", "gap"]) == ()
    assert need_extras(["gen", "entropy", "log_odds"]) == ("surprise", "log_odds", "gen")
    evidence = gather(random_logits(3, 4), extras=["gen"])
    assert evidence.gen is not None
    assert evidence.margin is evidence.log_odds is evidence.top_margin is evidence.tempered_loss is None
    with pytest.raises(ValueError, match="expected evidence with the top logits and the sums"):
        scores["log_odds"].function(evidence)
    for wrong in ("gen", ["gem"]):
        with pytest.raises(
            ValueError, match="expected extras as True, False or a list of names among surprise, margin"
        ):
            gather(random_logits(3, 4), extras=wrong)
