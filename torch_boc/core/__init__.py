"""The formulas of the probe in torch's own operations. This package chooses no path and checks no arguments."""
