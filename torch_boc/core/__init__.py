"""The formulas of the probe in torch's own operations, and nothing else: no choice of a path, no checks."""
