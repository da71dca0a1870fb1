"""The lock files fix every package that pyproject.toml asks for, in a version that it allows, by its content."""

import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement

from deploy.locks import ROOT, locked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ASKED = {
    "run": PROJECT["project"]["dependencies"],
    "dev": [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]],
    "build": PROJECT["build-system"]["requires"],
    "pip": ["pip"],
}


@pytest.mark.parametrize("name", ASKED)
def test_everything_that_is_asked_for_is_fixed_in_a_version_that_is_allowed(name):
    found = locked(name)
    for text in ASKED[name]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(found[requirement.name.lower().replace("_", "-")][0]), text


@pytest.mark.parametrize("name", ASKED)
def test_every_package_is_fixed_by_its_content(name):
    assert all(hashes for _, hashes in locked(name).values())


def test_developers_run_what_users_run():
    assert locked("run").items() <= locked("dev").items()


def test_these_tests_run_with_what_is_fixed():
    fixed = locked("dev") | locked("pip")
    assert {name: version(name) for name in fixed} == {name: number for name, (number, _) in fixed.items()}
