"""Random configurations, and what has to be true of each: a valid one, or problems that a person can read."""

import logging
from collections import Counter
from ipaddress import ip_address, ip_interface, ip_network

import yaml

from arpguard.addresses import MacAddress
from arpguard.cli.logs import TextLine
from arpguard.config.files import MAX_PROBLEMS, parse_config
from arpguard.config.model import AgentConfig
from arpguard.core.admission import avoided
from arpguard.core.choosing import choose_links
from arpguard.core.cluster import ConfigMap, Node, Service
from arpguard.core.desired import primary_addresses, wanted_entries
from arpguard.core.sourcing import Sourcing
from arpguard.errors import ConfigError
from arpguard.model import InterfaceAddress, Link, Route, Surroundings
from arpguard.runtime.settings import Settings
from fuzz.hostile import Mutator, Tree

MAX_PROBLEM = 600  # characters
MAX_LINE = 8000  # of all problems in one
_OWN = (ip_interface("192.0.2.1/24"), ip_interface("2001:db8::1/64"))
ETH0 = Link(
    2,
    "eth0",
    MacAddress.parse("02:00:00:00:00:01"),
    up=True,
    addresses=tuple(InterfaceAddress(own.ip, own.network) for own in _OWN),
)
SURROUNDINGS = Surroundings(
    links=(ETH0, Link(3, "eth1", MacAddress.parse("02:00:00:00:01:01"), up=False)),
    routes=(Route(ip_network("0.0.0.0/0"), 2, via=ip_address("192.0.2.254")),),
)
NODES = {"node-1": Node("node-1", ready=True, addresses=(_OWN[0].ip,))}
SERVICES = {("shop", "web"): Service("shop", "web", external_ips=(ip_address("192.0.2.50"),))}

VIPS = [
    {"address": "192.0.2.10", "owner": {"node": "node-1"}},
    {"address": "192.0.2.11", "owner": {"node": "node-2", "delegated": "true"}, "mode": "observe"},
    {"address": "192.0.2.12", "owner": "external"},
    {"address": "192.0.2.15", "owner": {"keepalived": "VI_1"}},
    {"address": "192.0.2.13", "owner": {"external": "02:00:00:00:00:aa"}},
    {"address": "2001:db8::14", "owner": "elect", "hold": "true"},
]
WHOLE = {
    "mode": "enforce",
    "datapath": "tc",
    "interfaces": ["auto", "eth0", "eth*", "can_reach:192.0.2.1", "cidr:192.0.2.0/24"],
    "vips": VIPS,
    "ranges": ["192.0.2.0/24", "2001:db8::/64", {"network": "198.51.100.0/24", "unknown": "suppress"}],
    "unknown": "pass",
    "services": {"enabled": "true", "selector": {"app": "web"}, "owner": "elect", "hold": "false", "owned_by": "true"},
    "lease": {
        "duration": "6s",
        "renew": "1500ms",
        "margin": "2s",
        "vouching": {"secret": "vouching.key", "ethertype": "0x88B6", "profile": "slow"},
    },
    "follow": {
        "metallb": {"namespace": "metallb"},
        "cilium": {"namespace": "cilium"},
        "openelb": {"namespace": "openelb"},
        "kube_vip": {"namespace": "kube-vip", "lease": "kube-vip-svcs"},
    },
    "bpf": {"pin_dir": "/sys/fs/bpf/other", "max_entries": "4096"},
    "grpc": {
        "listen": ["unix:///run/a.sock", "127.0.0.1:50051"],
        "tls": {"cert": "/c", "key": "/k", "client_ca": "/ca"},
    },
    "metrics": {"listen": "0.0.0.0:9469"},
    "decisions": {"capacity": "100"},
    "audit": {"every": "30s", "rate": "5/s"},
    "keepalived": {"fifo": "/run/states"},
}
_MARKS = ["\ufeff", "---\n", "--- # x\n", "%YAML 1.1\n---\n", "%TAG ! !x\n---\n", "...\n", "\t", "# \u202e\n"]
_PIECES = [
    *("&a ", "*a", "*", "<<: ", "? ", ": ", "- ", "| \n", ">+\n", "!!binary ", "!<x> ", "!!set ", "\t", "\n---\n"),
    *(
        "'",
        '"',
        "{",
        "}",
        "[",
        "]",
        ",",
        "#",
        "%",
        "@",
        "\\x00",
        '"\\0"',
        '"\\ud800"',
        "\0",
        "\x1b",
        "\u2028",
        "\ud800",
    ),
]


class ConfigFuzzer(Mutator):
    """YAML from a seed."""

    def text_of_config(self) -> str:
        roll = self.rng.random()
        if roll < 0.05:
            return self._noise()
        tree = self._some()
        if roll < 0.7:
            tree = self.spoil(tree)
        text = self._written(tree)
        return self._scratched(text) if 0.5 < roll < 0.85 else text

    def _some(self) -> Tree:
        """A valid configuration with some of its parts."""
        names = self.rng.sample(list(WHOLE), self.rng.randrange(1, len(WHOLE) + 1))
        return {name: WHOLE[name] for name in names}

    def _written(self, tree: Tree) -> str:
        """In one of the ways that the same can be written in."""
        style = self.rng.choice(({}, {"default_flow_style": True}, {"canonical": True}, {"allow_unicode": True}))
        text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, **style)
        return self.rng.choice(_MARKS) + text if self.rng.random() < 0.2 else text

    def _scratched(self, text: str) -> str:
        """With characters changed, cut out or put in, and lines twice."""
        for _ in range(self.rng.randint(1, 4)):
            at = self.rng.randrange(len(text) + 1)
            roll = self.rng.random()
            if roll < 0.5:
                text = text[:at] + self.rng.choice(_PIECES) + text[at:]
            elif roll < 0.75:
                text = text[:at] + text[at + self.rng.randrange(1, 9) :]
            else:
                lines = text.splitlines(keepends=True) or [""]
                text += self.rng.choice(lines)
        return text

    def _noise(self) -> str:
        return "".join(self.rng.choice(_PIECES) + self.text()[:20] for _ in range(self.rng.randrange(1, 60)))


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):
    """Aliases only where a case asks for them."""

    def ignore_aliases(self, _data) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.Node:
        """Half characters cannot be written: the case that has them puts them in by hand."""
        return self.represent_scalar("tag:yaml.org,2002:str", data.encode("utf-8", "replace").decode())


_Dumper.add_representer(str, _Dumper.represent_text)


class ConfigJudge:
    """Parses configurations, and follows the valid ones as far as the kernel. Counts how they end."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self._formatter = TextLine()

    def judge(self, text: str) -> None:
        try:
            config = parse_config(text, "ConfigMap arpguard/config")
        except ConfigError as error:
            config, problems = None, [str(problem) for problem in error.problems]
        else:
            problems = []
            follow_to_the_kernel(config)
        self.ends["valid" if config else "refused"] += 1
        assert bool(config) is not bool(problems)
        assert len(problems) <= MAX_PROBLEMS + 1
        for problem in problems:
            assert problem.isprintable(), problem
            assert len(problem) <= MAX_PROBLEM, problem
        self._as_configmap(text, config)

    def _as_configmap(self, text: str, config: AgentConfig | None) -> None:
        settings = Settings(None, "arpguard/config")
        wrong = settings.read_configmap(ConfigMap("arpguard", "config", text=text))
        assert bool(wrong) is (config is None)
        assert settings.awaited is (config is None)
        lines = [wrong, *settings.problems()]
        assert sum(map(len, lines)) <= MAX_LINE
        for line in lines:
            shown = self._formatter.format(logging.LogRecord("x", logging.WARNING, "", 0, "problem: %s", (line,), None))
            assert shown.isprintable(), shown


def follow_to_the_kernel(config: AgentConfig) -> None:
    """What an agent does with a valid configuration, up to the entries that it writes."""
    collected = Sourcing().collect(config, SERVICES, {}, NODES, avoided(SURROUNDINGS))
    choice = choose_links(config.interfaces, SURROUNDINGS, collected.vips)
    primaries = primary_addresses(choice.links, collected.vips)
    vips = collected.vips.values()
    entries = wanted_entries(vips, choice.links, SURROUNDINGS.routes, primaries, "node-1", {})
    assert len(entries) <= (len(config.vips) + len(SERVICES)) * len(SURROUNDINGS.links)
    assert len(collected.problems) <= 21
    for line in (*collected.problems, *choice.problems):
        assert line.isprintable(), line
        assert len(line) <= MAX_PROBLEM
    assert str(config.bpf.pin_dir).isprintable()
