"""Which tests a system can run."""

import sys

import pytest

unix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals, pipes and devices are those of Unix")
