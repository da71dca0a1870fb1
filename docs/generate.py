"""Writes the generated pages: `make docs`.

docs/reasons.md, docs/metrics.md, docs/cli.md, docs/kubectl-commands.md and the schemas come from the code,
the chart's copies of alerts and dashboard from deploy/monitoring (in the latter the row about Kubernetes is open),
values and defaults in docs/configuration.md from the schema and the model, docs/api-messages.md from agent.proto,
docs/support.md from what tests have run on, the alerts of docs/runbooks.md from the rules for Prometheus, and the
layers of docs/architecture.md from pyproject.toml; the numbers in prose from docs/figures.json. A test compares.
"""

import argparse
import json
import re
import runpy
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.process_collector import ProcessCollector

from arpguard.config.sections import SCHEMA
from arpguard.observe.metrics import SPECS
from arpguard.verdict import Reason

FOLDER = Path(__file__).parent
TOP = FOLDER.parent
MONITORING = TOP / "deploy/monitoring"
VALUES = "../deploy/helm/arpguard/values.schema.json"
_FIGURES = runpy.run_path(str(FOLDER / "figures.py"))
_DRAFT = "http://json-schema.org/draft-07/schema#"
_REASONS = """# Reasons

For anyone who reads decisions, counters or the API: why a frame got its verdict.

The BPF programs, the agent, its API, its metrics and this page share this list. Each reason has one verdict.
The programs count each reason for every VIP and for the node, and count enforced and observed decisions separately.
The [glossary](glossary.md) defines entry, fence, epoch, grant and voucher.
How to add a reason: [the BPF programs](../bpf/README.md#adding-a-reason).

| number | reason | name in the API | verdict | meaning |
|---|---|---|---|---|
"""
_METRICS = """# Metrics

For operators who monitor arpguard: look up what a metric means, and when to worry.

The agent serves its metrics at `http://NODE:9469/metrics`, for Prometheus.
[`metrics.listen`](configuration.md) sets another address, or `off`.
A scrape reads the kernel's maps and the agent's state at that moment.
An agent that hangs answers 503, or nothing, so Prometheus shows it as down. The guard in the kernel keeps working.
No label has a value that a neighbour can choose: claims are listed by VIP and link, never by MAC address.
The page [Reasons](reasons.md) lists the verdicts and reasons.
The [glossary](glossary.md) defines fence, epoch, grant and the other terms.
Metrics about Kubernetes, Leases, nodes and elected VIPs exist only where the agent follows Kubernetes.
A dashboard, alert rules and scrape configurations are in [deploy/monitoring](../deploy/monitoring/README.md).

| metric | type | labels | meaning |
|---|---|---|---|
"""
_PROCESS = """
These metrics describe the agent's process, under the names that all Prometheus client libraries use:

| metric | type | meaning |
|---|---|---|
"""
_SUPPORT = """# What it is tested on

For operators who ask whether arpguard runs on their system.

Each row names tests that passed, with the date of their last run. The middle column names the installed file or the
command, and after a colon what the test ran or checked.
`make release` records its tests in `docs/tested.json`.
Details of the runs of `make neighbours` and `make kernels` are on the pages
[Among real neighbours](neighbours.md) and [On distribution kernels](kernels.md).
A version that meets "Needs" but is not listed may work; it was not tried.
No run had a CNI plugin: arpguard sees only ARP and neighbour discovery on the node's own interfaces.
"""
_CLI = """# Commands

For anyone at a prompt: look up a command of `arpguard`, with its arguments and options.

`arpguard COMMAND --help` says the same, and so do the manual pages of the Debian package.
The package also has completions for bash, zsh and fish; `arpguard completion SHELL` prints one.
Completions offer commands, options, and the VIPs and links of the agent on this node.
The [glossary](glossary.md) defines fence, claim and the other terms.

- Commands that ask an agent ask the one on this node. `--address` names another agent; `--all-nodes` asks all agents.
- `-o json` and `-o yaml` are for programs.
- `cleanup`, `uninstall` and `kubectl arpguard mode` have no `-o`: their exit codes say whether they succeeded.
- With `--pin-dir`, a command reads the pinned objects in the kernel instead, and works where no agent runs.

| command | does |
|---|---|
"""
_PLUGIN = """# Commands of kubectl arpguard

For operators at a laptop: look up a command of the plugin, with its arguments and options.

`kubectl arpguard COMMAND --help` says the same, and so do the manual pages of the Debian package.
How to install it, and the rights that it needs: [kubectl arpguard](kubectl.md).
The [glossary](glossary.md) defines fence, claim and the other terms.

| command | does |
|---|---|
"""
_NEEDS = {
    "Python": "3.11 or newer; the Debian package has modules for 3.11 to 3.14",
    "Distributions": (
        "for the Debian package, Debian or Ubuntu with Python 3.11 to 3.14; for the wheel, glibc and libbpf 1"
    ),
    "Kernels": (
        "Linux 5.15 or newer. No test ran on a kernel older than those in the table; on 5.15 the kernel loaded an "
        "earlier version of the programs, and nothing else was tested. Removing a virtio_net NIC with native XDP may "
        "hang Linux ([limits](limits.md))"
    ),
    "Architectures": "amd64 or arm64; the BPF programs are the same for both",
    "Kubernetes": "1.30 or newer",
}
_VARIABLE = re.compile(r"\{\{ \$(?:labels\.)?(\w+).*?\}\}")  # of Prometheus
_BY_TABLE = {"kube-proxy": "`make kernels`: kube-proxy", "suites": "`make kernels`: its test suites"}


def reasons_page() -> str:
    """The page about reasons as it has to be."""
    rows = (
        (
            str(reason.value),
            f"`{reason.name.lower()}`",
            f"`REASON_{reason.name}`",
            reason.verdict.name.lower(),
            reason.meaning,
        )
        for reason in Reason
    )
    return _REASONS + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def metrics_page() -> str:
    """The page about metrics as it has to be."""
    ours = (
        f"| `{spec.name}` | {spec.kind} | {', '.join(f'`{label}`' for label in spec.labels)} | {spec.help} |\n"
        for spec in SPECS
    )
    process = (
        f"| `{sample.name}` | {family.type} | {family.documentation} |\n"
        for family in ProcessCollector(registry=None).collect()
        for sample in family.samples
    )
    return "".join([_METRICS, *ours, _PROCESS, *process])


def support_page() -> str:
    """The page about what it is tested on: what each run of the tests noted, and the newest day of each."""
    ran: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted([*_noted(), *_measured("neighbours.md"), *_measured("kernels.md")], key=lambda row: row["day"]):
        ran.setdefault((row["what"], row["name"]), {})[row["how"]] = row["day"]

    sections = []
    for what, needs in _NEEDS.items():
        names = sorted((name for kind, name in ran if kind == what), key=_by_numbers)
        rows = ((name, how, day) for name in names for how, day in sorted(ran[what, name].items()))
        tested = "".join(f"| {name} | {how} | {day} |\n" for name, how, day in rows)
        head = "| tested on | what was tested | last run |\n|---|---|---|\n"
        sections.append(f"\n## {what}\n\nNeeds: {needs}.\n\n{head}{tested}")
    return _SUPPORT + "".join(sections)


def runbooks_page() -> str:
    """The page about alerts and Events, with the alerts as their rules have them."""
    rules = yaml.safe_load((TOP / "deploy/monitoring/alerts.yaml").read_text(encoding="utf-8"))
    alerts = (rule for group in rules["groups"] for rule in group["rules"])
    text = _between("runbooks.md", "alerts", "\n".join(_alert(rule) for rule in alerts))
    return _filled(text, "index", "".join(_index(text)))


def _index(page: str) -> Iterator[str]:
    """Rows for each alert and Event: its first sentence."""
    yield "| alert or Event | says |\n|---|---|\n"
    for kind, name, said in re.findall(r"^### (Event )?(\w+)\n\n(.+)$", page, re.MULTILINE):
        sentence = re.split(r"(?<=\w|\)|`)\.(?:\s|$)|(?<=\w): (?=[^`]*(?:`[^`]*`[^`]*)*$)", said)[0]
        yield f"| [{kind}{name}](#{kind.lower().replace(' ', '-')}{name.lower()}) | {_cell(sentence)} |\n"


def _alert(rule: dict[str, Any]) -> str:
    """A section of the runbooks."""
    notes = rule["annotations"]
    said, todo = (_VARIABLE.sub(lambda found: found[1].upper(), notes[key]) for key in ("summary", "description"))
    title, lasting = rule["alert"], f", for {rule['for']}" if "for" in rule else ""
    how = f"{rule['labels']['severity'].capitalize()}. Fires when `{' '.join(rule['expr'].split())}`{lasting}."
    return f"### {title}\n\n{said}.\n\n{todo}\n\n{how}\n"


def architecture_page() -> str:
    """The page about the parts of arpguard, with the layers as the contract has them."""
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [layer.replace("arpguard.", "").replace(" | ", ", ") for layer in contracts[0]["layers"]]
    return _between(
        "architecture.md", "layers", "".join(f"{number}. {layer}\n" for number, layer in enumerate(layers, 1))
    )


def _between(page: str, name: str, text: str) -> str:
    """A page with another text between its marks of this name."""
    return _filled((FOLDER / page).read_text(encoding="utf-8"), name, text)


def _filled(page: str, name: str, text: str) -> str:
    """The same for the text of a page."""
    before, start, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->")
    return f"{before}{start}\n{text}\n{end}{after}"


def cli_page() -> str:
    """The page about the command line."""
    return _CLI + _commands("arpguard")


def plugin_page() -> str:
    """The page about the plugin's command line."""
    return _PLUGIN + _commands("kubectl-arpguard")


def _commands(name: str) -> str:
    """A program's commands, from its parsers."""
    program, *below = runpy.run_path(str(TOP / "deploy/release/man.py"))["commands"](name)
    names = {command.parser.prog: command for command in below}
    table = "".join(
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_cell(command.summary)} |\n" for name, command in names.items()
    )
    codes = f"\n{(program.parser.epilog or '').replace('exit', 'Exit', 1)}.\n"
    return "".join([table, codes, *(_command(name, command.parser) for name, command in names.items())])


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    """A command's section: what it does, what follows it, and examples."""
    rows = [
        f"| {_words(action)} | {_cell((action.help or '') % vars(action))} |\n"
        for action in parser._actions  # noqa: SLF001 - argparse has no public list of them
        if action.help != argparse.SUPPRESS and not {"-h", "COMMAND"} & {*action.option_strings, action.metavar}
    ]
    described = f"\n{_cell(parser.description)}\n" if parser.description else ""
    table = "".join(["\n| argument or option | meaning |\n|---|---|\n", *rows]) if rows else ""
    _, shown, examples = (parser.epilog or "").partition("examples:\n")
    lines = "".join(f"{line.strip()}\n" for line in examples.splitlines())
    return f"\n## {name}\n{described}{table}" + (f"\n```text\n{lines}```\n" if shown else "")


def _words(action: argparse.Action) -> str:
    """An argument or option as it is typed."""
    value = action.metavar or (",".join(map(str, action.choices)) if action.choices else action.dest)
    takes = "" if action.nargs == 0 else f" {value}"
    return f"`{', '.join(action.option_strings)}{takes}`".replace("` ", "`")


def _cell(text: str) -> str:
    """A text of the parsers in one line of Markdown."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _noted() -> list[dict[str, str]]:
    """What `make release` noted."""
    noted: list[dict[str, str]] = json.loads((FOLDER / "tested.json").read_text(encoding="utf-8"))
    return noted


def _measured(page: str) -> Iterator[dict[str, str]]:
    """What the tables of a page say: the day of each, and the kernels, architectures and Kubernetes of its runs."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    for table, day, rest in re.findall(r"^<!-- ([\w-]+) -->\n(\S+); (.*?)^<!-- end", text, re.MULTILINE | re.DOTALL):
        how = f"{_BY_TABLE.get(table, '`make neighbours`')} ([details]({page}))"
        for name in re.findall(r"\bLinux (\d+\.\d+)", rest):
            yield {"what": "Kernels", "name": f"Linux {name}", "how": how, "day": day}
        for name in re.findall(r"\bLinux \d\S*-(amd64|arm64)\b", rest):
            yield {"what": "Architectures", "name": name, "how": how, "day": day}
        for name in re.findall(r"\b(?:Kubernetes|kube-proxy) (\d+\.\d+)", rest):
            yield {"what": "Kubernetes", "name": name, "how": how, "day": day}


def _by_numbers(name: str) -> tuple[list[int], str]:
    """Linux 6.12 stands behind Linux 6.2."""
    return [int(part) for part in re.findall(r"\d+", name)], name


def config_schema() -> str:
    """The JSON Schema of a configuration."""
    return _json({"$schema": _DRAFT, "title": "Configuration of arpguard", **SCHEMA})


def values_schema() -> str:
    """The JSON Schema of the chart's values: as it is, but for the configuration in it."""
    values = json.loads((FOLDER / VALUES).read_text(encoding="utf-8"))
    values["properties"]["config"] = SCHEMA
    return _json(values)


def rules_of_chart() -> str:
    """The alert rules in the chart: helm reads no file outside of its folder."""
    return (MONITORING / "alerts.yaml").read_text(encoding="utf-8")


def dashboard_of_chart() -> str:
    """The dashboard in the chart: the same with its row about Kubernetes open, and what is below it moved down."""
    dashboard = json.loads((MONITORING / "arpguard.json").read_text(encoding="utf-8"))
    panels, lower = [], 0
    for panel in dashboard["panels"]:
        for moved in (panel, *panel.get("panels", ())):
            moved["gridPos"]["y"] += lower
        panels.append(panel)

        if panel["title"] == "Kubernetes":
            opened, panel["panels"], panel["collapsed"] = panel["panels"], [], False
            panels += opened
            ends = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in opened)
            lower += ends - (panel["gridPos"]["y"] + panel["gridPos"]["h"])
    return _json(dashboard | {"panels": panels})


def _json(found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=2) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "architecture.md": architecture_page,
    "runbooks.md": runbooks_page,
    "cli.md": cli_page,
    "kubectl-commands.md": plugin_page,
    "reasons.md": reasons_page,
    "metrics.md": metrics_page,
    "support.md": support_page,
    "api-messages.md": runpy.run_path(str(FOLDER / "messages.py"))["page"],
    "configuration.md": runpy.run_path(str(FOLDER / "settings.py"))["page"],
    "config.schema.json": config_schema,
    VALUES: values_schema,
    "../deploy/helm/arpguard/files/alerts.yaml": rules_of_chart,
    "../deploy/helm/arpguard/files/arpguard.json": dashboard_of_chart,
}


def _with_figures(name: str) -> Callable[[], str]:
    """A page as it has to be, generated or not, with the figures in it."""
    generated = PAGES.get(name, lambda: (FOLDER / name).read_text(encoding="utf-8"))
    return lambda: _FIGURES["filled"](generated())


PAGES |= {name: _with_figures(name) for name in map(str, _FIGURES["marked_pages"]())}
PAGES["figures.json"] = lambda: _FIGURES["as_text"](_FIGURES["known"]())

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
