"""This machine and this network namespace as the doctor looks at them; nothing is changed, and nothing stays.

What may be hidden from this process (not root, in a container) is `Unread`, with the reason.
"""

import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path

from arpguard.addresses import Address
from arpguard.core.checkup.snapshot import Machine, Unread
from arpguard.core.checkup.sysctls import ALL, NAMES, Sysctls
from arpguard.core.vouching.profiles import is_virtual
from arpguard.dataplane import bpffs, syscall
from arpguard.dataplane.device import strips_vlan_tags
from arpguard.dataplane.iproute import AsyncIPRoute, NetlinkError
from arpguard.dataplane.privileges import NEEDED, Capability, effective
from arpguard.dataplane.processor import read_cpuinfo
from arpguard.errors import DataPlaneError
from arpguard.model import Link, Surroundings

_RT_SCOPE_HOST = 254  # linux/rtnetlink.h
_RETURN_OK = struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)  # r0 = 0; exit
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def read_sysctls(links: Iterable[Link], root: Path = Path("/proc/sys/net")) -> Sysctls:
    """The settings of some links, and of `all`; those that cannot be read are left out.

    /proc/sys/net shows the network namespace of the process that opens it.
    """
    values = {}
    for name in NAMES:
        family, _, setting = name.partition("/")
        for link in (ALL, *(each.name for each in links)):
            try:
                values[name, link] = int((root / family / "conf" / link / setting).read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
    return Sysctls(values)


async def read_host_scoped() -> frozenset[Address]:
    """IPv4 addresses of scope host: what arp_ignore=3 does not answer for. Raises DataPlaneError."""
    try:
        async with AsyncIPRoute() as ipr:
            texts = {
                message.get("local") or message.get("address")
                async for message in await ipr.addr("dump")
                if message["scope"] == _RT_SCOPE_HOST
            }
    except (NetlinkError, OSError) as error:
        raise DataPlaneError(f"cannot read addresses over rtnetlink ({error})") from error
    return frozenset(map(ip_address, texts))


async def read_kernel_routes(
    addresses: Iterable[Address], surroundings: Surroundings
) -> Mapping[Address, str | Unread]:
    """The link by which the kernel would send to each address, as `ip route get` has it: the table `local` first."""
    found: dict[Address, str | Unread] = {}
    async with AsyncIPRoute() as ipr:
        for address in addresses:
            try:
                message = (await ipr.route("get", dst=str(address)))[0]
            except (NetlinkError, OSError) as error:
                found[address] = Unread(os.strerror(getattr(error, "code", 0) or errno.ENETUNREACH))
                continue
            link = surroundings.link(message.get("oif") or 0)
            found[address] = link.name if link else Unread("the kernel names no link")
    return found


def read_machine(pin_dir: Path, links: Iterable[Link]) -> Machine:
    """The kernel, and what the guard needs of it."""
    return Machine(
        release=platform.release(),
        jited=_compiles_bpf(),
        tcx=has_tcx(),
        bpffs=bpffs.is_bpffs(next(path for path in (pin_dir, *pin_dir.parents) if os.access(path, os.F_OK))),
        capabilities=_capabilities(),
        clock=_text(_CLOCK),
        virtual=is_virtual(read_cpuinfo()),
        strips_tags=frozenset(link.name for link in links if not link.kind and strips_vlan_tags(link.name)),
    )


def _compiles_bpf() -> bool | Unread:
    """Whether the kernel compiles programs; one that lets everything pass is loaded, attached nowhere, and let go."""
    try:
        with syscall.program_load(syscall.SCHED_CLS, _RETURN_OK) as program:
            return syscall.program_info(program).jited
    except OSError as error:
        return Unread(f"the kernel refuses it ({error.strerror}): run as root, or with CAP_BPF and CAP_NET_ADMIN")


def has_tcx() -> bool | Unread:
    """Whether the kernel has TCX (since 6.6), by which programs of several owners share a hook."""
    try:
        syscall.program_query(1, syscall.ATTACH_TCX_INGRESS)  # lo
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        return Unread(f"the kernel does not say whether it has TCX ({error.strerror}): run as root")
    return True


def _capabilities() -> frozenset[str]:
    held, asked = effective(), (*NEEDED, Capability.SYS_ADMIN)
    return frozenset(f"CAP_{each.name}" for each in asked if held >> each & 1)


def _text(path: Path) -> str | Unread:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        return Unread(f"{path} cannot be read ({error.strerror})")
