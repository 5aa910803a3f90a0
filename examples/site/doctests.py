"""Docstrings end with examples that begin with `>>>`, which Markdown takes for quotations: here they become code."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLES = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class DoctestExtension(Extension):
    """Puts each block of examples of a docstring into a fence."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""The text with a fence around each block of examples.

    >>> print(fenced("Adds.\n\n>>> 1 + 1\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return EXAMPLES.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
