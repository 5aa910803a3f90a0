"""Whatever a download raises is one ConnectionError in one line."""

import socket

import pytest

from torch_boc.experiments.fetch import TIMEOUT, fetching


@pytest.mark.parametrize("error", [OSError("no\nnetwork"), RuntimeError("no.\n"), KeyError("x"), ValueError()])
def test_any_error(error):
    before = socket.getdefaulttimeout()
    timeouts = []

    def fail():
        timeouts.append(socket.getdefaulttimeout())
        raise error

    with pytest.raises(ConnectionError) as caught, fetching("the moon", "--moon FILE"):
        fail()
    assert str(caught.value).startswith("could not fetch the moon (")
    assert str(caught.value).endswith("); connect to the internet, or give local copies with --moon FILE")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error
    assert (timeouts, socket.getdefaulttimeout()) == ([TIMEOUT], before)


@pytest.mark.parametrize("error", [ImportError("pip install moon"), KeyboardInterrupt()])
def test_what_is_no_failure_to_fetch(error):
    with pytest.raises(type(error)) as caught, fetching("the moon", ""):
        raise error
    assert caught.value is error


def test_stdout_is_left_alone(capsys):
    with fetching("the moon", ""):
        print("Downloading")  # noqa: T201
    assert capsys.readouterr() == ("", "Downloading\n")
