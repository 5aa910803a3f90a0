# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Drift in a stream
#
# `DriftMonitor` reads the logits of a deployed model sample by sample, and raises an alarm when
# they drift away from the held-out ones. Check it after every sample: without drift, the
# probability that it *ever* raises an alarm is at most alpha. The logits are those of a MiniLM-L6
# on the 150 intents of CLINC150.

# %%
import torch
from matplotlib.figure import Figure

import torch_boc

entry = torch_boc.zoo.load("minilm-clinc150")
generator = torch.Generator().manual_seed(1)
order = torch.randperm(len(entry.id), generator=generator)
in_scope = entry.id.logits[order]
out_of_scope = entry.ood["out-of-scope"].logits
validation = entry.calibration["validation"].logits
test = torch_boc.ConformalTest().calibrate(validation)

# %% [markdown]
# ## A stream without drift
#
# 2,000 in-scope requests in batches of 50. The monitor bets on a change; the evidence is the
# logarithm of its wealth, and the alarm is at log(1/alpha), here 4.6.

# %%
monitor = torch_boc.DriftMonitor(test, alpha=0.01)
calm = torch.cat([monitor.update(batch) for batch in in_scope[:2000].split(50)])
print("alarm:", bool(monitor.alarm), f"highest evidence {calm.max():.2f}")

# %% [markdown]
# ## A stream with drift
#
# The first 1,000 requests are in scope. From then on, three of ten are out of scope.

# %%
changed = torch.rand(800, generator=generator) < 0.3
later = torch.where(changed[:, None], out_of_scope[:800], in_scope[2000:2800])
stream = torch.cat([in_scope[:1000], later])
monitor = torch_boc.DriftMonitor(test, alpha=0.01)
evidence = torch.cat([monitor.update(batch) for batch in stream.split(50)])
print("alarm after", int(monitor.alarm_at), "samples")
print("the change began between", monitor.change)

# %% [markdown]
# ## A restart continues the stream
#
# All states are buffers, so a state dict continues the stream. The batch size does not change the
# evidence.

# %%
first = torch_boc.DriftMonitor(test, alpha=0.01)
first.update(stream[:700])
second = torch_boc.DriftMonitor(test, alpha=0.01)
second.load_state_dict(first.state_dict())
continued = torch.cat([second.update(batch) for batch in stream[700:].split(11)])
print("the same evidence:", torch.allclose(continued, evidence[700:]))
print("the same alarm:", int(second.alarm_at) == int(monitor.alarm_at))

# %% [markdown]
# ## Is it more than a shift of confidence?
#
# A second monitor compares each sample with held-out samples of about the same confidence. If it
# raises an alarm as well, the geometry of the logits has changed in addition to the confidence.

# %%
at_equal_confidence = torch_boc.ConformalTest("concentration", groups="confidence")
second = torch_boc.DriftMonitor(at_equal_confidence.calibrate(validation), alpha=0.01)
geometry = torch.cat([second.update(batch) for batch in stream.split(50)])
print("alarm at equal confidence:", bool(second.alarm))
print(f"evidence at the end {geometry[-1]:.2f}")

# %% [markdown]
# ## The figure
#
# The wealth falls slowly without drift and grows fast after the change.
# [Decide](../guide/decide.md) has the guarantee of the alarm and the detection delay on other
# models.

# %%
figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
axes.plot(calm[:1800], color="#999999", label="no drift")
axes.plot(evidence, color="#0072b2", label="30 % out of scope after 1,000")
axes.plot(geometry, color="#d55e00", label="the same, at equal confidence")
threshold = torch.tensor(100.0).log()
axes.axhline(threshold, color="black", ls="--", lw=1, label="alarm, alpha = 1 %")
axes.axvline(1000, color="black", ls=":", lw=1)
axes.set(xlabel="samples", ylabel="evidence (log of the wealth)", ylim=(-12, 40))
axes.set_title("Evidence of drift by sample")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(fontsize=8, loc="upper left", frameon=False)
figure
