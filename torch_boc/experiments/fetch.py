"""The network, and what is said when it is not there."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

TIMEOUT = 10.0  # seconds without an answer


@contextmanager
def fetching(what: str, local: str) -> Iterator[None]:
    """For downloads by other people's libraries: any failure becomes one ConnectionError in one line.

    They fail in many ways (errors of urllib, requests, httpx and their own, some of which are no OSError), and some
    wait for ever or print to stdout; here they have a timeout and stderr.

    Args:
        what: is fetched, and from where.
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
