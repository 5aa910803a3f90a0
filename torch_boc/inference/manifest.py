"""What the processes of a run agree on, and the names of the parts that they write."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..data.atomic import replacing, temporary_name

NAME = re.compile(r"part-(\d{12,})-(\d{12,})\.parquet")


class Manifest(NamedTuple):
    """What all processes of a run agree on: its settings, the number of samples, the size of a block, and a token.

    The token is drawn when the manifest is created. It tells a process that its run was deleted and begun anew.
    """

    run: Mapping[str, object]
    samples: int
    block: int
    token: str


def create_manifest(path: Path, manifest: Manifest) -> None:
    """Create the manifest, unless there is one. It appears whole, and only one process creates it."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = temporary_name(path)
    try:
        mine.write_text(json.dumps(manifest._asdict(), indent=1))
        os.link(mine, path)
    except FileExistsError:
        pass  # another process was first
    except (OSError, NotImplementedError):  # a file system without links: the processes of one launch write the same
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(manifest._replace(token="")._asdict(), indent=1))
    finally:
        mine.unlink(missing_ok=True)


def read_manifest(path: Path, remedy: str) -> Manifest:
    """The manifest of a run."""
    try:
        found = Manifest(**json.loads(path.read_text()))
        return found._replace(run=dict(found.run), block=max(1, int(found.block)))
    except (TypeError, ValueError, OSError) as error:
        raise ValueError(f"expected the manifest of a run, got {path}, which is damaged. {remedy}") from error


def part_name(block: range) -> str:
    """The name of the part of a block; names sort as the samples do.

    >>> part_name(range(128, 192))
    'part-000000000128-000000000192.parquet'
    """
    return f"part-{block.start:012d}-{block.stop:012d}.parquet"


def part_ranges(folder: Path) -> Iterator[range]:
    """The samples of each part, by its name.

    Other Parquet files in the folder or in folders inside of it would be read as rows of the table, so they are an
    error. Readers skip names that begin with a dot or an underscore.
    """
    for path in folder.rglob("*.parquet"):
        inside = path.relative_to(folder)
        if not any(part.startswith((".", "_")) for part in inside.parts):
            match = NAME.fullmatch(str(inside))
            if match is None:
                raise ValueError(f"expected parts of a run only in {folder}, got {inside}; choose another folder")
            yield range(int(match[1]), int(match[2]))
