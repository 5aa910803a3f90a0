"""Saved tests, states and reports that are damaged or incomplete are refused in one line; none decides, none hangs."""

import copy
import random
import resource
import signal

import pytest
import torch

from tests.systems import unix_only

pytestmark = unix_only
VAL = ("--calibration", "val.npz")
USES = {
    "test": ("t.pt", ("screen", "noise.npz", "--test", "t.pt", "--error", "0.2", "--json")),
    "state": ("s.pt", ("monitor", "noise.npz", "--state", "s.pt", "--json")),
}


@pytest.fixture
def saved(run, files):
    """A saved test, and the state of a monitor in the middle of a stream; each with what it decides."""
    assert run("screen", "test.npz", *VAL, "--save-test", "t.pt", "--groups", "prediction").code == 0
    assert run("monitor", "test.npz", *VAL, "--state", "s.pt").code == 0
    states = {name: (files / path).read_bytes() for name, (path, _) in USES.items()}

    def stop(*_):
        raise AssertionError("it does not end")

    before = signal.signal(signal.SIGALRM, stop)

    def use(name, content):
        path, command = USES[name]
        (files / path).write_bytes(content)
        signal.alarm(5)
        try:
            return run(*command)
        finally:
            signal.alarm(0)

    yield states, use
    signal.signal(signal.SIGALRM, before)


def refused(found):
    return (
        found.code == 2 and not found.out and found.err.startswith("torch-boc: error: ") and found.err.count("\n") == 1
    )


def flipped(content, place):
    damaged = bytearray(content)
    damaged[place // 8] ^= 1 << place % 8
    return bytes(damaged)


def check_flips(saved, name, places):
    """A flip that changes no number, as in the padding between numbers, may be read."""
    states, use = saved
    whole = use(name, states[name])
    assert whole.code in (0, 4)
    wrong = [
        place for place in places if not refused(found := use(name, flipped(states[name], place))) and found != whole
    ]
    assert not wrong, f"{len(wrong)} of {len(places)}"


@pytest.mark.parametrize("name", USES)
def test_a_flipped_bit(saved, name):
    size = 8 * len(saved[0][name])
    check_flips(saved, name, [size // 3, size // 2, size - 800])


@pytest.mark.slow
@pytest.mark.parametrize("name", USES)
def test_many_flipped_bits(saved, name):
    """Most are in the counts; as many at both ends, where the names and the places of the parts are."""
    size, draw = 8 * len(saved[0][name]), random.Random(0)
    places = [draw.randrange(size) for _ in range(80)]
    check_flips(
        saved,
        name,
        places + [draw.choice((draw.randrange(16_000), size - 1 - draw.randrange(16_000))) for _ in range(80)],
    )


def parts(content, *path):
    """The paths of all parts of a state."""
    for key, x in content.items():
        yield (*path, key)
        if isinstance(x, dict):
            yield from parts(x, *path, key)


def edited(content, path, change):
    other = copy.deepcopy(content)
    holder = other
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return other


def packed(content, path):
    torch.save(content, path)
    return path.read_bytes()


def replaced(value):
    return lambda holder, key: holder.update({key: value})


EDITS = {"missing": lambda holder, key: holder.pop(key), "text": replaced("x"), "numbers": replaced(torch.ones(3, 3))}
EDITS |= {"none": replaced(None), "large": replaced(10**15)}
# What may be none, and the name, which decides nothing.
FREE = {("acceptance",), ("repeated",), ("run_length",), ("alpha",), ("name",)}


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", USES)
def test_a_missing_or_another_part(saved, files, name, edit):
    use = saved[1]
    content = torch.load(files / USES[name][0], weights_only=True)
    paths = [path for path in parts(content) if edit == "missing" or path not in FREE]
    assert len(paths) >= 12
    bad = [path for path in paths if not refused(use(name, packed(edited(content, path, EDITS[edit]), files / "e.pt")))]
    assert not bad


@pytest.mark.parametrize(
    "command", [("screen", "test.npz", *VAL, "--save-test"), ("monitor", "test.npz", *VAL, "--state")]
)
def test_a_full_disk(run, files, command):
    """The library that saves tensors raised an error without a reason."""
    before, limits = sorted(files.iterdir()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        found = run(*command, "x.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "File too large" in found.err
    assert sorted(files.iterdir()) == before
