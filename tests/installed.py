"""Which installed distributions a package needs, and what is installed besides."""

import re
from collections.abc import Iterable
from importlib import metadata

from packaging.requirements import Requirement


def requirements(*names: str) -> Iterable[metadata.Distribution]:
    """The installed distributions that these need, themselves among them, without extras."""
    needed: dict[str, metadata.Distribution] = {}
    todo = list(names)
    while todo:
        name = normal(todo.pop())
        if name not in needed:
            needed[name] = metadata.distribution(name)
            wanted = map(Requirement, needed[name].requires or [])
            todo += [x.name for x in wanted if x.marker is None or x.marker.evaluate({"extra": ""})]
    return needed.values()


def others(*names: str) -> list[str]:
    """The modules at the top level of all installed distributions that these do not need."""
    needed = {normal(distribution.name) for distribution in requirements(*names)}
    homes = metadata.packages_distributions().items()
    return sorted(module for module, owners in homes if not needed & set(map(normal, owners)))


def normal(name: str) -> str:
    """The name of a distribution as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
