"""Who speaks for a VIP, told by the port of the switch: two nodes may do it with one MAC, that of a virtual router."""

import time
from collections.abc import Sequence
from typing import Self

from arpguard.addresses import Address
from arpguard.dataplane.neighboursocket import build_question
from arpguard.errors import DataPlaneError
from arpguard_lab.bench import ASK_WAIT_S, LATE_S, Bench, Step
from arpguard_lab.capture import Capture, Said
from arpguard_lab.patience import Patience
from arpguard_lab.topology import Host

_QUESTIONS = 5
_BETWEEN_S = 0.02
_SETTLE_S = 10.0


class Witness:
    """Hears every answer and announcement for a VIP from entering to leaving."""

    def __init__(self, bench: Bench, vip: Address) -> None:
        self._bench = bench
        self.vip = vip
        self._capture = Capture(bench.lab.switch)
        self._said: list[Said] = []

    def __enter__(self) -> Self:
        self._capture.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._capture.stop()

    def heard(self, since_ns: int) -> list[Said]:
        """What was said for the VIP since a time of the wall clock."""
        self._said += self._capture.take()
        return [said for said in self._said if said.vip == self.vip and said.time_ns >= since_ns]

    def announcers(self, since_ns: int) -> list[Host]:
        """Who announced the VIP, unasked."""
        ports = {said.port for said in self.heard(since_ns) if said.is_announcement}
        return [self._bench.lab.at_port(port) for port in sorted(ports)]

    def ask(self, step: str, expected: Sequence[Host], **facts: object) -> Step:
        """Asks who has the VIP until all expected hosts have spoken or time is up; compares all who spoke with them."""
        since_ns, patience = self._ask(), Patience(LATE_S)
        wanted = {host.port for host in expected}
        while not wanted <= {said.port for said in self.heard(since_ns)} and not patience.is_over:
            self._ask()
        return self.judge(step, expected, since_ns, **facts)

    def settle(self, expected: Sequence[Host]) -> None:
        """Asks until exactly these hosts speak; DataPlaneError when that takes too long."""
        wanted = {host.port for host in expected}
        patience = Patience(_SETTLE_S)
        while (found := {said.port for said in self.heard(self._ask())}) != wanted:
            if patience.is_over:
                raise DataPlaneError(f"answers for {self.vip} come from {sorted(found)}, not from {sorted(wanted)}")

    def judge(self, step: str, expected: Sequence[Host], since_ns: int, **facts: object) -> Step:
        """A step from all that was said since a time."""
        speakers = sorted({(said.port, said.mac) for said in self.heard(since_ns)})
        hosts = [(self._bench.lab.at_port(port).name, mac) for port, mac in speakers]
        return self._bench.compare(step, self.vip, expected, hosts, nothing_missed=self._capture.drops == 0, **facts)

    def _ask(self) -> int:
        """When it began to ask; all answers are there."""
        began_ns = time.time_ns()
        asker = self._bench.asker()
        for _ in range(_QUESTIONS):
            asker.send(build_question(asker.mac, self._bench.lab.client.address_like(self.vip), self.vip))
            time.sleep(_BETWEEN_S)
        time.sleep(ASK_WAIT_S)
        return began_ns
