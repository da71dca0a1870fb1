"""Programs that announce a VIP beside the agent, for as long as a test lasts."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from arpguard.addresses import Address
from arpguard_lab.peers.programs import holds
from arpguard_lab.topology import HostProcess

Program = TypeVar("Program", bound=HostProcess)
Begin: TypeAlias = Callable[[Program], Program]


@contextmanager
def announcers(vip: Address) -> Iterator[Begin]:
    """Starts programs; at the end it kills them, and takes away the VIP where they leave it on a node."""
    begun: list[HostProcess] = []

    def begin(program: Program) -> Program:
        begun.append(program)
        program.start()
        return program

    yield begin
    for program in begun:
        program.kill(signal.SIGKILL)
    for host in {program.host for program in begun}:
        if holds(host, vip):
            host.unbind(vip, "eth0")
