"""A configuration is valid as a whole, or every problem in it is named with its path, value and what is allowed."""

import json
import os
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import MacAddress
from arpguard.config.files import MAX_PROBLEMS, parse_config, read_config
from arpguard.config.model import (
    AgentConfig,
    AuditConfig,
    FollowConfig,
    GrpcConfig,
    InterfaceSelector,
    SelectorKind,
    ServicesConfig,
    TlsConfig,
    VouchingConfig,
    VouchingProfile,
    is_local,
)
from arpguard.errors import ConfigError
from arpguard.model import Datapath, Owner, OwnerKind, Vip
from arpguard.units import NS_PER_S
from arpguard.verdict import Mode

WHOLE = """
mode: enforce
datapath: tc
interfaces: [auto, eth0, "eth*", "can_reach:192.0.2.1", "cidr:192.0.2.0/24"]
vips:
  - address: 192.0.2.10
    owner: {node: worker-1}
    mode: observe
  - address: 192.0.2.11
    owner: {node: worker-2, delegated: true}
  - {address: 192.0.2.12, owner: external}
  - {address: 192.0.2.13, owner: {external: "02:00:00:00:00:AA"}}
  - {address: 192.0.2.14, owner: elect}
  - {address: 192.0.2.15, owner: elect, hold: true}
ranges: [192.0.2.0/24]
services: {enabled: true, selector: {app: web}, owner: follow, hold: true, owned_by: true}
follow: {metallb: {namespace: lb}, cilium: {}, kube_vip: {namespace: kv, lease: services-lock}}
lease:
  {duration: 6s, renew: 1500ms, margin: 2s, vouching: {secret: vouching.key, ethertype: 0x88B6, profile: fast}}
bpf: {pin_dir: /sys/fs/bpf/other, max_entries: 4096}
grpc: {listen: ["unix:///run/arpguard/agent.sock", "127.0.0.1:50051"]}
metrics: {listen: "0.0.0.0:9469"}
"""


def _problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return [str(replace(problem, line=None)) for problem in caught.value.problems]


def _is_read_or_explained(text: str) -> bool:
    try:
        parse_config(text)
    except ConfigError as error:
        return bool(error.problems)
    return True


def test_whole_configuration_is_read():
    config = parse_config(WHOLE)

    assert config.mode is Mode.ENFORCE
    assert config.datapath is Datapath.TC
    assert config.follow == FollowConfig(metallb="lb", kube_vip="kv", kube_vip_lease="services-lock")
    assert config.interfaces == (
        InterfaceSelector(SelectorKind.AUTO),
        InterfaceSelector(SelectorKind.NAME, pattern="eth0"),
        InterfaceSelector(SelectorKind.GLOB, pattern="eth*"),
        InterfaceSelector(SelectorKind.CAN_REACH, address=ip_address("192.0.2.1")),
        InterfaceSelector(SelectorKind.CIDR, network=ip_network("192.0.2.0/24")),
    )
    assert config.vips == (
        Vip(ip_address("192.0.2.10"), Owner(OwnerKind.NODE, node="worker-1"), Mode.OBSERVE),
        Vip(ip_address("192.0.2.11"), Owner(OwnerKind.NODE, node="worker-2", delegated=True)),
        Vip(ip_address("192.0.2.12"), Owner(OwnerKind.EXTERNAL)),
        Vip(ip_address("192.0.2.13"), Owner(OwnerKind.EXTERNAL, mac=MacAddress.parse("02:00:00:00:00:aa"))),
        Vip(ip_address("192.0.2.14"), Owner(OwnerKind.ELECT)),
        Vip(ip_address("192.0.2.15"), Owner(OwnerKind.ELECT), unfenced=True),
    )
    assert (config.lease.duration_ns, config.lease.renew_ns, config.lease.margin_ns) == (
        6 * 10**9,
        15 * 10**8,
        2 * 10**9,
    )
    assert config.lease.vouching == VouchingConfig("vouching.key", 0x88B6, VouchingProfile.FAST)
    assert (config.bpf.pin_dir, config.bpf.max_entries) == (Path("/sys/fs/bpf/other"), 4096)
    assert config.services == ServicesConfig(
        enabled=True, selector=(("app", "web"),), owner=Owner(OwnerKind.FOLLOW), hold=True, owned_by=True
    )


def test_a_vip_may_follow_an_instance_of_keepalived():
    config = parse_config("{keepalived: {fifo: /run/f}, vips: [{address: 192.0.2.1, owner: {keepalived: VI_1}}]}")
    assert config.vips[0].owner == Owner(OwnerKind.KEEPALIVED, instance="VI_1")
    assert str(config.vips[0].owner) == "keepalived VI_1"
    assert config.keepalived.fifo == Path("/run/f")


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n"], ids=["empty", "blank", "comment"])
def test_empty_file_is_no_configuration(text):
    """A disk that is full, or a writer that was interrupted, must not take the guard away."""
    assert _problems(text) == ["empty; to guard nothing, write `vips: []`"]


def test_everything_has_a_default_and_touches_nothing():
    config = parse_config("{}")

    assert config == AgentConfig()
    assert config.mode is Mode.OBSERVE


def test_all_problems_are_named_at_once():
    text = """
mode: maybe
datapth: tc
vips:
  - {address: 224.0.0.1, owner: external}
  - {owner: {node: UPPER}}
"""

    assert [problem.split(": ")[0] for problem in _problems(text)] == [
        "mode",
        "datapth",
        "vips[0].address",
        "vips[1].owner.node",
        "vips[1].address",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mode: on", "mode: must be observe or enforce, not on"),
        ("mode: [observe]", "mode: must be observe or enforce, not [observe]"),
        ("datapath: xdpgeneric", "datapath: must be auto, tc or xdp, not xdpgeneric"),
        ("nodes: 3", "nodes: unknown key; known: mode, datapath, interfaces, vips, ranges, unknown, services, foll"),
        ("- mode", "must be a mapping (keys: mode, datapath, interfaces, vips, ranges, unknown, services, fo"),
        ("interfaces: eth0", "interfaces: must be a list, not eth0; did you mean [eth0]?"),
        ("interfaces: []", "interfaces: must not be empty; leave the key out for auto"),
        ("interfaces: [lo]", "interfaces[0]: must be an interface that faces the network, not lo"),
        ("interfaces: [eth0:1]", "interfaces[0]: must be auto, an interface name or glob (eth0, eth*), can_reach:A"),
        ("interfaces: ['can_reach:gateway']", "interfaces[0]: must be an IP address such as 192.0.2.10, without a"),
        ("interfaces: ['can_reach:2001:db8::1%eth0']", "interfaces[0]: must be an IP address such as 192.0.2.10, w"),
        ("ranges: ['2001:db8::%eth0/64']", "ranges[0]: must be a network without host bits such as 192.0.2.0/24, n"),
        ("interfaces: ['cidr:192.0.2.1/24']", "interfaces[0]: must be a network without host bits such as 192.0.2."),
        ("vips: {}", "vips: must be a list, not {}"),
        ("vips: [192.0.2.1]", "vips[0]: must be a mapping (keys: address, owner, mode, hold), not 192.0.2.1"),
        ("vips: [{address: 192.0.2.1}]", "vips[0].owner: missing"),
        ("vips: [{address: 192.0.2.1, owner: {keepalived: 'VI 1'}}]", "vips[0].owner.keepalived: must be the name of"),
        ("vips: [{address: 192.0.2.1, owner: {keepalived: ''}}]", "vips[0].owner.keepalived: must be the name of a "),
        ("vips: [{address: 192.0.2.1, owner: {keepalived: [VI_1]}}]", "owner.keepalived: must be the name of a vrrp_"),
        ("vips: [{address: 192.0.2.1, owner: {kepalived: X}}]", "not {kepalived: X}; did you mean 'keepalived'?"),
        ("vips: [{address: 192.0.2.1, owner: {Node: [a, '']}}]", "not {Node: [a, '']}; did you mean 'node'?"),
        ("vips: [{address: 192.0.2.1, owner: keepalived}]", "did you mean {keepalived: INSTANCE}?"),
        (
            "vips: [{address: 192.0.2.1, owner: {keepalived: VI_1, node: a}}]",
            "must be a mapping with only one of the keys keepalived, node and external, not ",
        ),
        (
            "vips: [{address: 192.0.2.1, owner: {node: a, external: '02:00:00:00:00:aa'}}]",
            "only one of the keys keepalived, node ",
        ),
        ("keepalived: {fifo: states}", "keepalived.fifo: must be the absolute path of a FIFO such as /run/arpguard/k"),
        ("vips: [{address: 192.0.2.300, owner: external}]", "vips[0].address: must be an IP address such as 192.0."),
        ("vips: [{address: 127.0.0.1, owner: external}]", "127.0.0.1 is a loopback address"),
        ("vips: [{address: 0.0.0.0, owner: external}]", "0.0.0.0 is the unspecified address"),
        ("vips: [{address: 255.255.255.255, owner: external}]", "255.255.255.255 is the broadcast address"),
        ("vips: [{address: 169.254.1.1, owner: external}]", "169.254.1.1 is a link-local address"),
        ("vips: [{address: 'fe80::1', owner: external}]", "fe80::1 is a link-local address"),
        ("vips: [{address: '2001:db8::1%eth0', owner: external}]", "an IP address such as 192.0.2.10, without a zone"),
        ("vips: [{address: 'ff05::1', owner: external}]", "ff05::1 is a multicast address"),
        ("vips: [{address: '::1', owner: external}]", "::1 is a loopback address"),
        ("vips: [{address: '::ffff:192.0.2.1', owner: external}]", "is an IPv4 address in IPv6 form"),
        (
            "vips: [{address: '2001:db8::1', owner: external}, {address: '2001:db8:0::1', owner: elect}]",
            "vips[1].address: 2001:db8::1 is in the list twice",
        ),
        ("vips: [{address: 192.0.2.1, owner: elect, hold: 'yes'}]", "vips[0].hold: must be true or false, not yes"),
        ("services: {hold: maybe}", "services.hold: must be true or false, not maybe"),
        ("follow: {cilium: {namespace: a.b}}", "follow.cilium.namespace: must be the name of a namespace (lower ca"),
        ("follow: {kube_vip: {lease: a/b}}", "follow.kube_vip.lease: must be the name of a Lease (lower case lette"),
        ("follow: {cilium: {lease: a}}", "follow.cilium.lease: unknown key; known: namespace"),
        ("follow: {purelb: {}}", "follow.purelb: unknown key; known: metallb, cilium, openelb, kube_vip"),
        ("vips: [{address: 192.0.2.1, owner: me}]", "vips[0].owner: must be {node: NAME}, {node: NAME, delegated:"),
        ("vips: [{address: 192.0.2.1, owner: {node: a, delegated: maybe}}]", "vips[0].owner.delegated: must be tru"),
        ("vips: [{address: 192.0.2.1, owner: {external: nobody}}]", "vips[0].owner.external: must be the MAC addre"),
        ("vips: [{address: 192.0.2.1, owner: {external: '01:00:5e:00:00:01'}}]", "the MAC address of one host"),
        (
            "vips: [{address: 192.0.2.1, owner: external}, {address: 192.0.2.1, owner: elect}]",
            "vips[1].address: 192.0.2.1 is in the list twice",
        ),
        ("lease: {duration: 3}", "lease.duration: must be a duration such as 3s or 500ms, not 3"),
        ("lease: {margin: 3s}", "lease.margin: must be more than 0 and less than the duration, not 3s"),
        ("lease: {renew: 2s}", "lease.renew: must be more than 0 and less than the duration minus the margin, not "),
        ("lease: {vouching: on}", "lease.vouching: must be off, auto, or a mapping (keys: secret, ethertype, profile)"),
        ("lease: {vouching: [auto]}", "lease.vouching: must be off, auto, or a mapping (keys: secret, ethertype, pro"),
        ("lease: {vouching: {key: x}}", "lease.vouching.key: unknown key; known: secret, ethertype, profile"),
        ("lease: {vouching: {secret: a/b}}", "lease.vouching.secret: must be the name of a Secret (lower case lett"),
        ("lease: {vouching: {profile: auto}}", "lease.vouching.profile: must be fast, default or slow, not auto"),
        ("bpf: {max_entries: 0}", "bpf.max_entries: must be a number from 1 to 1048576, not 0; each entry costs a"),
        (
            "bpf: {pin_dir: arpguard}",
            "bpf.pin_dir: must be the absolute path of a folder in a BPF file system, such as /sys",
        ),
        ("bpf: {pin_dir: /sys/fs/bpf/../etc}", "bpf.pin_dir: must be the absolute path of a folder in a BPF file s"),
        ("metrics: {listen: everywhere}", "metrics.listen: must be HOST:PORT such as 0.0.0.0:9469, or off, not eve"),
        ("metrics: {listen: 'unix:///run/m.sock'}", "metrics.listen: must be HOST:PORT such as 0.0.0.0:9469, or of"),
        ("metrics: {listen: '0.0.0.0:0'}", "metrics.listen: must be HOST:PORT such as 0.0.0.0:9469, or off, not 0."),
        ("metrics: {listen: '::1:9469'}", "metrics.listen: must be HOST:PORT such as 0.0.0.0:9469, or off, not ::1"),
        ("grpc: {listen: [agent.sock]}", "grpc.listen[0]: must be unix:///PATH or HOST:PORT such as 127.0.0.1:5005"),
        ("grpc: {listen: ['localhost:1']}", "HOST must be an IP address"),
        ("grpc: {listen: ['127.0.0.1:65536']}", "grpc.listen[0]: must be unix:///PATH or HOST:PORT such as 127.0.0"),
        ("grpc: {listen: ['unix://run/x']}", "grpc.listen[0]: must be unix:///PATH with a path of at most 107 byte"),
        (f"grpc: {{listen: ['unix:///{'x' * 107}']}}", "a path of at most 107 bytes"),
        ("grpc: {listen: ['0.0.0.0:50051']}", "grpc.listen[0]: must be a loopback address, or unix:///PATH, not 0."),
        ("grpc: {listen: ['[::]:50051']}", "any other address needs grpc.tls with cert, key and client_ca"),
        ("grpc: {listen: ['[::1]:5', '[::1]:5']}", "grpc.listen[1]: [::1]:5 is in the list twice"),
        ("grpc: {tls: {cert: /c, key: /k}}", "grpc.tls.client_ca: missing; grpc.tls needs the PEM files cert, key"),
        ("grpc: {tls: {cert: c, key: /k, client_ca: /ca}}", "grpc.tls.cert: must be the absolute path of a PEM fil"),
        ("audit: {every: 14s}", "audit.every: must be a duration from 15s to 60m, such as 60s, or off, not 14s"),
        ("audit: {every: 61m}", "audit.every: must be a duration from 15s to 60m, such as 60s, or off, not 61m"),
        ("audit: {every: 5}", "audit.every: must be a duration from 15s to 60m, such as 60s, or off, not 5"),
        (
            "audit: {rate: 0/s}",
            "audit.rate: must be a number of questions per second, from 1/s to 999/s, such as 20/s, not 0/s",
        ),
        (
            "audit: {rate: 1000/s}",
            "audit.rate: must be a number of questions per second, from 1/s to 999/s, such as 20/s",
        ),
        ("audit: {rate: 20}", "not 20; did you mean 20/s?"),
        (
            "audit: {rate: 20}",
            "audit.rate: must be a number of questions per second, from 1/s to 999/s, such as 20/s, not 20",
        ),
        ("decisions: {capacity: 0}", "decisions.capacity: must be a number from 1 to 100000, not 0; each decision c"),
        ("ranges: [192.0.2.0]\nranges: []", "line 2, column 1: 'ranges' appears twice"),
        ("a: &x [1]\nb: *x", "line 2, column 4: aliases are not supported"),
        ("vips: [", "line 2, column 1"),
        ("? [a]\n: b", "line 1, column 3: a key must be text"),
        ("[" * 900, "line 1, column 17: nested too deeply"),
        ("- " * 900, "line 1, column 33: nested too deeply"),
        ("[" * 200_000, "nested too deeply"),
        ("lease: {duration: " + "9" * 400 + "s}", "lease.duration: must be a duration such as 3s or 500ms, not 999"),
        ("bpf: {max_entries: " + "9" * 5000 + "}", "bpf.max_entries: must be a number from 1 to 1048576, not 99999"),
    ],
)
def test_problem_names_place_value_and_remedy(text, expected):
    assert any(expected in problem for problem in _problems(text)), _problems(text)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("vips: [me, {address: 192.0.2.1, owner: elect}, {address: 192.0.2.1, owner: elect}]", "vips[2].address: "),
        ("grpc: {listen: [me, '127.0.0.1:5', '127.0.0.1:5']}", "grpc.listen[2]: "),
        ("grpc: {listen: [me, '10.0.0.1:5']}", "grpc.listen[1]: "),
    ],
)
def test_item_behind_a_wrong_one_is_named_by_its_own_number(text, last):
    assert _problems(text)[-1].startswith(last)


def test_key_is_shown_as_it_is_written():
    assert _problems(".mode: enforce")[0].startswith(".mode: unknown key")


def test_mac_that_yaml_takes_for_a_number_is_a_mac():
    config = parse_config("vips: [{address: 192.0.2.1, owner: {external: 12:34:56:10:20:30}}]")

    assert str(config.vips[0].owner.mac) == "12:34:56:10:20:30"


def test_node_that_yaml_takes_for_a_truth_value_is_a_node():
    config = parse_config("vips: [{address: 192.0.2.1, owner: {node: no}}]")

    assert config.vips[0].owner.node == "no"


def a_fifo(path: Path) -> Path:
    os.mkfifo(path / "fifo")
    return path / "fifo"


@pytest.mark.parametrize(
    "make",
    [lambda path: path / "missing", lambda path: path, a_fifo, lambda _path: Path("/dev/zero")],
    ids=["missing", "folder", "fifo", "endless"],
)
def test_file_that_cannot_be_read_is_a_problem(make, tmp_path):
    with pytest.raises(ConfigError, match="name a readable YAML file"):
        read_config(make(tmp_path))


def test_bytes_that_are_no_text_are_a_problem(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"mode: \xff\xfe")

    with pytest.raises(ConfigError, match="not UTF-8 text"):
        read_config(path)


def test_control_characters_in_a_value_do_not_reach_the_terminal():
    assert all("\x1b" not in problem for problem in _problems('mode: "\\e[2J"'))


@given(st.recursive(st.text(max_size=8), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner)))
def test_any_yaml_is_a_configuration_or_a_list_of_problems(value):
    import yaml  # noqa: PLC0415 - only this test writes YAML

    assert _is_read_or_explained(yaml.safe_dump(value))


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_list_of_problems(text):
    assert _is_read_or_explained(text)


def test_public_address_is_taken_with_mutual_tls():
    config = parse_config("grpc: {listen: ['10.0.0.1:50051'], tls: {cert: /c, key: /k, client_ca: /ca}}")

    assert config.grpc == GrpcConfig(("10.0.0.1:50051",), TlsConfig(Path("/c"), Path("/k"), Path("/ca")))


@pytest.mark.parametrize(
    ("listen", "local"),
    [("unix:///run/a.sock", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("0.0.0.0:1", False), ("[::]:1", False)],
)
def test_local_addresses_are_known(listen, local):
    assert is_local(listen) is local


def test_metrics_can_be_off():
    assert parse_config("metrics: {listen: off}").metrics.listen == ""


# ---- vouching ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", VouchingConfig()),
        ("lease: {}", VouchingConfig()),
        ("lease: {vouching: off}", None),
        ("lease: {vouching: false}", None),  # as helm writes it
        ("lease: {vouching: auto}", VouchingConfig()),
        ("lease: {vouching: {}}", VouchingConfig()),
        ("lease: {vouching: {ethertype: 0x88b6}}", VouchingConfig(ethertype=0x88B6)),
        ("lease: {vouching: {ethertype: 34998}}", VouchingConfig(ethertype=0x88B6)),  # as helm writes it
        ("lease: {vouching: {ethertype: 0x0600}}", VouchingConfig(ethertype=0x0600)),
        ("lease: {vouching: {profile: slow}}", VouchingConfig(profile=VouchingProfile.SLOW)),
        ("lease: {vouching: {secret: mine}}", VouchingConfig("mine")),
    ],
)
def test_vouching_is_auto_unless_something_else_is_asked_for(text, expected):
    found = parse_config(text).lease.vouching
    assert found == expected
    assert found is None or found.asked == ("vouching" in text)


def test_ethertype_is_the_one_of_the_frames():
    assert VouchingConfig().ethertype == 0x88B5


@pytest.mark.parametrize(
    ("ethertype", "used"),
    [
        *(("0x0800", "IPv4"), ("0x0806", "ARP"), ("0x86DD", "IPv6"), ("34525", "IPv6"), ("0x8100", "VLAN tags")),
        *(("0x88A8", "VLAN tags"), ("0x88CC", "LLDP"), ("0x8864", "PPPoE"), ("0x8847", "MPLS"), ("0x888e", "EAPOL")),
        *(
            (number, "")
            for number in ("0", "0x05FF", "1535", "0xFFFF", "65536", "0x10000", "-1", "88B5", "0x_88B", "\u0663512")
        ),
    ],
)
def test_ethertype_of_others_is_refused(ethertype, used):
    (problem,) = _problems(f"lease: {{vouching: {{ethertype: '{ethertype}'}}}}")
    assert problem.startswith("lease.vouching.ethertype: must be an EtherType from 0x0600 to 0xFFFE that nothing")
    assert problem.endswith(f", not {ethertype}" + (f"; this one is for {used}" if used else ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mode: '\ud800'", "not Unicode text"),
        ('bpf: {pin_dir: "/sys/fs/bpf/\\0x"}', "bpf.pin_dir: must be the absolute path of a folder in a BPF file s"),
        ('bpf: {pin_dir: "/sys/fs/bpf/\\e[2J"}', "bpf.pin_dir: must be the absolute path of a folder in a BPF file"),
        (f"bpf: {{pin_dir: /sys/fs/bpf/{'x' * 1024}}}", "the absolute path of a folder"),
        ('interfaces: ["\\e[2J"]', "interfaces[0]: must be auto, an interface name or glob (eth0, eth*), can_reach"),
        ("lease: {duration: \u0663s}", "a duration such as 3s or 500ms"),
        ("metrics: {listen: '127.0.0.1:\u0663'}", "HOST:PORT such as 0.0.0.0:9469"),
        ('"\\e[2J\\n": 1', "'\\x1b[2J\\n': unknown key"),
        ('grpc: {"\\e[2J": 1}', "grpc.'\\x1b[2J': unknown key"),
        (f'? "{"k" * 5000}"\n: 1', f"{'k' * 57}...: unknown key"),
        (2 * f'? "{"k" * 5000}"\n: 1\n', f"'{'k' * 57}...' appears twice"),
        ("{}\n---\nmode: enforce", "line 2, column 1: a second YAML document begins here"),
        (f"interfaces: [{'eth0,' * 257}]", "interfaces: must be a list of at most 256 items, not of 257"),
        (f"grpc: {{listen: [{'a,' * 17}]}}", "grpc.listen: must be a list of at most 16 items, not of 17"),
        (
            f"services: {{selector: {{{','.join(f'a{n}: b' for n in range(65))}}}}}",
            "must be a mapping of at most 64 label names",
        ),
        ("mode: [[[[[[enforce]]]]]]", "mode: must be observe or enforce, not [[[[...]]]]"),
    ],
    ids=range(16),
)
def test_hostile_text_is_refused_and_shown_harmlessly(text, expected):
    problems = _problems(text)

    assert any(expected in problem for problem in problems), problems
    assert all(problem.isprintable() and len(problem) < 300 for problem in problems)


def test_of_many_problems_the_first_are_told():
    problems = _problems("vips: [" + "a," * 5000 + "]")

    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == "4900 more problems: correct the first ones, then check again"


def test_line_of_many_problems_is_short():
    with pytest.raises(ConfigError) as caught:
        parse_config("vips: [" + "a," * 50 + "]")

    assert str(caught.value).count("vips[") == 10
    assert str(caught.value).endswith("; and more problems")


def test_byte_order_mark_and_end_of_document_are_fine():
    assert parse_config("\ufeff---\nmode: enforce\n...\n").mode is Mode.ENFORCE


# ---- closed ranges -----------------------------------------------------------------------------------------------


def _networks(*texts: str):
    return tuple(map(ip_network, texts))


@pytest.mark.parametrize(
    ("text", "ranges", "closed"),
    [
        ("ranges: [192.0.2.0/24]", ["192.0.2.0/24"], []),
        ("unknown: pass\nranges: [192.0.2.0/24]", ["192.0.2.0/24"], []),
        ("unknown: suppress\nranges: [192.0.2.0/24, '2001:db8::/64']",) + (["192.0.2.0/24", "2001:db8::/64"],) * 2,
        (
            "unknown: suppress\nranges: [192.0.2.0/24, {network: 192.0.2.64/26, unknown: pass}]",
            ["192.0.2.0/24", "192.0.2.64/26"],
            ["192.0.2.0/24"],
        ),
        (
            "ranges: [{network: 192.0.2.0/24}, {network: 192.0.2.64/26, unknown: suppress}]",
            ["192.0.2.0/24", "192.0.2.64/26"],
            ["192.0.2.64/26"],
        ),
        ("unknown: suppress\nranges: []", [], []),
        ("unknown: suppress\nranges: ['fd00::/8', 10.0.0.0/8]",) + (["fd00::/8", "10.0.0.0/8"],) * 2,
    ],
)
def test_ranges_are_closed_all_or_each_by_itself(text, ranges, closed):
    config = parse_config(text)
    assert (config.ranges, config.closed) == (_networks(*ranges), _networks(*closed))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("unknown: drop", "unknown: must be pass or suppress, not drop"),
        ("ranges: [{network: 192.0.2.0/24, unknown: no}]", "ranges[0].unknown: must be pass or suppress, not no"),
        ("ranges: [{unknown: pass}]", "ranges[0].network: missing; a network such as 192.0.2.0/24"),
        ("ranges: [{network: 192.0.2.1/24}]", "ranges[0].network: must be a network without host bits such as 192."),
        ("ranges: [{net: 192.0.2.0/24, network: 192.0.2.0/24}]", "ranges[0].net: unknown key"),
        ("unknown: suppress\nranges: [0.0.0.0/0]", "ranges[0]: must be a range of hosts' addresses, not 0.0.0.0/0;"),
        ("unknown: suppress\nranges: [192.0.2.0/24, '::/0']", "ranges[1]: must be a range of hosts' addresses, not"),
        ("unknown: suppress\nranges: ['fe80::/64']", "ranges[0]: must be a range of hosts' addresses, not fe80::/6"),
        (
            "unknown: suppress\nranges: [" + ", ".join(f"10.{number}.0.0/16" for number in range(65)) + "]",
            "ranges: must have at most 64 items with unknown: suppress, not 65",
        ),
    ],
)
def test_wrong_range_is_named(text, problem):
    assert [found for found in _problems(text) if found.startswith(problem)]


# ---- where a problem is, and what was likely meant -----------------------------------------------------------------


def _at(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return [str(problem) for problem in caught.value.problems]


def test_problem_names_its_line():
    text = """mode: observe
vips:
  - address: 192.0.2.1
    owner:
      node: UPPER
  - address: 192.0.2.2
lease: {duration: 3s,
  margin: 4s}
mod: enforce
"""
    assert [line.rpartition(": ")[0] if "must" in line else line for line in _at(text)] == [
        "line 5: vips[0].owner.node",
        "line 6: vips[1].owner: missing; every VIP needs an address and an owner",
        "line 8: lease.margin",
        "line 7: lease.renew",
        "line 9: mod: unknown key; did you mean 'mode'?",
    ]


@pytest.mark.parametrize("text", ["[]", "- mode", "3"], ids=["list", "items", "scalar"])
def test_problem_of_the_whole_file_has_no_line(text):
    assert _at(text)[0].startswith("must be a mapping")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("mode: Enforce", "'enforce'?"),
        ("mod: enforce", "'mode'?"),
        ("ranges: 192.0.2.0/24", "[192.0.2.0/24]?"),
        ("ranges: [192.0.2.77/24]", "192.0.2.0/24?"),
        ("vips: [{address: 192.0.2.1, owner: elected}]", "'elect'?"),
        ("vips: [{address: 192.0.2.1, owner: worker-1}]", "{node: worker-1}?"),
        ("lease: {vouching: Auto}", "'auto'?"),
        ("lease: {vouching: {profile: fats}}", "'fast'?"),
    ],
)
def test_problem_says_what_was_likely_meant(text, hint):
    (problem,) = _at(text)
    assert problem.endswith(f"; did you mean {hint}")


def test_word_that_is_near_nothing_gets_no_hint():
    assert "did you mean" not in "".join(_at("mode: fast\nvips: [{address: 192.0.2.1, owner: NO-NODE}]\nxyz: 1"))


# ---- where a configuration may stand -------------------------------------------------------------------------------

_MANIFEST = """apiVersion: v1
kind: ConfigMap
metadata: {name: arpguard}
data:
  config.yaml: |
    mode: enforce
    vips: [{address: 192.0.2.1, owner: external}]
"""


def _read(tmp_path: Path, text: str) -> AgentConfig:
    (tmp_path / "file.yaml").write_text(text, encoding="utf-8")
    return read_config(tmp_path / "file.yaml")


def test_manifest_of_a_configmap_is_read(tmp_path):
    assert _read(tmp_path, _MANIFEST) == parse_config("mode: enforce\nvips: [{address: 192.0.2.1, owner: external}]")


@pytest.mark.parametrize("block", ["|", "|-", "|+", "|2", "| # a comment", "!!str |"])
def test_problem_in_a_manifest_has_the_line_of_the_file(block, tmp_path):
    with pytest.raises(ConfigError, match=r"line 6: mode: must be observe or enforce, not strict"):
        _read(tmp_path, _MANIFEST.replace("enforce", "strict").replace("|", block))


def test_wrong_yaml_in_a_manifest_has_the_line_of_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"line 7, column 1: "):
        _read(tmp_path, _MANIFEST.replace("vips: [", "- : ["))


@pytest.mark.parametrize(
    "manifest",
    [
        json.dumps({"kind": "ConfigMap", "data": {"config.yaml": "datapath: tc\nmode: strict"}}),
        "kind: ConfigMap\ndata:\n  config.yaml: >\n    mode: strict\n",
        "kind: ConfigMap\ndata:\n  config.yaml: 'mode: strict'\n",
    ],
    ids=["json", "folded", "quoted"],
)
def test_problem_in_a_manifest_whose_lines_are_others_has_none(manifest, tmp_path):
    with pytest.raises(ConfigError, match=r"file\.yaml: mode: must be observe or enforce, not strict$"):
        _read(tmp_path, manifest)


def test_wrong_yaml_in_a_manifest_whose_lines_are_others_names_the_key(tmp_path):
    with pytest.raises(ConfigError, match=r"file\.yaml: data\.config\.yaml: .*: correct the YAML$"):
        _read(tmp_path, json.dumps({"kind": "ConfigMap", "data": {"config.yaml": "a: [\n"}}))


@pytest.mark.parametrize("data", ["{}", "[]", "{config.yml: ''}", "{config.yaml: {mode: enforce}}"])
def test_configmap_without_a_configuration_is_refused(data, tmp_path):
    with pytest.raises(ConfigError, match=r"data: no key config\.yaml: put the configuration under this key"):
        _read(tmp_path, f"kind: ConfigMap\ndata: {data}")


def test_manifest_is_not_a_configuration_inside_of_a_configmap():
    assert any("kind: unknown key" in problem for problem in _problems(_MANIFEST))


# ---- audit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "audit"),
    [
        ("mode: observe", AuditConfig(60 * NS_PER_S, 20)),
        ("audit: {}", AuditConfig(60 * NS_PER_S, 20)),
        ("audit: {every: 15s, rate: 1/s}", AuditConfig(15 * NS_PER_S, 1)),
        ("audit: {every: 60m, rate: 999/s}", AuditConfig(3600 * NS_PER_S, 999)),
        ("audit: {every: off}", AuditConfig(0, 20)),
        ("audit: {every: false}", AuditConfig(0, 20)),
    ],
)
def test_audit_is_on_unless_it_is_off(text, audit):
    assert parse_config(text, "test").audit == audit
