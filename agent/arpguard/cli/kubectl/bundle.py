"""`kubectl arpguard bundle`: one file with all that a person needs to find out what is wrong, and no secrets.

Secrets are never read. Bookkeeping of objects is left out, and so are values of environment variables that the
manifests do not have: a value may be a password.
"""

import argparse
import asyncio
import io
import json
import tarfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import yaml

from arpguard import __version__
from arpguard.cli import exits, render
from arpguard.cli.exits import AskError
from arpguard.cli.kubectl.reach import ReachedAgents, Said, finished, reached
from arpguard.cli.words import counted
from arpguard.config.files import parse_config
from arpguard.config.model import CONFIG_KEY, AgentConfig
from arpguard.errors import ConfigError
from arpguard.kube.client import MAX_BODY_BYTES
from arpguard.kube.errors import ClusterError, JsonObject
from arpguard.kube.listing import Scope, read_pages
from arpguard.kube.pods import CONTAINER, AgentPod
from arpguard.kube.resources import CONFIG_MAPS, CORE_EVENTS, DAEMON_SETS, LEASES, PODS, Request, Resource

_NAME = "arpguard"
_LOG_LINES = "20000"
_COMMANDS = {
    "status": ("status",),
    "vips": ("vips",),
    "links": ("links",),
    "conflicts": ("conflicts",),
    "audit": ("audit",),
    "decisions": ("decisions", "--limit=1000"),
    "doctor": ("doctor", "--config=/etc/arpguard/config.yaml"),
    "maps": ("vips", "--pin-dir={pin_dir}"),
}
_FIRST = "status.json"  # where it cannot be run, nothing else can
_SCRAPE = "import urllib.request as u; print(u.urlopen('http://{listen}/metrics', timeout=10).read().decode())"
_PYTHON = "/opt/arpguard/bin/python"
_LISTED: dict[str, Resource] = {"leases": LEASES, "events": CORE_EVENTS, "pods": PODS}
_KNOWN_VARIABLES = ("ARPGUARD_LOG_LEVEL", "ARPGUARD_LOG_FORMAT", "DAEMONSET_NAME")
_LAST_APPLIED = "last-applied-configuration"  # the whole object again, values too
_LEFT_OUT = "(left out)"


@dataclass(slots=True)
class Contents:
    """The files of a bundle, and what could not be read."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Adds one file."""
        self.files[name] = text.encode()

    async def read(self, name: str, reading: Callable[[], Awaitable[str]]) -> None:
        """A file, or why there is none."""
        try:
            self.add(name, await reading())
        except (ClusterError, AskError) as error:
            self.lack(name, str(error))

    def lack(self, name: str, why: str) -> None:
        """Notes that a file is missing, and why; the reason may be a node's words, and terminals show it."""
        self.missing.append(render.clean(f"{name}: {why}"))


def run_bundle(options: argparse.Namespace) -> int:
    """Exit code 1 when something could not be read: the bundle says what."""
    name = f"arpguard-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    path = options.file or Path(f"{name}.tar.gz")
    try:
        path.touch(mode=0o600, exist_ok=False)  # before a minute's work; other users cannot read it
    except FileExistsError:
        raise AskError(exits.USAGE, f"{path} already exists: name another file") from None
    except OSError as error:
        raise AskError(exits.USAGE, f"cannot write {path}: {error.strerror}") from error

    async def work() -> Contents:
        async with reached(options) as agents:
            return await _collect(agents)

    try:
        contents = finished(work())
        _write(path, name, contents)
    except BaseException:
        path.unlink()
        raise
    print(f"{path}: {counted(len(contents.files), 'file')}")
    for line in contents.missing:
        print(f"missing: {line}")
    return exits.NOT_RIGHT if contents.missing else exits.OK


async def _collect(agents: ReachedAgents) -> Contents:
    contents = Contents()
    config = await _add_objects(agents, contents)
    await asyncio.gather(*(_add_node(agents, pod, config, contents) for pod in agents.pods))

    about = {"made": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "by": f"kubectl arpguard {__version__}"}
    contents.add("bundle.json", json.dumps({**about, "nodes": [pod.node for pod in agents.pods]}, indent=2))
    contents.missing.sort()
    contents.add("missing.txt", "".join(f"{line}\n" for line in contents.missing))
    return contents


async def _add_objects(agents: ReachedAgents, contents: Contents) -> AgentConfig:
    """Objects of the API server, and the configuration in one of them: the default where it cannot be read."""
    single = {"configmap": CONFIG_MAPS, "daemonset": DAEMON_SETS}
    for name, resource in single.items():
        await contents.read(f"{name}.yaml", lambda resource=resource: _object(agents, resource))  # type: ignore[misc]
    for name, resource in _LISTED.items():
        await contents.read(f"{name}.yaml", lambda resource=resource: _list(agents, resource))  # type: ignore[misc]

    found = yaml.safe_load(contents.files.get("configmap.yaml", b"{}"))
    try:
        return parse_config(str(found["data"][CONFIG_KEY]), "ConfigMap")
    except (KeyError, ConfigError):  # the nodes' status says what is wrong with it
        return AgentConfig()


async def _object(agents: ReachedAgents, resource: Resource) -> str:
    answer = await agents.client.call(Request("get", resource, agents.namespace, _NAME))
    return _yaml(cleaned(answer.body))


async def _list(agents: ReachedAgents, resource: Resource) -> str:
    items = []
    async for page in read_pages(agents.client, resource, Scope(agents.namespace)):
        items += [cleaned(item) for item in page.items if isinstance(item, dict)]
    return _yaml({"items": items})


def cleaned(found: JsonObject) -> JsonObject:
    """An object without bookkeeping, and without values that may be secrets."""
    metadata = {key: value for key, value in found.get("metadata", {}).items() if key != "managedFields"}
    notes = metadata.get("annotations") or {}
    metadata["annotations"] = {key: value for key, value in notes.items() if not key.endswith(_LAST_APPLIED)}
    return {**{key: _without_values(value) for key, value in found.items()}, "metadata": metadata}


def _without_values(value: object, key: str = "") -> object:
    """The same, but for the values of environment variables that are not the manifests' own."""
    if isinstance(value, dict):
        return {name: _without_values(each, name) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    if key != "env":
        return [_without_values(each) for each in value]
    return [
        {**each, "value": _LEFT_OUT} if "value" in each and each.get("name") not in _KNOWN_VARIABLES else each
        for each in value
    ]


def _yaml(found: object) -> str:
    return str(yaml.safe_dump(found, sort_keys=False))


async def _add_node(agents: ReachedAgents, pod: AgentPod, config: AgentConfig, contents: Contents) -> None:
    """Adds what one node knows; the log even where no command can be run, and the maps even while the agent is down."""
    folder = f"nodes/{pod.node}"
    await contents.read(f"{folder}/log.txt", lambda: _log(agents, pod))

    commands = _commands(config)
    for name, words in commands.items():
        said = await _run(agents, pod, words)
        if said.text:
            contents.add(f"{folder}/{name}", said.text)
        else:
            contents.lack(f"{folder}/{name}", said.error)

        if name == _FIRST and not said.has_run:
            others = ", ".join(each for each in commands if each != _FIRST)
            contents.lack(folder, f"the node was not asked for {others}, because no command can run there")
            return


def _commands(config: AgentConfig) -> dict[str, Sequence[str]]:
    """The commands to run on a node, by the file for their output."""
    pin_dir = config.bpf.pin_dir
    made: dict[str, Sequence[str]] = {
        f"{name}.json": ("arpguard", command, "--output=json", *(word.format(pin_dir=pin_dir) for word in more))
        for name, (command, *more) in _COMMANDS.items()
    }
    if config.metrics.listen:
        host, _, port = config.metrics.listen.rpartition(":")
        listen = f"127.0.0.1:{port}" if host == "0.0.0.0" else config.metrics.listen  # noqa: S104 - asked, not bound
        made["metrics.txt"] = (_PYTHON, "-c", _SCRAPE.format(listen=listen))
    return made


async def _run(agents: ReachedAgents, pod: AgentPod, words: Sequence[str]) -> Said:
    """Runs a command on one node; without the right to do so, the bundle has no output of it."""
    try:
        return await agents.run_in(pod, words)
    except ClusterError as error:
        return Said(pod, error=str(error), exit_code=exits.UNREACHABLE, has_run=False)


async def _log(agents: ReachedAgents, pod: AgentPod) -> str:
    """The end of what the agent logged."""
    query = {"container": CONTAINER, "tailLines": _LOG_LINES, "limitBytes": str(MAX_BODY_BYTES)}
    request = Request("get", PODS, agents.namespace, pod.name, query, subresource="log")
    text = bytearray()
    async with agents.client.stream(request, agents.timeout_s, agents.timeout_s) as pieces:
        async for piece in pieces:
            text += piece
    return text.decode(errors="replace")


def _write(path: Path, name: str, contents: Contents) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for file, content in sorted(contents.files.items()):
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
