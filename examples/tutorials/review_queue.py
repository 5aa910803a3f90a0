# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # From held-out logits to a review queue
#
# An assistant knows 150 intents. Some requests are out of its scope, and it answers them all the same. Which requests
# should a person look at, if at most 1 in 100 of the familiar ones may be sent for nothing? The logits are those of a
# MiniLM-L6 on CLINC150, which come with the package.

# %%
import pandas
import torch
from matplotlib.figure import Figure

import torch_boc

entry = torch_boc.zoo.load("minilm-clinc150")
held_out = entry.calibration["validation"]  # the network was not trained on these
familiar, unfamiliar = entry.id, entry.ood["out-of-scope"]
print(len(held_out), "held-out requests,", len(familiar), "familiar and", len(unfamiliar), "out of scope")

# %% [markdown]
# ## Calibrate a test, and choose the threshold
#
# The test keeps the scores of the held-out samples as counts. Its threshold at 1 % is the score below which 1 % of
# familiar samples lie, on average over all sets of held-out samples that one could have drawn.

# %%
test = torch_boc.ConformalTest().calibrate(held_out.logits)
threshold = test.threshold(0.01)
print(f"flag where the score, GEN, is below {threshold.score:.3f}")
print(f"with a chance of 95 %, at most {threshold.rate_quantile(0.95):.2%} of familiar requests are flagged")

# %% [markdown]
# If the rate itself must keep the level, and not only its mean, ask for that: the threshold becomes lower.

# %%
sure = test.threshold(0.01, delta=0.01)
print(f"for 99 of 100 sets of held-out samples, at most 1 % are flagged below {sure.score:.3f}")

# %% [markdown]
# ## A day of requests
#
# 950 familiar requests and 50 out of scope, in one table. `p_in_distribution` is the rank of the score among the
# held-out ones: small is unfamiliar.

# %%
torch.manual_seed(0)
rows = [torch.randperm(len(familiar))[:950], torch.randperm(len(unfamiliar))[:50]]
logits = torch.cat([familiar.logits[rows[0]], unfamiliar.logits[rows[1]]])
requests = pandas.DataFrame(
    {
        "request": range(len(logits)),
        "out_of_scope": [False] * 950 + [True] * 50,
        "prediction": logits.argmax(1).numpy(),
        "p_in_distribution": test(logits).numpy(),
        "review": test.flag(logits, alpha=0.01).numpy(),
    }
)
queue = requests[requests["review"]].sort_values("p_in_distribution", ignore_index=True)
queue.head(8)

# %%
found, wrong = queue["out_of_scope"].sum(), (~queue["out_of_scope"]).sum()
print(f"{len(queue)} requests in the queue: {found} of the 50 out of scope, and {wrong} of the 950 familiar ones")

# %% [markdown]
# ## Or choose by the share of false ones in the queue
#
# `flag` bounds the share of familiar samples that are sent. `discoveries` bounds the share of familiar samples among
# those that are found in a batch, by the procedure of Benjamini and Hochberg. The bound is for the mean over batches:
# one day may have more, so here are 50 days.

# %%
numbers, shares = [], []
for _ in range(50):
    known = familiar.logits[torch.randperm(len(familiar))[:950]]
    unknown = unfamiliar.logits[torch.randperm(len(unfamiliar))[:50]]
    discovered = test.discoveries(torch.cat([known, unknown]), fdr=0.1)
    numbers.append(int(discovered.sum()))
    shares.append(float(discovered[:950].sum() / discovered.sum().clamp_min(1)))
print(f"{sum(numbers) / 50:.1f} discoveries a day, {sum(shares) / 50:.1%} of them familiar on average")

# %% [markdown]
# ## The picture
#
# Valid is not powerful: the share of familiar requests that are flagged follows the level, whatever the score is. The
# share of the others is the power, and depends on the score: here GEN, the default, finds more than the log odds.

# %%
figure = Figure(figsize=(6.4, 3.8), layout="constrained")
axes = figure.subplots()
levels = torch.logspace(-3, -0.7, 60).tolist()
for score, colour in (("log_odds", "#0072b2"), ("gen", "#d55e00")):
    tried = torch_boc.ConformalTest(score).calibrate(held_out.logits)
    for data, style, name in ((unfamiliar, "-", "out of scope"), (familiar, "--", "familiar")):
        p = tried(data.logits)
        shares = [float((p <= level).double().mean()) for level in levels]
        axes.plot(levels, shares, style, color=colour, label=f"{name}, {score.replace('_', ' ')}")
axes.plot(levels, levels, ":", color="black", label="the level itself")
axes.set(xscale="log", xlabel="level: share of familiar requests to flag", ylabel="share flagged")
axes.set_title("The level holds for every score, the power depends on it")
axes.legend(fontsize=8)
figure
