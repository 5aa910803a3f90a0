"""What the pages of the API show of the package.

Docstrings end with examples that begin with `>>>`, which Markdown reads as quotations: here they become code. Methods
that users do not call are hidden.
"""

import re
from typing import Any

from griffe import Class, Extension, Object

EXAMPLES = re.compile(r"^( *)>>> .*(?:\n\1 *\S.*)*", re.MULTILINE)
# What torch, Lightning and Python call, and what other parts of the package share.
HIDDEN = re.compile(
    r"__(?!init)\w+__|extra_repr|[gs]et_extra_state|on_\w+|write_on_\w+|setup|teardown|(load_)?state_dict|state_key"
    r"|settings|metadata|kinds|expected|bound|extract|empty|histograms|ranked_samples|of_coins|preprocess|total"
    r"|row_numbers|glance|content|reading"
)


class DocstringExtension(Extension):
    """Puts each block of examples of a docstring into a fence, and hides what users do not call."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change a docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Hide methods and attributes that users do not call."""
        for name in [name for name in cls.members if HIDDEN.fullmatch(name)]:
            cls.del_member(name)


def fenced(text: str) -> str:
    r"""The text with a fence around each block of examples.

    >>> print(fenced("Adds.\n\n>>> print(f())\na\n  indented"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> print(f())
    a
      indented
    ```
    """
    return EXAMPLES.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
