"""`python -m torch_boc.cli`."""

from . import main

main()
