"""Send figures to the loggers of a Trainer, or save them as files."""

import os
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from ..data.atomic import replacing


def publish(figure: Any, tag: str, *, step: int, loggers: Iterable[Any], folder: str | os.PathLike[str]) -> None:
    """Send a figure to each TensorBoard, W&B and MLflow logger; if there is none, save a PNG file in `folder`."""
    sent = [send(figure, tag, step, logger) for logger in loggers]
    if not any(sent):
        save(figure, Path(folder) / f"{tag.replace('/', '-')}-step{step:06d}.png")


def send(figure: Any, tag: str, step: int, logger: Any) -> bool:
    """Send the figure to the logger; returns whether the logger takes figures."""
    kinds = {base.__name__ for base in type(logger).__mro__}  # names are the same in both libraries, and need no import
    if "TensorBoardLogger" in kinds:
        logger.experiment.add_figure(tag, figure, step)
    elif "WandbLogger" in kinds:
        logger.log_image(tag, [_image(figure)], step=step)
    elif "MLFlowLogger" in kinds:
        logger.experiment.log_figure(logger.run_id, figure, f"{tag}-step{step:06d}.png")
    else:
        return False
    return True


def save(figure: Any, path: Path) -> None:
    """Write a PNG file that appears whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def _image(figure: Any) -> Any:
    from PIL import Image

    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return Image.open(buffer)
