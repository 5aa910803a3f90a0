# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Drift in a stream
#
# A model is in service, and its input may change. `DriftMonitor` looks at the logits, sample by sample, and raises an
# alarm when they no longer look like the held-out ones. It may be asked after every sample: without a change, the
# chance that it *ever* raises an alarm is at most alpha. The logits are those of a MiniLM-L6 on the 150 intents of
# CLINC150.

# %%
import torch
from matplotlib.figure import Figure

import torch_boc

entry = torch_boc.zoo.load("minilm-clinc150")
generator = torch.Generator().manual_seed(1)
familiar = entry.id.logits[torch.randperm(len(entry.id), generator=generator)]
unfamiliar = entry.ood["out-of-scope"].logits
test = torch_boc.ConformalTest().calibrate(entry.calibration["validation"].logits)

# %% [markdown]
# ## A stream that does not change
#
# 2,000 familiar requests in batches of 50. The evidence is the logarithm of a gambler's capital, who bets that
# something has changed; the alarm is at log(1/alpha), here 4.6.

# %%
monitor = torch_boc.DriftMonitor(test, alpha=0.01)
calm = torch.cat([monitor.update(batch) for batch in familiar[:2000].split(50)])
print("alarm:", bool(monitor.alarm), f"highest evidence {calm.max():.2f}")

# %% [markdown]
# ## A stream that changes
#
# The first 1,000 requests are familiar. From then on, three of ten are out of scope.

# %%
changed = torch.rand(800, generator=generator) < 0.3
later = torch.where(changed[:, None], unfamiliar[:800], familiar[2000:2800])
stream = torch.cat([familiar[:1000], later])
monitor = torch_boc.DriftMonitor(test, alpha=0.01)
evidence = torch.cat([monitor.update(batch) for batch in stream.split(50)])
print(f"alarm after {int(monitor.alarm_at)} samples; the change began in {monitor.change}")

# %% [markdown]
# ## A restart loses nothing
#
# All states are buffers: a state dict continues the stream. Batches of another size give the same evidence.

# %%
first = torch_boc.DriftMonitor(test, alpha=0.01)
first.update(stream[:700])
second = torch_boc.DriftMonitor(test, alpha=0.01)
second.load_state_dict(first.state_dict())
continued = torch.cat([second.update(batch) for batch in stream[700:].split(11)])
print("the same evidence:", torch.allclose(continued, evidence[700:]), "and alarm:", int(second.alarm_at))

# %% [markdown]
# ## Is it more than a shift of confidence?
#
# A second monitor compares each sample with held-out ones of about the same confidence. If it raises an alarm as well,
# the geometry of the logits has changed, and not only how sure the network is.

# %%
beyond = torch_boc.ConformalTest("concentration", groups="confidence").calibrate(entry.calibration["validation"].logits)
watcher = torch_boc.DriftMonitor(beyond, alpha=0.01)
geometry = torch.cat([watcher.update(batch) for batch in stream.split(50)])
print("alarm beyond confidence:", bool(watcher.alarm), f"evidence at the end {geometry[-1]:.2f}")

# %% [markdown]
# ## The picture
#
# The gambler loses a little while nothing changes, and gets rich soon after the change. [Decide](../guide/decide.md)
# says what the alarm promises, and how late it came on other networks.

# %%
figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
axes.plot(calm[:1800], color="#999999", label="no change")
axes.plot(evidence, color="#0072b2", label="3 of 10 out of scope after 1,000")
axes.plot(geometry, color="#d55e00", label="the same, at equal confidence")
axes.axhline(torch.tensor(100.0).log(), color="black", linestyle="--", linewidth=1, label="alarm, alpha = 1 %")
axes.axvline(1000, color="black", linestyle=":", linewidth=1)
axes.set(xlabel="samples", ylabel="evidence (log of the capital)", ylim=(-12, 40))
axes.set_title("An alarm that may be looked at after every sample")
axes.legend(fontsize=8, loc="upper left")
figure
