"""The traps that the doctor knows: each has a node and a VIP of its own, so that none is in another's way."""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from arpguard.dataplane import syscall
from arpguard.dataplane.inspecting import has_tcx
from arpguard.wire.arp import build_announcements
from arpguard_lab.bench import Bench, Step, until
from arpguard_lab.cluster import objects
from arpguard_lab.topology import NETWORK
from arpguard_lab.ward import DEADLINE_S, SHOP, VIP_OFFSET, Deed, Json, Trap, Ward, treat

FIRST_WARD = 20  # the last byte of the first node's address
_KUBE_PROXY = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
ipvs:
  strictARP: false
"""


# ---- how traps are made ------------------------------------------------------------------------------------------


def _sh(*lines: str) -> Deed:
    return lambda ward: ward.sh(*lines)


def _both(*deeds: Deed) -> Deed:
    def do(ward: Ward) -> None:
        for deed in deeds:
            deed(ward)

    return do


def _guarded(ward: Ward) -> None:
    ward.start_agent()


def _configured(config: str) -> Deed:
    return lambda ward: ward.configure(config)


_VIP_ON_LO = "ip addr add {vip}/32 dev lo"
_VIP_ON_IPVS = (
    "ip link add kube-ipvs0 type bridge",
    "ip link set kube-ipvs0 arp off",
    "ip addr add {vip}/32 dev kube-ipvs0",
)
_QUIET_ARP = "sysctl -qw net.ipv4.conf.eth0.arp_ignore=1 net.ipv4.conf.eth0.arp_announce=2"
_OWNED = "mode: enforce\nvips: [{address: {vip}, owner: {node: {node}}}]\n"
_OF_ANOTHER = "mode: enforce\nvips: [{address: {vip}, owner: {node: elsewhere}}]\n"
_IPV6 = "mode: enforce\ninterfaces: [eth0]\nvips: [{address: '2001:db8::50', owner: external}]\n"
_PASS = struct.pack("=BBhiBBhi", 0xB7, 0, 0, -1, 0x95, 0, 0, 0)  # r0 = TC_ACT_UNSPEC; exit
_EXTERNAL = "mode: enforce\nvips: [{address: {vip}, owner: external}]\n"
_DELEGATED = "mode: enforce\nvips: [{address: {vip}, owner: {node: {node}, delegated: true}}]\n"


def _second_link(*lines: str) -> Deed:
    """eth1 on the same switch, with an address in the same subnet."""

    def lay(ward: Ward) -> None:
        number = int(ward.vip) & 0xFF
        name = f"port{number}"
        ward.lab.switch.batch(
            [
                f"link add {name} type veth peer name eth1 netns {ward.host.netns.name}",
                f"link set {name} master br0 up",
            ]
        )
        ward.sh("ip link set eth1 up", f"ip addr add {NETWORK}.{number - 50}/24 dev eth1 metric 500", *lines)

    return lay


def _service(*addresses: str) -> Deed:
    def lay(ward: Ward) -> None:
        own = {"{vip}": ward.vip, "{node}": ward.host.address}
        vips = [own[each] for each in addresses]
        ward.serve(objects.node(ward.host.name, ward.host.address), objects.service(SHOP, "db", vips))

    return lay


def _ipvs(ward: Ward) -> None:
    """kube-proxy's objects, as kubeadm makes them."""
    settings = objects.config_map("kube-system", "kube-proxy", "")
    settings["data"] = {"config.conf": _KUBE_PROXY}
    ward.serve(settings, objects.daemon_set("kube-system", "kube-proxy"), objects.service(SHOP, "web", [ward.vip]))


def _limited(*words: str) -> Deed:
    def lay(ward: Ward) -> None:
        ward.limits = words

    return lay


def _overtaken(ward: Ward) -> None:
    """Another program was attached before the guard's; its link goes with its process, or when it is detached."""
    ward.start_agent()
    program = syscall.program_load(syscall.SCHED_CLS, _PASS)
    ward.foreign = ward.host.netns.call(
        lambda: syscall.link_create(
            program, socket.if_nametoindex("eth0"), syscall.ATTACH_TCX_INGRESS, syscall.F_BEFORE
        )
    )


def _detached(ward: Ward) -> None:
    if ward.foreign is not None:
        syscall.link_detach(ward.foreign)


def _openelb(ward: Ward) -> None:
    """An address pool that finds its link by an address of its own, which a Service has got meanwhile."""
    kind = {"kind": "Eip", "plural": "eips", "singular": "eip"}
    version = {"name": "v1alpha2", "served": True, "storage": True}

    ward.serve(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "eips.network.kubesphere.io"},
            "spec": {"group": "network.kubesphere.io", "scope": "Cluster", "names": kind, "versions": [version]},
        },
        {
            "apiVersion": "network.kubesphere.io/v1alpha2",
            "kind": "Eip",
            "metadata": {"name": "pool"},
            "spec": {"address": f"{ward.vip}-{ward.vip}", "protocol": "layer2", "interface": f"can_reach:{ward.vip}"},
        },
    )
    ward.sh(*_VIP_ON_IPVS)


def _restarted_kube_proxy(ward: Ward) -> None:
    """Runs the doctor's fix, then applies what a restarted kube-proxy would do."""
    ward.take_advice(ward.check("kube-proxy"))
    ward.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")


def _claimed(ward: Ward) -> None:
    """The agent owns the VIP, and somebody outside announces it."""
    ward.start_agent()
    mouth = ward.lab.client.listen()
    mouth.send(build_announcements(mouth.mac, ward.vip)[0])
    mouth.close()
    until(lambda: ward.check("vip-claimed")["verdict"] == "bad", DEADLINE_S, "the agent has heard the claim")


def _declared_external(ward: Ward) -> None:
    """What only a person can decide: the host outside is the one that is to have it."""
    ward.sh(f"kubectl -n {SHOP} annotate service db {objects.PREFIX}owner=external")


def _restarted(ward: Ward) -> None:
    ward.stop_agent()
    ward.start_agent()


def _second_guard(ward: Ward) -> None:
    """One agent was given another folder, and what it left there is still attached."""
    ward.start_agent()
    ward.stop_agent()
    text = ward.agent.config.read_text(encoding="utf-8")
    ward.agent.pin_dir = ward.agent.pin_dir.with_name(f"{ward.agent.pin_dir.name}-new")
    ward.agent.config.write_text(text.replace(str(ward.agent.pin_dir)[: -len("-new")], str(ward.agent.pin_dir)))
    ward.start_agent()


TRAPS = (
    Trap("vip-bound", "VIP on lo, no guard", _sh(_VIP_ON_LO)),
    Trap("vip-bound", "VIP of another node on lo, agent not started", _sh(_VIP_ON_LO), config=_OF_ANOTHER),
    Trap(
        "vip-bound", "VIP of a host outside is also on the NIC", _sh("ip addr add {vip}/32 dev eth0"), config=_EXTERNAL
    ),
    Trap(
        "vip-bound",
        "the guard only observes",
        _both(_sh(_VIP_ON_LO), _guarded),
        _configured(_OF_ANOTHER),
        _OF_ANOTHER.replace("enforce", "observe"),
        "warn",
    ),
    Trap("kube-ipvs", "externalIP on kube-ipvs0, which is down and NOARP", _sh(*_VIP_ON_IPVS)),
    Trap(
        "vip-on-wire",
        "VIP on lo, and on a host outside",
        _both(_sh(_VIP_ON_LO), lambda ward: ward.outside("ip addr add {vip}/32 dev eth0")),
    ),
    Trap(
        "vip-on-wire",
        "externalIP of a Service is the address of a host outside",
        _both(_service("{vip}"), lambda ward: ward.outside("ip addr add {vip}/32 dev eth0")),
        _declared_external,
    ),
    Trap("vip-refused", "externalIP of a Service is this node's address", _service("{node}")),
    Trap("vip-claimed", "a host outside announces an owned VIP", _claimed, _restarted, _OWNED),
    Trap(
        "vip-leaks",
        "VIP on lo, arp_announce 0",
        _sh(_VIP_ON_LO, _QUIET_ARP, "sysctl -qw net.ipv4.conf.eth0.arp_announce=0"),
    ),
    Trap(
        "vip-leaks",
        "VIP on lo, arp_announce 1 and the VIP in the link's subnet",
        _sh(_VIP_ON_LO, _QUIET_ARP, "sysctl -qw net.ipv4.conf.eth0.arp_announce=1"),
    ),
    Trap("arp-ignore", "arp_ignore 8", _sh("sysctl -qw net.ipv4.conf.eth0.arp_ignore=8")),
    Trap(
        "arp-ignore",
        "delegated VIP on lo, arp_ignore 1",
        _both(_sh(_VIP_ON_LO, "sysctl -qw net.ipv4.conf.all.arp_ignore=1"), _guarded),
        config=_DELEGATED,
    ),
    Trap(
        "arp-ignore",
        "arp_ignore set on kube-ipvs0 only",
        _sh(*_VIP_ON_IPVS, "sysctl -qw net.ipv4.conf.kube-ipvs0.arp_ignore=1"),
        grade="warn",
    ),
    Trap(
        "lvs-dr-loop",
        "real server with accept_local and rp_filter 1",
        _sh(_VIP_ON_LO, "sysctl -qw net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.eth0.accept_local=1"),
    ),
    Trap("same-segment", "two NICs in one subnet", _second_link(), grade="warn"),
    Trap(
        "rp-filter",
        "strict rp_filter, but replies leave by the other NIC",
        _second_link("sysctl -qw net.ipv4.conf.eth1.rp_filter=1"),
    ),
    Trap("takeovers", "drop_gratuitous_arp 1", _sh("sysctl -qw net.ipv4.conf.all.drop_gratuitous_arp=1")),
    Trap(
        "proxy-arp",
        "proxy_arp, and a VIP that is routed elsewhere",
        _second_link(
            "ip route add {vip}/32 dev eth1", "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.eth0.proxy_arp=1"
        ),
        config=_EXTERNAL,
    ),
    Trap(
        "interfaces", "a link that does not exist", _sh(), _configured("interfaces: [eth0]\n"), "interfaces: [eth7]\n"
    ),
    Trap(
        "interfaces",
        "a port of a bridge",
        _sh(
            "ip link add br7 type bridge",
            "ip link add eth7 type veth peer name eth8",
            "ip link set eth7 master br7",
            "ip link set eth8 up",
            "ip link set eth7 up",
            "ip link set br7 up",
        ),
        _configured("interfaces: [br7]\n"),
        "interfaces: [eth7]\n",
    ),
    Trap(
        "can-reach",
        "can_reach with an address that is bound here",
        _sh(_VIP_ON_LO),
        _configured(f"interfaces: ['can_reach:{NETWORK}.254']\n"),
        "interfaces: ['can_reach:{vip}']\n",
        "warn",
    ),
    Trap("can-reach", "an Eip of OpenELB that names its link by its own address", _openelb),
    Trap("kube-proxy", "IPVS without strictARP", _ipvs, _restarted_kube_proxy),
    Trap("agent", "configured, not started", _sh(), config=_OF_ANOTHER),
    # Without TCX, the second agent replaces the filters of the first.
    Trap("one-agent", "a guard left behind in another folder", _second_guard, config=_OF_ANOTHER, needs_tcx=True),
    Trap(
        "foreign-programs", "a program that runs before the guard", _overtaken, _detached, _OF_ANOTHER, needs_tcx=True
    ),
    Trap("ipv6", "an IPv6 VIP on a link without IPv6", _sh(), config=_IPV6),
    Trap(
        "capabilities",
        "a container without CAP_PERFMON",
        _limited("setpriv", "--bounding-set=-perfmon"),
        _limited(),
    ),
    Trap("xdp", "native XDP on a veth", _sh(), _configured("datapath: auto\n"), "datapath: xdp\n", "warn", "skip"),
)


COLUMNS = ("TRAP", "SAID", "EXPECTED")


@dataclass(frozen=True, slots=True)
class Diagnosis(Step):
    """`nodes` is what the check said with the trap and after the fix, `expected` what it should."""

    def as_json(self) -> Json:
        """The step for machines."""
        before, after = self.nodes
        told = {"scenario": self.scenario, "step": self.step, "vip": self.vip, "before": before, "after": after}
        return told | {"expected": list(self.expected), "ok": self.ok, "judged": self.judged, **self.facts}

    def remark(self) -> str:
        """What was seen, where it was not what it should be."""
        return "" if self.ok else Step.remark(self)

    def cells(self) -> tuple[str, ...]:
        """The step as a table row under COLUMNS."""
        return self.step, ", then ".join(self.nodes), ", then ".join(self.expected)


def doctor(bench: Bench) -> Iterator[Step]:
    """All traps that this kernel can show, one after the other."""
    kernel_has_tcx = has_tcx()
    for number, trap in enumerate(TRAPS, FIRST_WARD):
        if trap.needs_tcx and not kernel_has_tcx:
            continue

        before, after, seen = treat(bench.lab, number, trap)
        yield Diagnosis(
            scenario="doctor",
            step=f"{trap.check}: {trap.what}",
            vip=f"{NETWORK}.{number + VIP_OFFSET}",
            expected=(trap.grade, trap.cured),
            nodes=(before, after),
            ok=(before, after) == (trap.grade, trap.cured),
            facts={"seen": seen},
        )
