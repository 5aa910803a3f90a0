"""Tests with `library` run with both packages of Lightning."""

import pytest

from tests.lightning.cases import LIBRARIES


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]
