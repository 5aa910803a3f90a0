"""`evaluate_tables`: an evaluation of tables that are larger than memory, from sums and counts that add up."""

from .evaluate import evaluate_tables

__all__ = ["evaluate_tables"]
