"""A page of the API for each of the main classes, so that each has an address and a short outline of its own."""

from typing import Any

from mkdocs.structure.files import File, Files

CLASSES = {
    "nn": ("Acceptance", "ConformalTest", "DriftMonitor", "RiskMonitor", "BoCClassifier", "BoCProbe"),
    "metrics": ("BoCMetric", "BoCSeparation", "CoherenceGap"),
    "inference": ("BoCPredictor", "BoCBatchPredictor"),
    "lightning": ("BoCCallback", "BoCPredictionWriter"),
    "transformers": ("BoCTrainerMetrics", "BoCGeneration"),
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for part, names in CLASSES.items():
        for name in names:
            text = f"::: torch_boc.{part}.{name}\n    options: {{show_root_heading: true, heading_level: 1}}\n"
            files.append(File.generated(config, f"api/{name}.md", content=text))
    return files
