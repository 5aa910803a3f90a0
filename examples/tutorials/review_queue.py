# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # From held-out logits to a review queue
#
# An assistant knows 150 intents. Some requests are out of its scope, and it answers them anyway.
# Which requests need review, if at most 1 % of in-scope requests may be sent to review needlessly?
# The logits are those of a MiniLM-L6 on CLINC150, bundled with the package.

# %%
import pandas
import torch
from matplotlib.figure import Figure

import torch_boc

entry = torch_boc.zoo.load("minilm-clinc150")
held_out = entry.calibration["validation"]  # the model was not trained on these
in_scope, out_of_scope = entry.id, entry.ood["out-of-scope"]
print(len(held_out), "held-out requests")
print(len(in_scope), "in-scope and", len(out_of_scope), "out-of-scope requests")

# %% [markdown]
# ## Calibrate a test, and choose the threshold
#
# The test stores the scores of the held-out samples as counts. Its threshold at 1 % is the score
# below which 1 % of in-distribution samples lie, on average over the draw of the held-out set.

# %%
test = torch_boc.ConformalTest().calibrate(held_out.logits)
threshold = test.threshold(0.01)
print(f"flag where the score, GEN, is below {threshold.score:.3f}")
print(f"FPR ≤ {threshold.rate_quantile(0.95):.2%} with probability 95 %")

# %% [markdown]
# To bound the FPR itself, and not only its mean, pass `delta`: the threshold becomes lower.

# %%
strict = test.threshold(0.01, delta=0.01)
print(f"FPR ≤ 1 % with probability 99 %: flag below {strict.score:.3f}")

# %% [markdown]
# ## A day of requests
#
# 950 in-scope and 50 out-of-scope requests, in one table. `p_in_distribution` is the rank of the
# score among the held-out ones: small values indicate OOD inputs.

# %%
torch.manual_seed(0)
rows = torch.randperm(len(in_scope))[:950], torch.randperm(len(out_of_scope))[:50]
logits = torch.cat([in_scope.logits[rows[0]], out_of_scope.logits[rows[1]]])
requests = pandas.DataFrame(
    {
        "request": range(len(logits)),
        "out_of_scope": [False] * 950 + [True] * 50,
        "prediction": logits.argmax(1).numpy(),
        "p_in_distribution": test(logits).numpy(),
        "review": test.flag(logits, alpha=0.01).numpy(),
    }
)
queue = requests[requests["review"]]
queue = queue.sort_values("p_in_distribution", ignore_index=True)
queue.head(8)

# %%
detected, needless = queue["out_of_scope"].sum(), (~queue["out_of_scope"]).sum()
print(f"{len(queue)} requests in the queue: {detected} of the 50 out of scope,")
print(f"and {needless} of the 950 in scope")

# %% [markdown]
# ## Or bound the false discovery rate of the queue
#
# `flag` bounds the share of in-scope requests that are sent to review. `discoveries` bounds the
# share of in-scope requests in the queue, by the procedure of Benjamini and Hochberg. The bound is
# for the mean over batches, so here are 50 days.

# %%
numbers, shares = [], []
for _ in range(50):
    known = in_scope.logits[torch.randperm(len(in_scope))[:950]]
    unknown = out_of_scope.logits[torch.randperm(len(out_of_scope))[:50]]
    discovered = test.discoveries(torch.cat([known, unknown]), fdr=0.1)
    numbers.append(int(discovered.sum()))
    shares.append(float(discovered[:950].sum() / discovered.sum().clamp_min(1)))
print(f"{sum(numbers) / 50:.1f} discoveries a day")
print(f"{sum(shares) / 50:.1%} of them in scope, on average")

# %% [markdown]
# ## The figure
#
# The false-positive rate follows its nominal value for every score. The detection rate depends on
# the score: here GEN, the default, detects more than the log odds.

# %%
figure = Figure(figsize=(6.4, 3.8), layout="constrained")
axes = figure.subplots()
levels = torch.logspace(-3, -0.7, 60)
for score, colour in (("log_odds", "#0072b2"), ("gen", "#d55e00")):
    scored = torch_boc.ConformalTest(score).calibrate(held_out.logits)
    for data, style in ((out_of_scope, "-"), (in_scope, "--")):
        p = scored(data.logits).unsqueeze(0)
        shares = (p <= levels.unsqueeze(1)).double().mean(1)
        name = "detection rate" if data is out_of_scope else "FPR"
        label = f"{name}, {score.replace('_', ' ')}"
        axes.plot(levels, shares, style, color=colour, label=label)
axes.plot(levels, levels, ":", color="black", label="nominal FPR")
axes.set(xscale="log", xlabel="nominal FPR", ylabel="share flagged")
axes.set_title("The FPR holds for every score; the detection rate depends on it")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(fontsize=8, frameon=False)
figure
