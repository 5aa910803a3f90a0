"""Was the calibration split part of the training data?"""

import math
from typing import NamedTuple

LEAK_LEVEL = 1e-3
# With a million samples every difference is significant. Below a percentage point it hardly changes a calibrator.
RELEVANT_DIFFERENCE = 0.01


class LeakWarning(UserWarning):
    """The calibration split looks like training data. What is fitted on it will be overconfident on other samples."""


class LeakTest(NamedTuple):
    """Whether a calibration split is easier than the test set.

    Attributes:
        accuracy: the accuracy on the calibration split.
        test_accuracy: the accuracy on the test set.
        z: the difference of the accuracies in standard errors; 0 if they are equal.
        p_value: the chance of such a z or a higher one, if the true accuracies were equal.
        suspicious: whether p_value is below 0.001 and the accuracy is higher by more than a percentage point.
    """

    accuracy: float
    test_accuracy: float
    z: float
    p_value: float
    suspicious: bool


def leak_test(calibration_correct: int, calibration_samples: int, test_correct: int, test_samples: int) -> LeakTest:
    """The one-sided z-test for two proportions, with the variance of the pooled samples.

    With the accuracies a and b on n and m samples, and the accuracy p on all of these samples together:

        z = (a - b) / sqrt(p (1 - p) (1/n + 1/m))        p_value = Pr{Normal(0, 1) >= z}

    Args:
        calibration_correct: the number of right predictions in the calibration split.
        calibration_samples: the size of the calibration split. If one of the sets is empty, the numbers are NaN, and
            nothing is suspicious.
        test_correct: the number of right predictions in the test set. No sample of it is in the calibration split.
        test_samples: the size of the test set.

    >>> leak_test(4990, 5000, 9170, 10000).suspicious  # 0.998 against 0.917
    True
    >>> leak_test(4590, 5000, 9170, 10000).suspicious
    False
    """
    accuracy = _share(calibration_correct, calibration_samples)
    test_accuracy = _share(test_correct, test_samples)
    z = _difference_in_errors(accuracy, calibration_samples, test_accuracy, test_samples)
    p_value = math.erfc(z / math.sqrt(2)) / 2
    suspicious = p_value < LEAK_LEVEL and accuracy - test_accuracy > RELEVANT_DIFFERENCE
    return LeakTest(accuracy, test_accuracy, z, p_value, suspicious)


def _share(correct: int, samples: int) -> float:
    if not 0 <= correct <= samples:
        raise ValueError(f"expected between 0 and {samples} right predictions of {samples} samples, got {correct}")
    return int(correct) / int(samples) if samples else math.nan


def _difference_in_errors(a: float, n: int, b: float, m: int) -> float:
    if math.isnan(a - b) or a == b:
        return a - b
    pooled = (a * n + b * m) / (n + m)  # neither 0 nor 1, because a and b differ
    return (a - b) / math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
