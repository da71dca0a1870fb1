"""Boots of a node, asked for its VIPs from before its kernel runs: without the file for `arpguard early`, and with it.

The client is outside, where the guest's NIC ends, and asks all the time. The first boot has no such file, so the kernel
answers for every VIP that is bound; its agent keeps one. The second boot loads that before its network is up.
"""

import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path

from arpguard.wire.arp import ArpOp
from arpguard_lab.netns import Netns
from arpguard_lab.topology import NETWORK, Host
from kernels.machine import Cable, Machine
from kernels.packages import Kernel
from kernels.suites import Outcome
from support.netns.wire import Wire, arp_of

NAME = "closed from boot"
OWN, OWNED, FOREIGN = (IPv4Address(f"{NETWORK}.{number}") for number in (1, 50, 51))
ADDRESSES = (OWN, OWNED, FOREIGN)
_MAC = "02:00:00:00:00:01"
_SCRIPT = Path(__file__).with_name("boot.sh")
_TAP = "nic0"
_LIMIT_S = 1800.0
_EVERY_S = 0.02
_ENOUGH = 100  # answers for the node's own address, or requests, in each part of a boot
_CONFIG = f"""
mode: enforce
interfaces: [eth0]
unknown: suppress
ranges: [{NETWORK}.0/24]
vips: [{{address: {OWNED}, owner: {{node: node-1}}}}]
grpc: {{listen: []}}
metrics: {{listen: off}}
"""
BEFORE, AFTER = "before the agent", "from the agent on"


class Client(threading.Thread):
    """Asks for each address in turn, and counts answers by the part of the boot in which they came."""

    def __init__(self, place: Netns) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(Host("client", place, 100), _TAP)
        self._done = threading.Event()
        self.part = BEFORE
        self.answers: Counter[tuple[str, IPv4Address]] = Counter()

    def run(self) -> None:
        while not self._done.is_set():
            for address in ADDRESSES:
                with suppress(OSError):  # there is no guest yet
                    self._wire.send(self._wire.request(address))
            self._take(_EVERY_S)

    def _take(self, wait_s: float) -> None:
        while (frame := self._wire.hear(wait_s)) is not None:
            packet = arp_of(frame)
            if packet is not None and packet.op is ArpOp.REPLY and packet.tha == self._wire.mac:
                self.answers[self.part, packet.spa] += 1

    def end(self) -> None:
        self._done.set()
        self.join()
        self._wire.close()


class Boot:
    """One boot, and what the client heard in it."""

    def __init__(self, kernel: Kernel, shared: Path, early: Path | None) -> None:
        shared.mkdir(parents=True)
        (shared / "agent.yaml").write_text(_CONFIG, encoding="utf-8")
        self._kernel, self.shared = kernel, shared
        self._early = shutil.copy(early, shared / "early.yaml") if early else ""
        self._failure: BaseException | None = None

    def run(self) -> "Counter[tuple[str, IPv4Address]]":
        """How often each address was answered for, before the agent was started and after that."""
        place = Netns(f"arpguard-boot-{os.getpid()}")
        try:
            place.batch([f"tuntap add {_TAP} mode tap", f"link set {_TAP} up"])
            client = Client(place)
            client.start()
            guest = threading.Thread(target=self._guest, args=[place])
            guest.start()
            try:
                self._steer(client, guest)
            finally:
                guest.join()
                client.end()
        finally:
            place.remove()
        if self._failure is not None:
            raise self._failure
        return client.answers

    def _guest(self, place: Netns) -> None:
        tests = Path(__file__).parents[1]
        environment = {
            "PYTHON": sys.executable,
            "PYTHONPATH": str(tests),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MAC": _MAC,
            "OWN": str(OWN),
            "VIPS": f"{OWNED} {FOREIGN}",
        }
        try:
            machine = Machine(self._kernel, self.shared, [Cable(place, _TAP)])
            machine.run(["sh", _SCRIPT, self.shared, f'"{self._early}"'], environment, _LIMIT_S)
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self._failure = error

    def _steer(self, client: Client, guest: threading.Thread) -> None:
        """Lets the guest go on once there were enough answers for its own address: VIPs' would have come as well."""

        def reached(condition: Callable[[], bool]) -> None:
            while guest.is_alive() and not condition():
                time.sleep(_EVERY_S)

        reached(lambda: client.answers[BEFORE, OWN] >= _ENOUGH)
        client.part = AFTER
        (self.shared / "asked").touch()
        reached((self.shared / "ready").exists)
        heard = client.answers[AFTER, OWNED]
        reached(lambda: client.answers[AFTER, OWNED] >= heard + _ENOUGH)
        (self.shared / "seen").touch()


def run(kernel: Kernel, folder: Path) -> Outcome:
    """Two boots."""
    first = Boot(kernel, folder / "boot" / "open", None)
    without = first.run()
    closed = Boot(kernel, folder / "boot" / "closed", first.shared / "early.yaml").run()
    return judged(without, closed)


def judged(without: "Counter[tuple[str, IPv4Address]]", closed: "Counter[tuple[str, IPv4Address]]") -> Outcome:
    """What has to be of the boots without and with the file; each of it counts as a test."""
    told = f"{closed[BEFORE, OWNED] + closed[BEFORE, FOREIGN]} answers for two VIPs before the agent ran, "
    told += f"{without[BEFORE, OWNED] + without[BEFORE, FOREIGN]} without the file"
    wrong = {
        "without the file the kernel answers for both VIPs": all(without[BEFORE, vip] for vip in (OWNED, FOREIGN)),
        "with it for none": not any(closed[BEFORE, vip] for vip in (OWNED, FOREIGN)),
        "the node's own address is answered for": closed[BEFORE, OWN] >= _ENOUGH,
        "the agent answers for the VIP that it owns": closed[AFTER, OWNED] >= _ENOUGH,
        "and never for another": not closed[AFTER, FOREIGN],
    }
    failed = tuple(f"{what}: no" for what, holds in wrong.items() if not holds)
    return Outcome(len(wrong) - len(failed), 0, failed, told)
