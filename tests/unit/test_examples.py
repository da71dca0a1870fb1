"""Every example in the documentation is run or compared by a test, or stands in a list with the reason why not."""

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in chain(
        [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"],
        *(sorted((ROOT / folder).rglob("*.md")) for folder in ("docs", "deploy", "agent", "bpf", "proto")),
    )
}

README, INSTALLED, MANIFESTS = (
    "tests/netns/test_readme.py",
    "tests/release/test_installed.py",
    "tests/deploy/test_manifests.py",
)
DRAWING = "a drawing in characters"
PARSED = "the command is parsed (tests/unit/test_docs.py), and "
MAKE = "targets of make; each says itself what failed"
GENERATED = "from the parsers (docs/generate.py), which the parsers' own tests parse"
CLUSTER = "needs a cluster: "
# For each page, what becomes of its blocks of `console` and `text`, in their order: a test's path, or the reason.
BLOCKS = {
    "README.md": [
        README,
        "two lines of what `make lab` prints: the scenario itself says what it expects",
        *[README] * 3,
    ],
    "CONTRIBUTING.md": [MAKE],
    "SECURITY.md": [DRAWING],
    "agent/README.md": [DRAWING] * 5,
    "deploy/README.md": [
        CLUSTER + "`make neighbours NEIGHBOURS=shipped` applies deploy/base to kubelets",
        "a kustomization that fetches from a server",
        "a kustomization of files that the reader has",
        "what deploy/image/build.sh does, step by step",
    ],
    "docs/api.md": [README] * 14,
    "docs/architecture.md": [DRAWING],
    "docs/audit.md": [PARSED + "tests/netns/test_audit.py asks in a cluster", "tests/unit/cli/test_auditing.py"],
    "docs/cli.md": [GENERATED] * 8,
    "docs/configuration.md": ["tests/unit/test_docs.py"],
    "docs/doctor.md": ["tests/netns/test_doctor.py"] * 7,
    "docs/evidence.md": [DRAWING],
    "docs/follow-moves.md": [DRAWING],
    "docs/follow.md": [DRAWING],
    "docs/install.md": [
        "tests/release/test_installed.py",
        *[INSTALLED] * 2,
        CLUSTER + "`make neighbours NEIGHBOURS=shipped` applies the same objects to kubelets",
        CLUSTER + f"{MANIFESTS} installs the chart in the lab's API server",
    ],
    "docs/keepalived.md": [
        "keepalived's configuration; agent/arpguard_lab/peers/programs.py writes one with these lines"
    ],
    "docs/kernels.md": [MAKE],
    "docs/kubectl-commands.md": [GENERATED] * 12,
    "docs/kubectl.md": [
        PARSED + "tests/unit/cli/test_kubectl.py runs each against agents",
        "tests/unit/cli/test_kubectl.py",
        "tests/unit/cli/test_kubectl_watch.py",
        MANIFESTS,
        "values of the chart, to be read beside the command",
    ],
    "docs/kubernetes.md": [
        CLUSTER + "`make neighbours NEIGHBOURS=shipped` does it on kubelets",
        CLUSTER + f"{MANIFESTS} installs the chart in the lab's API server",
        DRAWING,
        *[MANIFESTS] * 3,
    ],
    "docs/lab-announcers.md": [PARSED + "tests/lab/test_scenarios.py runs its scenarios"],
    "docs/lab-kubernetes.md": [DRAWING],
    "docs/lab.md": [PARSED + "tests/lab/test_scenarios.py runs its scenarios"],
    "docs/neighbours.md": [MAKE] * 6,
    "docs/protocol.md": [CLUSTER + "a list by a label, which tests/unit/test_docs.py cannot ask for"],
    "docs/quickstart.md": [README],
    "docs/replay.md": ["tests/netns/test_replay_page.py"] * 8,
    "docs/rights.md": [MANIFESTS],
    "docs/services.md": [MANIFESTS, MANIFESTS],
}


def _blocks(page: Path) -> list[str]:
    return re.findall(r"^```(?:console|text)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_tested_or_says_why_not(page):
    """A new block needs a line in BLOCKS: better a test than a reason."""
    assert len(_blocks(PAGES[page])) == len(BLOCKS.get(page, []))


def test_tests_of_the_examples_are_there_and_name_the_page():
    named = {(page, how) for page, hows in BLOCKS.items() for how in hows if re.fullmatch(r"tests/\S+\.py", how)}
    texts = {how: (ROOT / how).read_text(encoding="utf-8") for _, how in named}

    assert len(named) >= 12
    assert [(page, how) for page, how in sorted(named) if Path(page).name not in texts[how]] == []


def test_every_test_that_a_reason_names_is_there():
    named = {
        found
        for hows in BLOCKS.values()
        for how in hows
        for found in re.findall(r"(?:tests|agent|docs)/[\w/]+\.py", how)
    }

    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_page_of_the_list_is_there():
    assert set(BLOCKS) <= set(PAGES)
