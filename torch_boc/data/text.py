"""Text that is safe to print."""

import re

# Control characters, surrogates (how Python holds bytes that are not UTF-8), line breaks, marks of text direction.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text, with every character that a terminal would obey or could not show written as an escape.

    >>> print(printable("\x1b[31mred"))
    \x1b[31mred
    """
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)
