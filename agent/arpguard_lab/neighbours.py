"""What a host's kernel makes of an IPv6 address: its neighbour entry and the states of that, and whether it is free.

And whether a kernel has room for neighbours.
"""

import json
import select
import subprocess
import time
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path
from typing import Self, TypeVar

from arpguard.addresses import MacAddress
from arpguard.errors import DataPlaneError
from arpguard_lab.bench import until
from arpguard_lab.topology import NETWORK6, Host

Answer = TypeVar("Answer")

_ROOM_S, _RETRY_S = 30.0, 0.1  # neighbour entries are given up after 5 s where there are too many, unless others come
_TABLES = (Path("/proc/net/stat/arp_cache"), Path("/proc/net/stat/ndisc_cache"))
_PATIENCE_S = 10.0
_SUBSCRIBED_S = 0.05
# One probe for an address of its own, and neighbour entries that go through all their states in a second.
_PROBING = ("net.ipv6.conf.eth0.accept_dad=1", "net.ipv6.conf.eth0.router_solicitation_delay=0")
_FAST_MS = ("base_reachable", "200", "delay_probe", "100", "retrans", "100")  # ip-ntable(8)
_BEACON = IPv6Address(f"{NETWORK6}::ffff")


def quicken(host: Host) -> None:
    """Has the kernel look whether an address is free before it takes it, and ask neighbours again and again soon."""
    host.netns.run("sysctl", "-qw", *_PROBING)
    host.netns.run("ip", "ntable", "change", "name", "ndisc_cache", "dev", "eth0", *_FAST_MS)


def without_room() -> int:
    """How often a kernel of this machine had no room for another neighbour (arp(7), gc_thresh3), and said nothing.

    All network namespaces share it (Linux, net/core/neighbour.c).
    """
    found = 0
    for table in filter(Path.exists, _TABLES):
        names, *processors = (line.split() for line in table.read_text(encoding="ascii").splitlines())
        found += sum(int(counts[names.index("table_fulls")], 16) for counts in processors)
    return found


def with_room(ask: Callable[[], Answer], is_whole: Callable[[Answer], object]) -> Answer:
    """What is answered; asked again where that is not whole, and a kernel had no room for whom to answer."""
    deadline = time.monotonic() + _ROOM_S
    while True:
        before, answer = without_room(), ask()
        if is_whole(answer) or without_room() == before or time.monotonic() > deadline:
            return answer
        time.sleep(_RETRY_S)


def mac_of(host: Host, address: IPv6Address) -> MacAddress | None:
    """The MAC that the kernel has for a neighbour; None where it has none."""
    rows = json.loads(host.netns.run("ip", "-6", "-json", "neigh", "show", "to", str(address), "dev", "eth0"))
    return next((MacAddress.parse(row["lladdr"]) for row in rows if "lladdr" in row), None)


def is_free(host: Host, address: IPv6Address) -> bool:
    """Whether duplicate address detection lets a host have an address (RFC 4862 5.4); it is taken off again."""
    host.netns.batch([f"addr add {address}/128 dev eth0"])
    try:
        until(lambda: _detected(host, address), _PATIENCE_S, f"it is known whether {address} is free")
        return "dadfailed" not in _flags(host, address)
    finally:
        host.unbind(address, "eth0")


def _detected(host: Host, address: IPv6Address) -> bool:
    flags = _flags(host, address)
    return "dadfailed" in flags or "tentative" not in flags


def _flags(host: Host, address: IPv6Address) -> dict[str, object]:
    """The address on the link, as ip-address(8) tells it: flags that are set are keys."""
    rows = json.loads(host.netns.run("ip", "-json", "addr", "show", "dev", "eth0", "to", str(address)))
    found: dict[str, object] = next(entry for row in rows for entry in row.get("addr_info", ()) if entry)
    return found


class States:
    """The states through which a neighbour entry goes, as the kernel tells them (ip-monitor(8)), while it is entered.

    Of the changes of state it reports only some: STALE, PROBE, REACHABLE and FAILED are, DELAY is not.
    """

    def __init__(self, host: Host, address: IPv6Address) -> None:
        self._host = host
        self._address = str(address)
        words = [*host.netns.prefix(), "ip", "-6", "monitor", "neigh", "dev", "eth0"]
        # Without a buffer: select() knows nothing of lines that are in one. `ip` also looks at all namespaces, and
        # complains about one that another lab is just creating.
        self._monitor = subprocess.Popen(  # noqa: S603
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )

    def __enter__(self) -> Self:
        """Returns once changes are reported."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self._host.netns.batch(
                [f"neigh {verb} {_BEACON} lladdr 02:00:00:00:ff:ff dev eth0" for verb in ("add", "del")]
            )
            if self._next(_SUBSCRIBED_S):
                return self
        self.close()
        raise DataPlaneError("`ip monitor` prints nothing: is iproute2 complete?")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._monitor.kill()
        self._monitor.communicate()

    def until(self, last: str) -> list[str]:
        """What comes up to a state, that included; DataPlaneError when it does not come."""
        states: list[str] = []
        while not states or states[-1] != last:
            words = self._next(_PATIENCE_S)
            if not words:
                raise DataPlaneError(f"the entry for {self._address} did not become {last}; its states were {states}")
            if words[0] == self._address:
                states.append(words[-1])
        return states

    def _next(self, wait_s: float) -> list[str]:
        """The words of the next line; none when there is none in time."""
        stream = self._monitor.stdout
        ready = stream is not None and select.select([stream], [], [], wait_s)[0]
        return stream.readline().decode().split() if ready and stream is not None else []
