"""Which scores a report shows, compares and recommends. The facts about each score are in the registry."""

from ..functional.registry import scores

# All other scores are compared with the first score of the registry: `versus_msp` is the difference from it.
BASELINE = next(iter(scores))
# The paper's score is kept as published. These two rank in the same way, the right way up.
PAPER_SCORE = next(name for name, score in scores.items() if score.upside_down)
REMEDIES = ("log_p_value", "gap")
# Simple scores, in the order of preference. Another score is recommended only if it is shown to be better.
SIMPLE = (BASELINE, "energy", "max_logit", "entropy")
# What figures and the comparison of models show, so that they stay readable; the tables have every score.
ROC_SCORES = (BASELINE, "energy", "log_p_value", PAPER_SCORE)
HISTOGRAM_SCORES = (BASELINE, "energy", "log_p_value", "dominance", "logit_gap", "concentration")
COMPARED_SCORES = (
    *(BASELINE, "energy", "gen", "logit_gap", "tempered_dominance", "log_p_value", "gap", "concentration", PAPER_SCORE),
    *("odin", "mahalanobis"),
)
# The ROC curves of p-values lie close to the curve of the baseline, so they are dashed.
DASHED = ("log_p_value", PAPER_SCORE)
# What the conformal test compares, if the registry has it; sentences are about the first.
TESTED_SCORES = tuple(name for name in ("log_odds", "energy", "gen", "tempered_dominance") if name in scores)
# The levels at which shares are measured; sentences are about the first.
TESTED_LEVELS = (0.05, 0.01)
