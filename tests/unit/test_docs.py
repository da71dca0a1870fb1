"""The documentation says what the code does."""

import argparse
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard.cli.kubectl.examples import EXAMPLES
from arpguard.cli.kubectl.main import build_parser as kubectl_parser
from arpguard.cli.main import build_parser
from arpguard.config.files import parse_config, read_config
from arpguard.config.reading import Schema
from arpguard.config.sections import SCHEMA
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Verdict
from fuzz.config_cases import WHOLE

ROOT = Path(__file__).resolve().parents[2]
GENERATED = runpy.run_path(str(ROOT / "docs/generate.py"))["PAGES"]
PAGES = sorted(page for page in ROOT.rglob("*.md") if not {".venv", ".cache"} & set(page.parts))
FIGURES = runpy.run_path(str(ROOT / "docs/figures.py"))
PICTURES = ROOT / "docs/pictures"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def picture(monkeypatch):
    """What a script that draws has, by its name."""
    monkeypatch.syspath_prepend(PICTURES)
    return lambda name: runpy.run_path(str(PICTURES / f"{name}.py"))


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", GENERATED)
def test_page_is_the_generated_one(name):
    assert GENERATED[name]() == (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["claim", "dashboard", "frame", "takeover"])
def test_picture_has_what_the_code_has(name, picture):
    """The table of a claim's stages, the panels, the verdicts, and the default times of a lease."""
    module = picture(name)

    assert module["draw"]() == module["PICTURE"].read_text(encoding="utf-8")


_UNIT = r"(?:s|ms|µs|ns|[kMG]i?B|[kM]bit/s|[MG]i|bytes|seconds|minutes|requests|tests|%|/s)"
NUMBER = re.compile(rf"(?<![\w.,/])\d[\d.,]*(?: (?:to|and|or) \d[\d.,]*)? ?{_UNIT}(?![\w/])")
# Pages that a program writes as a whole, from what the code says of itself.
OF_THE_CODE = {f"{name}.md" for name in ("api-messages", "cli", "kubectl-commands", "metrics", "reasons", "support")}
# Numbers with a unit that no figure gives, by page: what is around them.
BY_HAND = {
    # Frames and times that a standard, Linux or another program sets.
    "audit.md": [r"a broadcast of 60 bytes"],
    "conformance.md": [r"\d bytes", r"the neighbours' lock time for the entry \(1 s\)"],
    "follow-moves.md": [r"retries for 30 s", r"Cilium's after 15 s", r"for 5 s and kube-vip every 3 s"],
    "follow.md": [r"every `leaseRetryPeriod` \(2 s\)"],
    "ipv6.md": [r"up to 2\.0 s \(last listener query time", r"A restart within 2 s", r"group costs 56 bytes"],
    "lab-announcers.md": [r"every 0\.2 s", r"every 1\.1 s for 5 s", r"every 3 s for ever; 0\.5 s in the lab"],
    "vouching.md": [r"0x88B5 and 56 bytes", r"QEMU pauses a guest for up to 300 ms"],
    # What a test does or demands, in numbers that its code has no names for.
    "interfaces.md": [r"the tests allow 1 s"],
    "lab-faults.md": [r"10 % or half", r"for up to 2\.5 s", r"leases of 2 and 4 s", r"20 %, 60 % or all"],
    "lab-scenarios.md": [r"all nodes follow within 1 s"],
    "neighbours.md": [r"started again after 2 s", r"read every 5 s", r"asks every 5 ms", r"client asks every 100 ms"],
    "performance.md": [r"A client asked every 12 ms"],
    # Goals, which were set before anything was measured, and examples.
    "performance-frames.md": [r"The goals were 5 ns for IPv4 and 8 ns", r"The goal for an answer was \d+ ns"],
    "performance-vouching.md": [r"The goal was 150 ns", r"The goal for an answer was 5 ns"],
    "replay.md": [r"below 128 bytes, tcpdump truncates NDP", r"a capture of 1 GB"],
}


def test_number_with_a_unit_comes_from_the_figures():
    """But for those in the tables of the performance pages, which are what was measured."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {page.name: by_hand(page) for page in pages if page.name not in OF_THE_CODE}

    assert {name: numbers for name, numbers in found.items() if numbers} == {}


def test_number_by_hand_is_on_its_page():
    texts = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in BY_HAND}

    assert [(name, each) for name, text in texts.items() for each in BY_HAND[name] if not re.search(each, text)] == []


def by_hand(page: Path) -> list[str]:
    """The numbers with a unit that neither a figure nor BY_HAND explains, each with what is before it."""
    text = re.sub(
        r"^<!-- ([\w-]+) -->\n.*?^<!-- end of \1 -->", "", _without_blocks(page), flags=re.MULTILINE | re.DOTALL
    )
    if page.name.startswith("performance"):
        text = re.sub(r"^\|.*", "", text, flags=re.MULTILINE)
    text = re.sub("|".join(["(?!)", *BY_HAND.get(page.name, ())]), "", FIGURES["MARK"].sub("", text))
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)
    return [text[max(0, at.start() - 40) : at.end()] for at in NUMBER.finditer(text)]


def test_figure_is_shown_and_was_measured_some_day():
    figures = FIGURES["known"]()
    shown = {mark[1] for page in PAGES for mark in FIGURES["MARK"].finditer(page.read_text(encoding="utf-8"))}

    assert {*figures["defaults"], *figures["measured"]} == shown
    assert all(re.match(r"\d{4}-\d\d-\d\d$", each["day"]) and each["command"] for each in figures["measured"].values())


def test_figures_of_a_page_are_rewritten():
    figures = {"defaults": {"fence": "4 s"}, "measured": {}}

    assert FIGURES["filled"]("after <!--fence-->2 s<!--/--> or so", figures) == "after <!--fence-->4 s<!--/--> or so"


def test_figures_of_the_benchmark_are_taken_over():
    before = {"rss": {"value": "58 MB", "day": "2026-11-21", "row": ["agent", "RSS, 10 VIPs"]}, "other": {"value": "1"}}
    bench = {"agent": {"rows": [{"name": "RSS, 10 VIPs", "median": 61.34, "unit": "MB"}]}}

    after = FIGURES["benched"](before, bench, "2026-12-01")
    assert after["rss"] == {"value": "61 MB", "day": "2026-12-01", "row": ["agent", "RSS, 10 VIPs"]}
    assert after["other"] == before["other"]


def test_no_line_begins_with_a_figure():
    """Markdown takes a line that begins with a comment for HTML, and leaves all of it as it is."""
    pages = {
        page.name: re.findall(r"^\s*<!--[\w-]+-->.*<!--/-->", page.read_text("utf-8"), re.MULTILINE) for page in PAGES
    }

    assert {name: lines for name, lines in pages.items() if lines} == {}


def test_picture_of_a_frame_has_every_verdict():
    drawn = (PICTURES / "frame.svg").read_text(encoding="utf-8")

    assert [verdict.name for verdict in Verdict if verdict.name not in drawn] == []


def test_pictures_of_messages_are_drawn_from_their_texts(picture):
    module = picture("exchange")
    drawn = {source.stem: module["draw"](source.read_text(encoding="utf-8")) for source in module["SOURCES"]}

    assert set(drawn) == {"lapse", "voucher"}
    assert {name: (PICTURES / f"{name}.svg").read_text(encoding="utf-8") for name in drawn} == drawn


def test_picture_of_the_front_page_has_each_mode_apart():
    """In enforce mode no decision of observe mode is left, and no line that the page does not explain."""
    drawn = (PICTURES / "enforce.svg").read_text(encoding="utf-8")
    observed, enforced = re.split(r'<text class="caption"[^>]*>mode: enforce', drawn)

    assert "would suppress" in observed
    assert "arping" in observed
    assert re.findall(r">[^<]*would [^<]*<|>report<", enforced) == []


def test_every_picture_is_on_a_page():
    shown = {
        Path(target).name for page in PAGES for target in re.findall(r"\]\(([^)]+\.svg)\)", page.read_text("utf-8"))
    }

    assert {path.name for path in PICTURES.glob("*.svg")} == shown


def test_what_is_needed_is_what_the_package_and_the_chart_ask_for():
    text = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    python = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    chart = (ROOT / "deploy/helm/arpguard/Chart.yaml").read_text(encoding="utf-8")

    assert f"Needs: {python.removeprefix('>=')} or newer" in text
    assert f"Needs: {re.search(r'kubeVersion: .>=([0-9]+.[0-9]+)', chart)[1]} or newer" in text


def test_front_page_names_what_the_tests_ran_on():
    """README has the list of docs/support.md in a sentence."""
    support = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    tested = re.search(r"^Linux .*? Tested: (.*?); \[", README, re.MULTILINE)[1]

    for name, section in (("kernels", "Kernels"), ("Debian", "Distributions"), ("Kubernetes", "Kubernetes")):
        rows = re.findall(
            r"^\| (?:\w+ )?(\d[\d.]*) \|", support.partition(f"## {section}\n")[2].partition("\n## ")[0], re.MULTILINE
        )
        said = re.search(rf"{name} ([\d., and]*\d)", tested)[1]
        assert re.findall(r"[\d.]*\d", said) == list(dict.fromkeys(rows))

    oldest = re.search(r"^\| Linux ([\d.]+) \|", support, re.MULTILINE)[1]
    for page in (README, (ROOT / "docs/install.md").read_text(encoding="utf-8")):
        assert f"Linux 5.15 or newer (tested from {oldest})" in page


@pytest.mark.parametrize(
    ("question", "facts"),
    [
        ("What happens on uninstall?", ["helm uninstall", "apt-get remove", "pip uninstall", "arpguard cleanup"]),
        ("What happens when the API server is unreachable?", ["owner: follow", "within 2 s", "fixed owner"]),
        ("Which node has VIP X, and which Service is it?", ["kubectl arpguard explain X", "of elected VIPs only"]),
        ("Does keepalived failover work?", ["hangs", "vrrp_notify_fifo"]),
        ("Does it run in kind?", ["not been tested", "BPF file system"]),
    ],
)
def test_answer_has_the_facts_that_a_reader_acts_on(question, facts):
    page = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    answer = page.partition(f"## {question}\n")[2].partition("\n## ")[0]

    assert [fact for fact in facts if fact not in answer] == []


def test_front_page_drops_strict_arp_only_where_the_guard_enforces():
    assert re.findall(r"strictARP(?!, in `enforce` mode| in `enforce` mode|\))", README.partition("## Beside")[2]) == []


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_newcomers_learn_that_external_ips_are_deprecated(page):
    text = (ROOT / page).read_text(encoding="utf-8")

    assert re.search(r"load-balancer IP[^\n]* `spec\.externalIPs` is [^\n]*deprecated", text)
    assert "services.md#load-balancer-ips-and-externalips)" in text


def test_front_page_is_short():
    assert len(README.splitlines()) <= 120


def test_runbooks_begin_with_a_table_of_their_sections():
    page = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
    index = page.partition("<!-- index -->")[2].partition("<!-- end of index -->")[0]

    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == re.findall(r"^\| \[([^\]]+)\]", index, re.MULTILINE)
    assert [row for row in index.splitlines() if row.count("`") % 2] == [], "a sentence ends inside code"


# Files of the repository that are known by their names.
KNOWN_BY_NAME = {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}


def test_links_in_prose_have_titles_in_place_of_file_names():
    """But for the changelog, whose lines stay as they were."""
    found = [
        (page.name, text)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for text in re.findall(r"\[([\w./-]+\.md)\]\(", page.read_text(encoding="utf-8"))
    ]

    assert [(page, text) for page, text in found if text not in KNOWN_BY_NAME] == []


def test_every_event_has_a_runbook():
    page = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
    reasons = event_reasons()

    assert len(reasons) >= 15
    assert sorted(re.findall(r"^### Event (\w+)$", page, re.MULTILINE)) == sorted(reasons)


def test_pages_are_short_or_say_that_they_are_for_looking_up():
    """What a reader of the site reads has less than 1,500 words, examples apart; tables to look up may be longer."""
    site = (ROOT / "docs/mkdocs.yml").read_text(encoding="utf-8")
    names = re.findall(r"^ {6,}- (.+\.md)$", site, re.MULTILINE)
    long = {name: text for name in names if len((text := _without_blocks(ROOT / name)).split()) >= 1500}

    assert {"docs/kubernetes.md", "docs/vouching.md", "docs/metrics.md"} <= set(names)
    assert "docs/metrics.md" in long
    assert [
        name for name, text in long.items() if not re.search(r"\b[Ll]ooks? up\b", "".join(text.split("\n\n")[1:3]))
    ] == []


def _without_blocks(page: Path) -> str:
    """Without examples, and what pictures say to those who do not see them."""
    return re.sub(r"^```.*?^```|^!\[.*?\]", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_yaml_example_is_a_valid_configuration(page):
    for block in _blocks(page, "yaml"):
        parse_config(block, str(page))


def test_shipped_configuration_is_valid_and_touches_nothing():
    config = read_config(ROOT / "deploy/standalone/config.yaml")

    assert config.mode.name == "OBSERVE"


def _settings(schema: Schema = SCHEMA, path: str = "") -> Iterator[str]:
    """All settings below one; `[]` stands for each item."""
    below = [(f"{path}.{key}" if path else key, each) for key, each in _keys(schema).items()]
    below += [(f"{path}[]", each["items"]) for each in _forms(schema) if _keys(each.get("items", {}))]
    for name, each in below:
        yield from _settings(each, name)
    if not below:
        yield path


def _forms(schema: Schema) -> list[Schema]:
    return [schema, *schema.get("anyOf", ())]


def _keys(schema: Schema) -> Schema:
    return {key: each for form in _forms(schema) for key, each in form.get("properties", {}).items()}


def test_configuration_that_fuzzers_vary_has_every_setting():
    assert [name for name in _settings() if not _has(WHOLE, name.split("."))] == []


def _has(config: object, path: list[str]) -> bool:
    """Whether a configuration, or an item of a list in it, has a setting."""
    if isinstance(config, list):
        return any(_has(item, path) for item in config)
    if not path:
        return True
    key = path[0].removesuffix("[]")
    return isinstance(config, dict) and key in config and _has(config[key], path[1:])


def test_every_setting_is_documented():
    """In a row of its own (`.renew` stands for the one before with another end), or as a key in its parent's row."""
    rows = {}
    for line in (ROOT / "docs/configuration.md").read_text(encoding="utf-8").splitlines():
        name = ""
        for found in re.findall(r"`([^`]*)`", line.split("|")[1]) if line.startswith("| `") else ():
            name = name.rpartition(".")[0] + found if found.startswith(".") else found
            rows[name] = line
    settings = set(_settings())

    assert {"mode", "vips[].hold", "lease.margin", "grpc.tls.client_ca", "follow.kube_vip.lease"} <= settings
    parents = {path: re.split(r"(?:\[\])?\.(?=[^.]*$)", path) for path in settings}
    assert [
        path
        for path, (parent, *key) in sorted(parents.items())
        if path not in rows and not any(f"{each}:" in rows.get(parent, "") for each in key)
    ] == []


def test_every_setting_of_the_page_is_one():
    settings = runpy.run_path(str(ROOT / "docs/settings.py"))
    rows = list(settings["_ROW"].finditer((ROOT / "docs/configuration.md").read_text(encoding="utf-8")))
    named = [path for row in rows for path in settings["paths"](row[1])]

    assert {"mode", "bpf.max_entries", "lease.margin", "follow.openelb.namespace"} <= set(named)
    assert [path for path in named if settings["_schema"](path) is None] == []


def test_default_of_a_setting_is_its_attribute_or_a_time():
    default = runpy.run_path(str(ROOT / "docs/settings.py"))["_default"]

    assert [default(path) for path in ("mode", "lease.renew", "audit.every")] == ["observe", "1s", "60s"]
    with pytest.raises(LookupError, match=r"lease\.other: .* put its default into _SHOWN or _IN_WORDS"):
        default("lease.other")


def test_every_message_of_the_api_is_on_its_page():
    page = (ROOT / "docs/api-messages.md").read_text(encoding="utf-8")
    descriptor = pb.DESCRIPTOR
    fields = {field.name for message in descriptor.message_types_by_name.values() for field in message.fields}

    assert {*descriptor.message_types_by_name, *descriptor.enum_types_by_name} <= set(
        re.findall("^## (.+)$", page, re.MULTILINE)
    )
    assert fields <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_documentation_parses(page):
    """What the commands print is shown by tests/netns/test_readme.py; here, that there are such commands."""
    for block in _blocks(page, "console"):
        for line in block.splitlines():
            words = re.split(" [&|]", line.removeprefix("# ").removeprefix("$ "))[0].split()
            if words[0] == "arpguard":
                build_parser().parse_args(words[1:])
            elif words[:2] == ["kubectl", "arpguard"]:
                kubectl_parser().parse_args(words[2:])


def test_page_of_the_plugin_has_its_commands():
    page = (ROOT / "docs/kubectl.md").read_text(encoding="utf-8")
    (commands,) = (action for action in kubectl_parser()._actions if isinstance(action, argparse._SubParsersAction))

    assert re.findall(r"^\| `kubectl arpguard (\w+)", page, re.MULTILINE) == list(commands.choices)
    assert set(re.findall(r"^  kubectl arpguard (\w+)", "".join(EXAMPLES.values()), re.MULTILINE)) == set(EXAMPLES)
    for example in re.findall(r"^  kubectl arpguard ([^|\n]*)", "".join(EXAMPLES.values()), re.MULTILINE):
        kubectl_parser().parse_args(example.split())


def test_what_config_check_says_is_what_the_page_shows():
    (block,) = [block for block in _blocks(ROOT / "docs/configuration.md", "console") if "config check -" in block]
    command, *shown = block.splitlines()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.removeprefix("# ")], env={"PATH": path}, capture_output=True, text=True, check=False
    )

    assert done.stderr.splitlines() == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_in_the_documentation_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_section_that_programs_and_manifests_name_is_there():
    """Messages, comments and the chart's notes name pages as `docs/NAME.md#section`."""
    files = [path for folder in ("agent", "deploy") for path in sorted((ROOT / folder).rglob("*"))]
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix in {".py", ".yaml", ".txt"}}
    named = {each for text in texts.values() for each in re.findall(r"docs/([\w-]+\.md)(?:#([\w-]+))?", text)}

    assert ("daemonset.md", "memory") in named
    assert [(page, section) for page, section in sorted(named) if section not in {"", *_sections(page)}] == []


def _sections(page: str) -> set[str]:
    """The sections of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def event_reasons() -> set[str]:
    """Every reason that an Event of the agent may have."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "agent/arpguard").rglob("*.py")]
    return {found for text in sources for found in re.findall(r'\b(?:Notice|Complaint)\([^"]*?"([A-Z]\w+)"', text)}
