"""Each sentence of the verdict, driven by crafted numbers."""

import dataclasses

import pytest

from tests.report.cases import LEAK, NAN, compared, make_results
from torch_boc.report.topics import verdict


def changed(results, table, where, **values):
    """The results with some cells of a table replaced; an interval moves with its value."""
    frame = getattr(results, table).copy()
    rows = frame.eval(where)
    assert rows.any(), where
    for column, value in values.items():
        frame.loc[rows, column] = value
        if f"{column}_low" in frame and f"{column}_low" not in values:
            half = 0.0003 if column == "versus_msp" else 0.004
            frame.loc[rows, [f"{column}_low", f"{column}_high"]] = [value - half, value + half]
    return dataclasses.replace(results, **{table: compared(frame) if "ece" in values else frame})


def sentence(results, *words):
    """The one sentence that has all the words."""
    (found,) = [text for text in verdict(results) if all(word in text for word in words)]
    return found


def score(results, name, auroc, versus=None, ood="svhn"):
    versus = auroc - 0.8907 if versus is None else versus
    return changed(results, "ood", f"score == '{name}' and ood == '{ood}'", auroc=auroc, versus_msp=versus)


@pytest.mark.parametrize(
    ("ece", "split", "words"),
    [
        (
            0.0093,
            "held out",
            "Best calibrated is isotonic fitted on “held out”: ECE 0.0093 (0.0053 to 0.0133), against",
        ),
        (0.0093, LEAK, "fitted on “training samples”, though that split looks like training data: ECE 0.0093"),
        (
            0.0500,
            "held out",
            "; the lowest, 0.0500 (0.0460 to 0.0540) of isotonic fitted on “held out”, differs",
        ),
        (
            0.0600,
            "held out",
            "No method is shown to beat plain confidence (MSP), whose ECE is 0.0532 (0.0492 to 0.0572).",
        ),
    ],
)
def test_calibration(ece, split, words):
    results = changed(make_results((split,)), "calibration", "split != ''", ece=0.07)
    results = changed(results, "calibration", "method == 'isotonic'", ece=ece)
    assert words in verdict(results)[0]


def test_without_a_calibration_set():
    results = make_results(())
    assert verdict(results)[0].startswith("No calibration set was given, and BoC is not shown to beat plain")
    better = changed(results, "calibration", "method == 'BoC'", ece=0.01)
    assert verdict(better)[0].startswith("Best calibrated is BoC: ECE 0.0100")


def test_without_targets_or_others_nothing_is_said_of_them():
    sentences = verdict(make_results((), (), targets=False))
    assert sentences == [
        "“test” has no targets, so nothing is said of calibration.",
        "No out-of-distribution set was given, so nothing is said of detection.",
        (
            "At level 5 % the conformal test of log odds flags 4.7 % (4.1 to 5.3 %) of “test”; the paper’s test "
            "rejects 12.8 % of “test”."
        ),
        "Confidence alone forces most of Δ: 95.4 % on “test” (R² 0.996).",
    ]


@pytest.mark.parametrize("temperature", [1.3, NAN])
def test_a_leaking_split_whose_temperature_does_not_sharpen(temperature):
    results = changed(make_results(), "calibration", "method == 'temperature'", temperature=temperature)
    assert "what is fitted on it does not hold for other samples. Do not use it." in sentence(results, "training data")


def test_a_score_that_is_clearly_best_is_advised():
    text = sentence(score(make_results(), "mahalanobis", 0.95), "On “svhn”")
    expected = "On “svhn” use Mahalanobis: AUROC 0.9500 (0.9460 to 0.9540), the highest, against 0.8907 of MSP "
    assert text.startswith(expected)
    assert text.endswith("(corrected for 10 comparisons).")


def test_a_standard_score_is_preferred_to_one_that_is_no_better():
    results = score(score(make_results(), "odin", 0.95), "energy", 0.948)
    assert sentence(results, "On “svhn”").startswith("On “svhn” no score is shown to do better than energy (corr")


def test_a_small_difference_beyond_chance_is_called_so():
    text = sentence(score(make_results(), "energy", 0.8930), "On “svhn”")
    assert text.startswith("On “svhn” MSP is nearly as good as any other score: AUROC 0.8907. The highest, energy w")
    assert (
        "better by +0.0023 (+0.0020 to +0.0026), which is more than chance (corrected for 10 comparisons) but little."
        in text
    )


def test_scores_no_better_than_chance_are_not_advised():
    results = changed(make_results(), "ood", "score != 'structural_score'", auroc=0.4)
    results = score(results, "energy", 0.503)
    text = sentence(results, "On “svhn”")
    assert (
        text
        == "On “svhn” no score is shown to do better than chance (corrected for 11 comparisons): the highest AUROC is "
        "0.5030 (0.4990 to 0.5070), of energy."
    )


def test_many_sets_share_a_sentence():
    results = score(make_results((), ("a", "b", "c")), "energy", 0.99, ood="b")
    assert "MSP on “a” and “c”; energy on “b”." in sentence(results, "Scores to use")
    assert "AUROC 0.1094 to 0.1094 on 3 sets" in sentence(results, "backwards")
    assert "95.4 % to 95.4 % (R² at least 0.994)" in sentence(results, "forces")
    assert len(verdict(results)) <= 7


def test_the_upside_down_score_is_never_advised():
    results = score(make_results(), "structural_score", 0.99)
    assert "MSP" in sentence(results, "On “svhn”")
    text = sentence(results, "does not rank backwards here")
    assert "AUROC 0.9900 on “svhn”" in text
    assert not any("ranks backwards" in other for other in verdict(results))


@pytest.mark.parametrize(
    ("versus", "words"),
    [
        (0.01, "by +0.0100 (+0.0097 to +0.0103), so it adds something to confidence."),
        (-0.01, "by −0.0100 (−0.0103 to −0.0097), so it ranks worse than confidence."),
        (0.0002, "so it is not shown to add anything to confidence as a score: at most 0.0005."),
    ],
)
def test_what_the_gap_adds(versus, words):
    assert sentence(score(make_results(), "gap", 0.89, versus), "forces").endswith(words)


def test_a_gap_that_differs_from_set_to_set():
    results = score(make_results((), ("a", "b")), "gap", 0.9, 0.01, "a")
    results = score(results, "gap", 0.88, -0.01, "b")
    assert sentence(results, "forces").endswith(
        "so it adds something to confidence on “a” and it ranks worse than confidence on “b” "
        "(corrected for 2 comparisons)."
    )


def test_a_gap_that_confidence_forces_in_part_only():
    results = changed(make_results(), "gaps", "set == 'svhn'", forced_gap=0.05)
    assert "Confidence alone forces part of Δ: 95.4 % on “test” (R² 0.996) and 35.8 %" in sentence(results, "forces")


def test_two_classes_leave_no_gap():
    results = make_results()
    results = dataclasses.replace(results, settings={**results.settings, "classes": 2})
    assert "Δ is 0 for every input" in sentence(results, "two classes")
    assert not any("used as a confidence" in text for text in verdict(results))


def test_a_set_without_any_gap():
    assert not any("forces" in text for text in verdict(changed(make_results(), "gaps", "gap > 0", gap=0.0)))


@pytest.mark.parametrize(
    ("ece", "words"),
    [
        (0.08, "is worse calibrated: ECE 0.0800"),
        (0.0535, "is calibrated about as well as confidence itself: ECE 0.0535"),
        (0.02, "is better calibrated, because"),
    ],
)
def test_dominance_as_a_confidence(ece, words):
    results = changed(make_results(), "calibration", "method == 'BoC'", ece=ece)
    assert words in sentence(results, "used as a confidence")


@pytest.mark.parametrize(("mean", "said"), [(0.9986, True), (0.93, False)])
def test_dominance_that_is_close_to_one_for_every_sample(mean, said):
    """With many classes its error may be the smaller one, and it tells nothing all the same."""
    results = changed(make_results(), "calibration", "method == 'BoC'", ece=0.0449)
    results = changed(results, "calibration", "method == 'MSP'", ece=0.0663)
    results = changed(results, "gaps", "kind == 'id'", dominance=mean)
    results = dataclasses.replace(results, settings={**results.settings, "accuracy": 0.9538})
    text = sentence(results, "used as a confidence")
    assert "is better calibrated, because" in text
    words = "But q̄ itself is too high: it is 0.9986 on average, and 0.9538 of the predictions are right."
    assert text.endswith(words) == said


def test_values_without_intervals():
    results = make_results()
    ends = {f"ece{name}{end}": NAN for name in ("", "_versus_msp", "_versus_best") for end in ("_low", "_high")}
    table = results.calibration.assign(**ends)
    results = dataclasses.replace(results, calibration=table)
    assert verdict(results)[0] == "No method is shown to beat plain confidence (MSP), whose ECE is 0.0532."
    assert sentence(results, "used as a confidence").endswith(
        "is not shown to be better or worse calibrated: ECE 0.0790 against 0.0532 of MSP, a difference of +0.0258."
    )


def test_scores_without_an_auroc_are_passed_over():
    results = make_results()
    results = dataclasses.replace(results, ood=results.ood.assign(auroc=NAN, versus_msp=NAN))
    assert not any("On “svhn”" in text or "backwards" in text or "MSP by" in text for text in verdict(results))


def test_methods_within_chance_of_the_best_are_named():
    text = verdict(make_results(("held out",)))[0]
    assert text.startswith("Best calibrated is isotonic fitted on “held out”: ECE 0.0093")
    close = "Temperature fitted on “held out” and vector scaling fitted on “held out”"
    assert f". {close} are not shown to be worse." in text


def test_of_many_sets_those_without_a_useful_score_are_told_apart():
    results = make_results((), ("a", "b", "c"))
    results = changed(results, "ood", "ood != 'a' and score != 'structural_score'", auroc=0.5)
    assert sentence(results, "Scores to use").endswith("MSP on “a”.")
    assert sentence(results, "no score") == (
        "On “b” and “c” no score is shown to do better than chance (corrected for 33 comparisons)."
    )
    results = changed(results, "ood", "score != 'structural_score'", auroc=0.5)
    assert not any("Scores to use" in text for text in verdict(results))


def test_within_chance_the_paper_score_is_not_shown_to_rank_either_way():
    results = score(make_results(), "structural_score", 0.497)
    assert "backwards here (AUROC 0.4970 on “svhn”)." in sentence(results, "s_BoC is not shown to rank forwards or")
    assert not any("ranks backwards" in text or "not rank backwards" in text for text in verdict(results))


def test_the_paper_score_in_three_cases():
    results = score(make_results((), ("svhn", "far", "near")), "structural_score", 0.7, ood="far")
    results = score(results, "structural_score", 0.501, ood="near")
    assert "(AUROC 0.1094 on “svhn”; corrected for 3 comparisons)" in sentence(results, "ranks backwards here")
    assert "(AUROC 0.7000 on “far”; corrected" in sentence(results, "does not rank backwards there")
    assert "(AUROC 0.5010 on “near”; corrected" in sentence(results, "not shown to rank forwards or backwards there")


def test_a_wide_interval_does_not_show_that_the_gap_adds_nothing():
    values = {"versus_msp": -0.01, "versus_msp_low": -0.4, "versus_msp_high": 0.2}
    results = changed(make_results(), "ood", "score == 'gap'", **values)
    assert sentence(results, "forces").endswith("so there are too few samples to tell whether it adds anything.")


def test_what_is_not_known_leaves_no_empty_brackets():
    values = {"versus_msp": 0.0, "versus_msp_low": NAN, "versus_msp_high": NAN}
    results = changed(make_results(), "ood", "score == 'gap'", **values)
    text = sentence(changed(results, "gaps", "gap > 0", r2=NAN), "forces")
    assert "95.4 % on “test” and 95.4 % on “svhn”; the AUROC of −Δ differs from that of MSP by 0.0000, so" in text
    assert "there are too few samples to tell" in text
    many = changed(make_results((), ("a", "b", "c")), "gaps", "gap > 0", r2=NAN)
    assert "95.4 % to 95.4 %;" in sentence(many, "forces")


@pytest.mark.parametrize(("lowest", "branch"), [(0.0093, "Best"), (0.05, "No method"), (0.06, "No method")])
@pytest.mark.parametrize("perfect", [True, False])
def test_an_error_that_chance_explains_may_be_perfect(lowest, branch, perfect):
    """It is asked in every branch: of the best method, or of MSP."""
    results = changed(make_results(("held out",)), "calibration", "split != ''", ece=0.07)
    results = changed(results, "calibration", "method == 'isotonic'", ece=lowest)
    table = results.calibration.assign(ece_chance=0.0088)
    if perfect:
        table = table.assign(ece_low=0.0)
    text = verdict(dataclasses.replace(results, calibration=table))[0]
    assert text.startswith(branch)
    who = "isotonic fitted on “held out”" if branch == "Best" else "MSP"
    words = f" A perfectly calibrated confidence has an ECE of 0.0088 by chance alone: {who} may be perfect."
    assert text.endswith(words) == perfect
    assert ("may be perfect" in text) == perfect


def test_few_samples_are_named():
    results = make_results(())
    settings = {**results.settings, "samples": {"test": 60, "svhn": 26_032}}
    sentence = verdict(dataclasses.replace(results, settings=settings))[0]
    assert sentence == "With fewer than 100 samples numbers are rough and intervals too narrow: “test” has 60."
