"""The documentation site builds without a warning, and its search finds what people look for."""

import json
import re
import runpy
from pathlib import Path

import pytest

from support.kube.manifests import RELEASE, objects_in

pytest.importorskip("mkdocs", reason="mkdocs is missing: `make docs` installs it")

ROOT = Path(__file__).resolve().parents[2]
SITE = runpy.run_path(str(ROOT / "docs/build.py"))
PAGES = list(SITE["pages"]())
ALERTS = [
    rule for document in objects_in("monitoring/alerts.yaml") for group in document["groups"] for rule in group["rules"]
]


@pytest.fixture(scope="module")
def staged(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    SITE["stage"](folder)
    return folder


@pytest.fixture(scope="module")
def site(staged, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert SITE["build"](staged, folder) == 0
    return folder


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("REASON_FENCED", "docs/reasons.html"),
        ("VIPSplitBrain", "docs/runbooks.html#vipsplitbrain"),
        ("can_reach", "docs/configuration.html#interfaces"),
        ("arpguard doctor", "docs/cli.html#arpguard-doctor"),
        ("arpguard_frames_total", "docs/metrics.html"),
    ],
)
def test_search_index_has_it(site, name, page):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    found = [entry["location"] for entry in index["docs"] if name in entry["title"] + entry["text"]]
    assert page in found


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_leads_to_its_own_section(site, rule):
    served, _, below = rule["annotations"]["runbook_url"].partition("/docs/")
    page, _, anchor = below.partition("#")
    assert served == RELEASE["DOCS"]
    headings = dict(re.findall(r'<h3 id="?([^">]+)"?>(\w+)', (site / "docs" / page).read_text(encoding="utf-8")))
    assert headings[anchor] == rule["alert"]


def test_names_of_the_code_are_whole_words_of_the_index(site):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    separator = index["config"]["separator"]
    assert re.split(separator, "`can_reach:198.51.100.1` REASON_FENCED VIPSplitBrain")[1:2] == ["can_reach"]
    assert re.split(separator, "REASON_FENCED VIPSplitBrain") == ["REASON_FENCED", "VIPSplitBrain"]


@pytest.mark.parametrize("link", ["docs/faq.md#no-such-answer", "docs/no-such-page.md"])
def test_link_that_leads_nowhere_is_an_error(staged, tmp_path, link):
    page = staged / "README.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(f"{text}\n[broken]({link})\n", encoding="utf-8")
    try:
        assert SITE["build"](staged, tmp_path) != 0
    finally:
        page.write_text(text, encoding="utf-8")


def test_no_page_shows_the_source_of_a_diagram(site):
    for page in site.rglob("*.html"):
        blocks = re.findall(r"<pre[^>]*>(?:<[^>]*>)*\s*(\w[\w-]*)", page.read_text(encoding="utf-8"))
        assert not {"stateDiagram-v2", "stateDiagram", "sequenceDiagram", "graph", "flowchart"} & set(blocks), page


def test_nothing_is_loaded_from_other_servers(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?(https?:[^" >]+)', page.read_text(encoding="utf-8"))
        sheets = re.findall(
            r'<link[^>]*rel="?stylesheet"?[^>]*href="?(https?:[^" >]+)', page.read_text(encoding="utf-8")
        )
        assert loaded + sheets == [], page


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_says_first_for_whom_it_is(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    first = next(part for part in text.split("\n\n")[1:] if part)
    assert re.match(r"For \w", first) or "is for operators" in first


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_sentence_for_whom_a_page_is_stands_alone(page):
    first = (ROOT / page).read_text(encoding="utf-8").split("\n\n")[1]
    assert not re.match(r"For \w", first) or not re.search(r"\.\s+[A-Z`\[]", first)


def test_narrow_screens_break_long_names_and_keep_the_explaining_column_readable():
    style = (ROOT / "docs/site.css").read_text(encoding="utf-8")

    assert re.search(r"td code \{ overflow-wrap: anywhere; \}", style)
    assert re.search(r"td:nth-child\(n\+3\):last-child \{ min-width: \d+rem; \}", style)


def test_no_list_of_pages_is_too_long_for_a_glance():
    """In a tab, and in each group of it."""
    text = (ROOT / "docs/mkdocs.yml").read_text(encoding="utf-8")
    found = [each[0] for each in re.finditer(r"(?:^( {6,})- .+\.md\n)(?:\1- .+\.md\n)*", text, re.MULTILINE)]

    assert found
    assert [each for each in found if len(each.splitlines()) > 10] == []
