"""Collects what `arpguard doctor` judges: from this node, the segment, and the cluster if it can be reached."""

import os
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from arpguard.addresses import NOBODY, Address, MacAddress
from arpguard.config.files import parse_config, read_config
from arpguard.config.model import CONFIG_KEY, AgentConfig, SelectorKind
from arpguard.core.checkup.picture import Picture, questions
from arpguard.core.checkup.snapshot import AddressOnLink, AgentWord, ClusterView, Snapshot, Unread, Wire
from arpguard.core.cluster import ConfigMap
from arpguard.core.desired import primary_address
from arpguard.dataplane.guarding import read_guards
from arpguard.dataplane.inspecting import read_host_scoped, read_kernel_routes, read_machine, read_sysctls
from arpguard.dataplane.neighboursocket import NeighbourSocket, build_question
from arpguard.dataplane.netlink import read_surroundings
from arpguard.errors import ConfigError, DataPlaneError, Problem
from arpguard.model import Link
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType

ASKS = 2
LISTEN_S = 0.4


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at, from the command line. `configmap` is NAMESPACE/NAME, or empty; `ask`: send requests, too."""

    node: str
    config: Path | None = None
    configmap: str = ""
    kubeconfig: Path | None = None
    pin_dir: Path | None = None
    ask: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """The configuration, where it comes from, and what the API server said."""

    config: AgentConfig
    source: str
    cluster: ClusterView | Unread


async def read_setting(wanted: Wanted) -> Setting:
    """The configuration, from the ConfigMap if one is named and can be read, else from the file. Raises ConfigError."""
    config = read_config(wanted.config) if wanted.config else AgentConfig()
    setting = Setting(config, str(wanted.config or ""), Unread("no API server given: use --kubeconfig"))
    if wanted.kubeconfig or wanted.configmap or "KUBERNETES_SERVICE_HOST" in os.environ:
        setting = await _with_cluster(wanted, setting)
    if wanted.pin_dir:
        config = replace(setting.config, bpf=replace(setting.config.bpf, pin_dir=wanted.pin_dir))
        setting = replace(setting, config=config)
    return setting


async def _with_cluster(wanted: Wanted, setting: Setting) -> Setting:
    from arpguard.runtime.cluster.clusterview import is_in_pod, read_cluster  # noqa: PLC0415 - 10 MB, not for everybody

    if not (wanted.kubeconfig or wanted.configmap or is_in_pod()):
        return setting
    view, found = await read_cluster(wanted.kubeconfig, wanted.node, wanted.configmap, setting.config.follow)
    setting = replace(setting, cluster=view)
    unread = found is None and isinstance(view, Unread)
    return setting if unread or not wanted.configmap else _of_configmap(found, wanted.configmap, setting)


def _of_configmap(found: ConfigMap | None, name: str, setting: Setting) -> Setting:
    source = f"ConfigMap {name}"
    if found is None or found.text is None:
        create = f"does not exist: create it, with the configuration under the key {CONFIG_KEY}"
        wrong = create if found is None else f"has no key {CONFIG_KEY}: put the configuration under this key"
        raise ConfigError(source, [Problem("(object)", wrong)])
    return replace(setting, config=parse_config(found.text, source), source=source)


async def look(wanted: Wanted, setting: Setting, agent: AgentWord | Unread) -> Picture:
    """Collects everything, requests last. Raises DataPlaneError when not even the links can be read."""
    surroundings = await read_surroundings()
    pin_dir = setting.config.bpf.pin_dir
    guards, programs = await read_guards(surroundings.links, pin_dir)

    snapshot = Snapshot(
        node=agent.node if isinstance(agent, AgentWord) else wanted.node,
        surroundings=surroundings,
        config=setting.config,
        source=setting.source,
        start=_start(wanted),
        host_scoped=await read_host_scoped(),
        sysctls=read_sysctls(surroundings.links),
        kernel_routes=await read_kernel_routes(_reached(setting), surroundings),
        guards=guards,
        programs=programs,
        machine=read_machine(pin_dir, surroundings.links),
        cluster=setting.cluster,
        agent=agent,
    )

    picture = Picture(snapshot)
    if not wanted.ask:
        return picture
    return Picture(replace(snapshot, wire=ask_wire(picture)))


def _reached(setting: Setting) -> set[Address]:
    """Addresses that a link is chosen by, here or by OpenELB."""
    named = {each.address for each in setting.config.interfaces if each.kind is SelectorKind.CAN_REACH and each.address}
    eips = setting.cluster.eips if isinstance(setting.cluster, ClusterView) else ()
    return named if isinstance(eips, Unread) else named | {eip.address for eip in eips}


def _start(wanted: Wanted) -> str:
    """A shell line that starts an agent with this configuration; empty if that takes more than a file."""
    if wanted.config is None or wanted.configmap or wanted.kubeconfig:
        return ""
    words = ["arpguard", "agent", "--config", str(wanted.config.resolve()), "--node-name", wanted.node]
    return f"nohup {shlex.join(words)} >/dev/null 2>&1 &"


def ask_wire(picture: Picture) -> Wire | Unread:
    """Asks for all VIPs together, twice, and listens. Takes about a second, however many there are."""
    asked, left_out = questions(picture)
    by_link: dict[int, list[AddressOnLink]] = defaultdict(list)
    for question in asked:
        by_link[question.ifindex].append(question)

    answers: dict[AddressOnLink, tuple[MacAddress, ...]] = {}
    unheard: dict[int, str] = {}
    for ifindex, some in by_link.items():
        link = picture.surroundings.link(ifindex)
        if link is None or not link.up:
            continue
        try:
            answers.update(_ask_on(link, picture, some))
        except (DataPlaneError, OSError) as error:
            unheard[ifindex] = str(error)

    return Wire(answers, unheard, left_out)


def _ask_on(
    link: Link, picture: Picture, asked: Iterable[AddressOnLink]
) -> Mapping[AddressOnLink, tuple[MacAddress, ...]]:
    wanted = {each.address: each for each in asked}
    askers = {version: primary_address(link, version, picture.vips) or NOBODY[version] for version in NOBODY}
    heard: dict[AddressOnLink, dict[MacAddress, None]] = {question: {} for question in wanted.values()}

    with closing(NeighbourSocket(link.name)) as ear:
        for _ in range(ASKS):
            for address in wanted:
                ear.send(build_question(ear.mac, askers[address.version], address))

            deadline = time.monotonic() + LISTEN_S
            while (said := ear.hear(deadline - time.monotonic())) is not None:
                facts = said.packet
                is_answer = facts.op in (ArpOp.REPLY, NdType.ADVERTISEMENT) and facts.sha != ear.mac
                if is_answer and facts.spa in wanted:
                    heard[wanted[facts.spa]][facts.sha] = None

    return {question: tuple(macs) for question, macs in heard.items()}
