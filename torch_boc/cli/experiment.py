"""`torch-boc experiment`: the paper's three experiments from their public sources."""

from pathlib import Path
from typing import Annotated

import typer

from ..data.atomic import check_folder
from .console import counting, working
from .options import Json, Out, Replicates, Seed, Trials
from .output import choose_folder, print_report, save_report


def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="vit, resnet or roberta.")],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Another model: a name on the hub, a folder or a file."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="FILE", help="Weights of a ResNet for CIFAR-10.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="FOLDER", help="Local copies of the data; no downloads.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", min=1, help="At most N of each set, for a quick look.")
    ] = None,
    train_samples: Annotated[
        int | None, typer.Option("--train-samples", metavar="N", min=1, help="At most N to fit Mahalanobis on.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", metavar="N", min=1, help="Samples at a time.", show_default="as in the paper"),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda:1, ...", show_default="a GPU if any")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", metavar="FOLDER", help="For downloads and logits.", show_default="~/.cache/torch_boc"),
    ] = None,
    trials: Trials = 100,
    replicates: Replicates = 1000,
    seed: Seed = 42,
    out: Out = None,
    json: Json = False,
) -> None:
    """One of the paper's experiments, from a public model and public data to the report.

    vit and resnet compare CIFAR-10 with SVHN, roberta AG News with DBPedia-14. A folder of local copies has the
    unpacked cifar-10-batches-py and test_32x32.mat; or ag_news_csv and dbpedia_csv, each with its .csv files.

    Logits are kept in the cache while they are computed: an interrupted run continues where it stopped, and a second
    run is quick.
    """
    folder = choose_folder(out, json=json)
    if cache is not None:
        check_folder(cache)
    with working("loading libraries") as tell:
        from .. import experiments
        from ..report.measured import headline

        chosen, place = experiments.find_experiment(name), experiments.find_device(device)
        kept = cache or experiments.default_cache()
        tell("looking for the model")
        path = experiments.find_model(chosen, model, checkpoint)
        tell("reading data")
        sets = experiments.load_sets(chosen, data_dir, kept, seed=seed, samples=samples, train_samples=train_samples)
    found = experiments.compute_logits(chosen, path, sets, kept, batch_size=batch_size, device=place, bar=counting)
    with working("evaluating") as tell:
        result = experiments.report(chosen, found, trials=trials, replicates=replicates, seed=seed, progress=tell)
        paths = save_report(result, folder, tell)
    own = checkpoint or model
    title = f"Bag of coins: {chosen.title}" + (f" ({own})" if own else "")
    print_report(result, paths, title=[title, headline(result.results)], json=json)
