"""The paper's three experiments, from public models and data to the report."""

from ..data.atomic import default_cache
from .compute import compute_logits, find_device
from .models import Classifier, find_model, load_model
from .protocol import EXPERIMENTS, Experiment, find_experiment
from .run import load_sets, report, run
from .samples import Samples, Sets, portions

__all__ = [
    "EXPERIMENTS",
    "Classifier",
    "Experiment",
    "Samples",
    "Sets",
    "compute_logits",
    "default_cache",
    "find_device",
    "find_experiment",
    "find_model",
    "load_model",
    "load_sets",
    "portions",
    "report",
    "run",
]
