"""Compiles the programs in a folder into a file; by default those of this checkout into the one that is shipped."""

import argparse
from pathlib import Path

from arpguard.dataplane.build import SHIPPED
from arpguard_build.compiler import SOURCE, compile_programs
from arpguard_build.errors import BuildError


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m arpguard_build", description=__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--output", type=Path, default=SHIPPED)
    given = parser.parse_args()
    try:
        text = compile_programs(given.source)
    except BuildError as error:
        raise SystemExit(str(error)) from None
    given.output.write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
