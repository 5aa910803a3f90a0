"""Downloads, and the error when there is no network."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

TIMEOUT = 10.0  # seconds without an answer


@contextmanager
def fetching(what: str, local: str) -> Iterator[None]:
    """For downloads by other people's libraries: any failure becomes one ConnectionError in one line.

    These libraries fail in many ways (errors of urllib, requests, httpx and their own, not all of which are OSErrors),
    and some wait for ever or print to stdout. In this block they have a timeout, and print to stderr.

    Args:
        what: what is downloaded, and from where; for the message.
        local: the options that point at local copies.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ImportError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
        raise ConnectionError(
            f"could not fetch {what} ({reason}); connect to the internet, or give local copies with {local}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
