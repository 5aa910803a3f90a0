"""`python -m torch_boc.selfcheck`: the checks from the command line."""

import argparse
import sys
from collections.abc import Sequence

from .kit import CHECKS, FILE, run

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> int:
    """Run the checks and print a table. The exit code is 0 if none failed, 1 if one did, and 2 for wrong options."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_boc.selfcheck",
        description="Check on this machine that torch_boc computes what it should, and how fast: ten checks.",
    )
    parser.add_argument("--device", help="cuda, cuda:1, cpu; by default the GPU, or the CPU where there is none")
    parser.add_argument("--out", default=FILE, help="the file of results, by default %(default)s")
    parser.add_argument("--only", metavar="CHECK", nargs="+", help=f"some of the checks: {', '.join(CHECKS)}")
    options = parser.parse_args(args)
    try:
        results = run(options.device, options.out, only=options.only, tell=_say)
    except (ValueError, RuntimeError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        _say(f"interrupted; the results of the checks before are in {options.out}")
        return INTERRUPTED
    results.show()
    _say(f"the results are in {options.out}; please attach it to your report")
    return 1 if results.failed else 0


def _say(line: str) -> None:
    sys.stderr.write(f"torch_boc.selfcheck: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
