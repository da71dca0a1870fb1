"""Manifests as kustomize and helm render them: `make test` builds both, or they are on the PATH."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CHART = DEPLOY / "helm/arpguard"
# The image's repository and the version, as IMAGE and VERSION.
RELEASE = dict(re.findall(r"^(\w+)=(.+)$", (DEPLOY / "release.env").read_text(encoding="utf-8"), re.MULTILINE))
KUBE_VERSION = "1.33.0"  # for helm, which asks no cluster here


def tool(name: str) -> str:
    """Where a program is; the test is skipped, with the reason, where it is not."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if path is None:
        pytest.skip(f"{name} is not installed: `make .venv/bin/{name}` builds it where there is Go")
    return path


@functools.cache
def built(folder: str) -> str:
    """What `kustomize build` makes of a folder below deploy/."""
    return _output(tool("kustomize"), "build", str(DEPLOY / folder))


def composed(folder: Path, text: str) -> list[dict]:
    """What kustomize makes of a kustomization that a user writes."""
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    return parsed(_output(tool("kustomize"), "build", "--load-restrictor", "LoadRestrictionsNone", str(folder)))


@functools.cache
def charted(*words: str, namespace: str = "arpguard") -> str:
    """What `helm template` makes of the chart, but for its hook."""
    where = ["-n", namespace, "--kube-version", KUBE_VERSION]
    return _output(tool("helm"), "template", "--no-hooks", "arpguard", str(CHART), *where, *words)


def hooked(*words: str) -> str:
    """The chart's hook: what `helm uninstall` runs first."""
    where = ["-n", "arpguard", "--kube-version", KUBE_VERSION, "-s", "templates/uninstall.yaml"]
    return _output(tool("helm"), "template", "arpguard", str(CHART), *where, *words)


def parsed(text: str) -> list[dict]:
    """The objects of a manifest. libyaml reads them ten times as fast as pure Python."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def objects_in(name: str) -> list[dict]:
    """The objects in a file below deploy/."""
    return parsed((DEPLOY / name).read_text(encoding="utf-8"))


def one(objects: list[dict], kind: str, name: str = "arpguard") -> dict:
    """The only object of that kind and name."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
