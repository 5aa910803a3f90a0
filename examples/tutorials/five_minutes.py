# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Five minutes with the metric
#
# This tutorial puts `BoCMetric` next to the accuracy of a validation loop, and reads its results.
# It uses the bundled logits of a public ResNet-20 on CIFAR-10, without a GPU and offline.

# %%
import pandas

import torch_boc

entry = torch_boc.zoo.load("resnet20-cifar10")
print(entry.card["model"])
print("test set", tuple(entry.id.logits.shape))
print("OOD set, street numbers", tuple(entry.ood["svhn"].logits.shape))

# %% [markdown]
# ## Update with each batch, compute at the end
#
# The metric takes logits before the softmax, and targets if you have them. The loop has no host
# sync.

# %%
metric = torch_boc.BoCMetric()
batches = zip(entry.id.logits.split(256), entry.id.target.split(256), strict=True)
for logits, target in batches:
    metric.update(logits, target)
result = {name: float(value) for name, value in metric.compute().items()}
keys = ["accuracy", "confidence", "dominance", "gap", "forced_gap", "free_gap"]
pandas.Series(result).loc[keys].round(4).to_frame("value")

# %% [markdown]
# `confidence` is the mean softmax probability of the predictions, and `dominance` the mean
# probability that a prediction beats a rival in a coin flip weighted by their logits. Their
# difference is the `gap`. Most of it is `forced_gap`, a function of confidence; `free_gap` is what
# the geometry of the logits adds. So a gap is mostly confidence again.

# %%
share = result["forced_gap"] / result["gap"]
print(f"forced by confidence: {share:.1%} of the mean gap")
print(f"ECE of the confidence {result['ece']:.3f}")
print(f"ECE of the dominance used as a confidence {result['ece_dominance']:.3f}")

# %% [markdown]
# The network is overconfident, and dominance used as a confidence even more. [How it
# works](../guide/mathematics.md) explains why.
#
# ## Which inputs are out-of-distribution?
#
# `BoCSeparation` compares scores by how well each separates the test set from the street numbers.
# An AUROC of 0.5 is chance.

# %%
names = ("msp", "energy", "gen", "tempered_dominance", "gap", "structural_score")
separation = torch_boc.BoCSeparation(names)
separation.update(entry.id.logits, ood=False)
separation.update(entry.ood["svhn"].logits, ood=True)
values = separation.compute()
areas = {name: float(values[f"{name}_auroc"]) for name in names}
pandas.Series(areas).sort_values(ascending=False).round(4).to_frame("AUROC")

# %% [markdown]
# Here the gap ranks as confidence (`msp`) does, because the network is confident. The paper's
# `structural_score` ranks backwards: it is larger where the network is less confident.
#
# ## The figure
#
# Left: the distribution of the gap. Middle: the mean gap against confidence; the dots lie close to
# the lower edge of the band, which is the forced part. Right: reliability; a curve below the
# diagonal is overconfident.

# %%
figure, _ = metric.plot()
figure
