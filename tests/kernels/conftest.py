"""What tests of the kernels need around them."""

import pytest

from tests.kernels.cases import INTERPRETED


@pytest.fixture(scope="session", autouse=True)
def _language_is_prepared_once():
    """Triton's interpreter adapts its language at each call of a function in a kernel, which takes most of its time.

    Once for each function is enough: the kernel that calls it still does so at each launch, and undoes it.
    """
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            patch.setattr("triton.runtime.interpreter.InterpretedFunction.__call__", _prepared_once())
        yield


def _prepared_once():
    from triton.runtime.interpreter import InterpretedFunction

    with_preparation, prepared = InterpretedFunction.__call__, set()

    def call(self, *args, **kwargs):
        if self in prepared:
            return self.rewrite()(*args, **kwargs)
        prepared.add(self)
        return with_preparation(self, *args, **kwargs)

    return call
