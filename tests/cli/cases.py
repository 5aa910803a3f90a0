"""Made-up samples, and the numbers of a printed table."""

import re

import torch


def samples(rows, strength, classes=4, seed=0):
    """Logits that know their targets the better, the greater the strength, and a score."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(rows) % classes
    logits = 2 * torch.randn(rows, classes, generator=generator) + strength * torch.eye(classes)[target]
    return {"logits": logits.numpy(), "target": target.numpy(), "knn": logits.amax(1).numpy()}


def numbers(text):
    """Lines of a table, by their first word, as lists of numbers."""
    rows = {}
    for line in text.splitlines():
        found = re.findall(r"[+−]?\d+\.\d{4}(?!\d)", line)
        if len(found) >= 3 and "(" not in line:
            rows[line.split()[0]] = [float(x.replace("−", "-")) for x in found]
    return rows
