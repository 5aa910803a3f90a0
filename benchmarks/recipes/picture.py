"""Draw the pictures of the README from logits that come with the package: `python -m benchmarks.recipes.picture`.

Writes results/metric.png (the plots of `BoCMetric`) and results/roc.png (a figure of the report).
"""

from benchmarks.harness import RESULTS
from torch_boc import BoCMetric, zoo
from torch_boc.evaluation import evaluate


def main() -> None:
    """Feed the logits to a metric and to an evaluation, and draw."""
    entry = zoo.load("resnet20-cifar10")
    metric = BoCMetric()
    metric.update(entry.id.logits, entry.id.target)
    figure, _ = metric.plot()
    figure.savefig(RESULTS / "metric.png", dpi=100)
    evaluate(entry.id, entry.ood, replicates=100).figures()["roc"].savefig(RESULTS / "roc.png", dpi=100)


if __name__ == "__main__":
    main()
