"""The configuration in force: from a file, or a ConfigMap if one is named. A wrong one never replaces a good one."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from arpguard.clock import boot_ns
from arpguard.config.files import parse_config, read_config
from arpguard.config.model import CONFIG_KEY, AgentConfig, VouchingConfig
from arpguard.core.cautions import without_effect
from arpguard.core.cluster import ConfigMap
from arpguard.errors import ConfigError
from arpguard.node import ConfigInForce
from arpguard.runtime.filewatch import FileWatch
from arpguard.runtime.waking import RETRY_S, Alarm
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

# Every start waits for the ConfigMap, usually for a tenth of a second: that alone is not reported as a problem.
PATIENCE_NS = 3 * NS_PER_S

# What an agent cannot change while it runs. A ConfigMap, which all nodes share, may leave these to each node's file.
_OF_THE_START = ("bpf", "grpc", "metrics", "decisions")


DEFAULT_NAMESPACE = "arpguard"


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """How to reach the cluster. `configmap`: NAMESPACE/NAME, or empty. Without a kubeconfig: by the Pod's account.

    `trace`: the file for the events of the claim protocol.
    """

    kubeconfig: Path | None
    configmap: str
    trace: Path | None = None

    @property
    def place(self) -> tuple[str, str]:
        """The namespace, and the ConfigMap's name."""
        namespace, _, name = self.configmap.rpartition("/")
        return namespace or os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE, name


class Settings:
    """Reads configurations and says which one is in force.

    `awaited`: a ConfigMap is named but has not been read yet; until then the file's configuration is in force.
    `vouching`: how this agent vouches, None: not at all. It is as the file said at the start and, where a ConfigMap is
    named, as that one said when it was first read; from then on until the agent ends. Nodes that took over another
    Secret or EtherType one after the other, while terms run, would not understand each other.
    `named_by_host`: this node has the host's name, because it was given none. `trace`: as in KubernetesOptions.
    Raises ConfigError when the file is wrong: at start there is no good one to keep.
    """

    def __init__(self, file: Path | None, configmap: str = "", clock: Callable[[], int] = boot_ns) -> None:
        self.file = file
        self.watch = FileWatch(file) if file else None  # before the first look into it: no change goes unnoticed
        self._clock = clock
        self.started_ns = clock()
        self.awaited = bool(configmap)
        self._configmap = f"ConfigMap {configmap}" if configmap else ""
        config = read_config(file) if file else AgentConfig()
        self.in_force = ConfigInForce(str(file) if file else self._configmap, config)
        self.started_with = config
        self._caution()
        self.vouching = _known(config.lease.vouching) if configmap else config.lease.vouching
        self.named_by_host = False
        self.trace: Path | None = None

    @property
    def config(self) -> AgentConfig:
        """The configuration in force."""
        return self.in_force.config

    def read_file(self) -> bool:
        """The file has changed. False when it cannot be read now, so that the caller has to try again."""
        if self.file is None or (self._configmap and not self.awaited):
            return True
        try:
            self._take(read_config(self.file), str(self.file))
        except ConfigError as error:
            self._refuse(error)
            return not isinstance(error.__cause__, OSError)
        return True

    def read_configmap(self, found: ConfigMap | None) -> str:
        """The ConfigMap as it is now (None: there is none); what is wrong with it, empty when it is in force."""
        if found is None or found.text is None:
            missing = "does not exist" if found is None else f"has no key {CONFIG_KEY}"
            self.in_force.problem = f"configuration: {self._configmap} {missing}; keeping the previous configuration"
            return self.in_force.problem
        try:
            config = parse_config(found.text, self._configmap)
        except ConfigError as error:
            self._refuse(error)
            return self.in_force.problem
        if self.awaited or config.lease.vouching == self.vouching:  # the same, but perhaps asked for only now
            self.awaited, self.vouching = False, config.lease.vouching
        self._take(self._completed(config), self._configmap)
        return ""

    def problems(self) -> list[str]:
        """What is wrong with the configuration."""
        known = [self.in_force.problem] if self.in_force.problem else []
        known += _awaiting_restart(self.started_with, self.config)
        if not self.awaited:
            known += _stays(
                "lease.vouching", _shown_vouching(self.vouching), _shown_vouching(self.config.lease.vouching)
            )
        if self.awaited and self._clock() >= self.started_ns + PATIENCE_NS:
            known.append(f"configuration: {self._configmap} has not been read yet")
        if self.file is not None and not self.file.exists():
            known.append(f"configuration: {self.file} is gone; keeping the previous configuration")
        return known

    def _completed(self, config: AgentConfig) -> AgentConfig:
        unset = AgentConfig()
        given = {name: getattr(config, name) for name in _OF_THE_START}
        kept = {n: getattr(self.started_with, n) for n, value in given.items() if value == getattr(unset, n)}
        return replace(config, **kept)

    def _take(self, config: AgentConfig, source: str) -> None:
        self.in_force.problem = ""
        if config == self.config and source == self.in_force.source:
            return
        self.in_force.config, self.in_force.source = config, source
        self.in_force.generation += 1
        self.in_force.loaded_ns = boot_ns()
        self._caution()
        log.info("configuration applied: mode=%s listed_vips=%d", config.mode.name.lower(), len(config.vips))

    def _caution(self) -> None:
        for caution in without_effect(self.config):
            log.warning("configuration: %s", caution)

    def _refuse(self, error: ConfigError) -> None:
        self.in_force.problem = f"configuration: change rejected; keeping the previous configuration: {error}"


class FileFollower:
    """Makes the settings read their file again after every change, and then wakes `passes`."""

    def __init__(self, settings: Settings, passes: Alarm) -> None:
        self._settings = settings
        self._passes = passes

    async def run(self) -> None:
        """Runs until it is cancelled; without a file it ends at once."""
        if self._settings.watch is None:
            return
        async for _ in self._settings.watch.changes():
            while not self._settings.read_file():
                self._passes.wake()
                await asyncio.sleep(RETRY_S)
            self._passes.wake()


def _awaiting_restart(running: AgentConfig, wanted: AgentConfig) -> list[str]:
    """Settings that differ from those the agent was started with, and that it cannot change while it runs."""
    pairs = (
        ("bpf.pin_dir", running.bpf.pin_dir, wanted.bpf.pin_dir),
        ("bpf.max_entries", running.bpf.max_entries, wanted.bpf.max_entries),
        ("grpc.listen", ", ".join(running.grpc.listen) or "[]", ", ".join(wanted.grpc.listen) or "[]"),
        ("grpc.tls", _shown_tls(running), _shown_tls(wanted)),
        ("metrics.listen", running.metrics.listen or "off", wanted.metrics.listen or "off"),
        ("decisions.capacity", running.decisions.capacity, wanted.decisions.capacity),
    )
    return [problem for pair in pairs for problem in _stays(*pair)]


def _stays(name: str, old: str, new: str) -> list[str]:
    if old == new:
        return []
    return [f"configuration: {name} stays {old} until the agent is restarted (configured: {new})"]


def _known(vouching: VouchingConfig | None) -> VouchingConfig | None:
    """Until the ConfigMap is read, what nobody has asked for is not known."""
    return vouching if vouching is not None and vouching.asked else None


def _shown_vouching(vouching: VouchingConfig | None) -> str:
    if vouching is None:
        return "off"
    if vouching == VouchingConfig():
        return "auto"
    profile = f", profile: {vouching.profile.value}" if vouching.profile else ""
    return f"{{secret: {vouching.secret}, ethertype: 0x{vouching.ethertype:04X}{profile}}}"


def _shown_tls(config: AgentConfig) -> str:
    tls = config.grpc.tls
    return f"{tls.cert}, {tls.key}, {tls.client_ca}" if tls else "unset"
