"""What the pages of the API show of the package.

Docstrings end with examples that begin with `>>>`, which Markdown takes for quotations: here they become code. Methods
that only torch and Python call are left out.
"""

import re
from typing import Any

from griffe import Class, Extension, Object

EXAMPLES = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


HIDDEN = re.compile(r"__(?!init)\w+__|extra_repr|[gs]et_extra_state")


class DocstringExtension(Extension):
    """Puts each block of examples of a docstring into a fence, and hides what nobody calls."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change a docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Leave out the methods that only torch and Python call."""
        for name in [name for name in cls.members if HIDDEN.fullmatch(name)]:
            cls.del_member(name)


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
