# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Five minutes with the metric
#
# You have a classifier and a validation loop. This tutorial puts `BoCMetric` beside your accuracy, and reads what it
# says. It uses the logits of a public ResNet-20 on CIFAR-10, which come with the package, and needs no GPU and no
# network.

# %%
import pandas

import torch_boc

entry = torch_boc.zoo.load("resnet20-cifar10")
print(entry.card["model"])
print("test set", tuple(entry.id.logits.shape))
print("street numbers, which it has never seen", tuple(entry.ood["svhn"].logits.shape))

# %% [markdown]
# ## Update with each batch, compute at the end
#
# The metric takes logits before the softmax, and targets if you have them. Nothing is read back from the device while
# the loop runs.

# %%
metric = torch_boc.BoCMetric()
for logits, target in zip(entry.id.logits.split(256), entry.id.target.split(256), strict=True):
    metric.update(logits, target)
result = {name: float(value) for name, value in metric.compute().items()}
keys = ["accuracy", "confidence", "dominance", "gap", "forced_gap", "free_gap"]
pandas.Series(result).loc[keys].round(4).to_frame("value")

# %% [markdown]
# `confidence` is the mean softmax probability of the predictions, and `dominance` the mean chance that a prediction
# beats a rival in a coin flip weighted by their logits. Their difference is the `gap`. Most of it is `forced_gap`,
# which follows from the confidence alone; `free_gap` is what the geometry of the logits adds. So a gap mostly tells
# confidence again.

# %%
print(f"{result['forced_gap'] / result['gap']:.1%} of the mean gap is forced by confidence")
print(f"the confidence is off by {result['ece']:.3f} on average (ECE)")
print(f"the dominance, taken for a confidence, is off by {result['ece_dominance']:.3f}")

# %% [markdown]
# The network is too sure, and dominance used as a confidence is surer still. [How it works](../guide/mathematics.md)
# says why.
#
# ## Which data are unfamiliar?
#
# `BoCSeparation` compares scores: how well does each tell the test set from the street numbers? An AUROC of 0.5 is
# chance.

# %%
names = ("msp", "energy", "gen", "tempered_dominance", "gap", "structural_score")
separation = torch_boc.BoCSeparation(names)
separation.update(entry.id.logits, ood=False)
separation.update(entry.ood["svhn"].logits, ood=True)
areas = {name: float(value) for name, value in separation.compute().items() if name.endswith("auroc")}
pandas.Series(areas).sort_values(ascending=False).round(4).to_frame("AUROC")

# %% [markdown]
# Here the gap ranks as confidence (`msp`) does, because the network is sure. The paper's `structural_score` ranks
# backwards: it is larger where the network is less sure.
#
# ## The picture
#
# On the left, how the gap is distributed. In the middle, the mean gap against confidence: the dots lie close to the
# lower edge of the band, which is the forced part. On the right, reliability: a curve below the diagonal is too sure.

# %%
figure, _ = metric.plot()
figure
