"""ARPGUARD_REQUIRE=NAME,...: a test that lacks one of these fails (as in CI); else it is skipped, with the reason."""

import os
from typing import NoReturn

import pytest

REQUIRED = frozenset(os.environ.get("ARPGUARD_REQUIRE", "").split(","))


def do_without(name: str, reason: str) -> NoReturn:
    """Ends a test that cannot run, with the reason."""
    if name in REQUIRED:
        pytest.fail(f"ARPGUARD_REQUIRE={name}, but {reason}")
    pytest.skip(f"{name}: {reason}")
