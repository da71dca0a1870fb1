"""What the kernel knows of this node's voucher: the term, on guarded links and in the control value; and grants."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from arpguard.dataplane.layout import MAX_VOUCHING
from arpguard.dataplane.maps import VouchingTable, read_grants
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError
from arpguard.model import Grants, Link, LinkTerm, NodeState
from arpguard.runtime.kernel.control import Control

if TYPE_CHECKING:
    from arpguard.runtime.voucher.process import VoucherProcess


class VouchingMaps:
    """The `vouching` map (`table`), and those with this node's fences: `control` and `grants`.

    `lock`: as in VoucherProcess.
    """

    def __init__(self, vouching: Fd, control: Fd, grants: Fd, lock: Fd) -> None:
        self.table = VouchingTable(vouching)
        self._control = control
        self._grants = grants
        self._lock = lock

    def grants(self) -> Grants:
        """What programs have of the voucher."""
        return read_grants(self._grants)

    def start_voucher(self, ethertype: int, *trace: str) -> "VoucherProcess":
        """Starts the process in which this node vouches for others, for as long as its own fences allow (V16).

        `trace`: `TraceFile.words`, if it is to be traced.
        """
        from arpguard.runtime.voucher.process import VoucherProcess  # noqa: PLC0415 - for those that vouch

        return VoucherProcess(ethertype, self._lock, self._control, self._grants, trace=trace)


class TermWriter:
    """The only writer of the `vouching` map, which has the same term on all guarded links, or none.

    In a term that counts, grants bind this node. The other kind is a trial: the kernel answers pings, without any other
    effect. `problem`: why the kernel has another one than it should, which every pass tries to change; a kernel
    that is bound to a term in which no node grants any more is silent meanwhile. `ethertype`: of frames of vouching; 0:
    the kernel knows of none.
    """

    def __init__(self, control: Control, state: NodeState, maps: VouchingMaps) -> None:
        self._control = control
        self._state = state
        self.maps = maps
        self._term: LinkTerm | None = None
        self._counts = False
        self.ethertype = 0
        self.problem = ""

    def adopt(self) -> None:
        """Keeps the term that the last agent set."""
        control = self._control.read()
        number = control.term if control else 0
        self._term = next((term for term in self.maps.table.read().values() if term.number == number), None)
        self._counts = number != 0
        self.ethertype = control.ethertype if control else 0

    def take(self, term: LinkTerm | None, ethertype: int) -> None:
        """From now on this term counts, or none does; frames of it have this EtherType.

        The kernel has it when this returns, unless there is a `problem`.
        """
        self._term, self._counts, self.ethertype = term, term is not None, ethertype
        self._bring(self._state.links)

    def try_out(self, trial: LinkTerm | None, ethertype: int) -> None:
        """Answers pings of a trial, or of none, unless a term counts."""
        if not self._counts and (trial, ethertype) != (self._term, self.ethertype):
            self._term, self.ethertype = trial, ethertype
            self._bring(self._state.links)

    def follow(self, links: Iterable[Link]) -> None:
        """Other links may be guarded now, or other programs may have changed the map; retries refused writes."""
        if self.problem:
            self._bring(links)
            return
        try:
            self.maps.table.write(self._on(links))
        except DataPlaneError as error:
            self._refused(error)

    def keep(self) -> None:
        """Retries refused writes."""
        if self.problem:
            self._bring(self._state.links)

    def read(self) -> tuple[int, Grants]:
        """The number of the term that counts, 0 for none, and what programs have of the voucher."""
        control = self._control.read()
        return control.term if control else 0, self.maps.grants()

    def _bring(self, links: Iterable[Link]) -> None:
        number = self._term.number if self._term is not None and self._counts else 0
        try:
            self._control.take_term(number, self.ethertype, self.maps.table, self._on(links))
        except DataPlaneError as error:
            self._refused(error)
        else:
            self.problem = ""

    def _refused(self, error: DataPlaneError) -> None:
        self.problem = f"voucher: the kernel did not accept this node's new voucher; trying again: {error}"

    def _on(self, links: Iterable[Link]) -> dict[int, LinkTerm]:
        term = self._term
        return {} if term is None else {link.ifindex: term for link in islice(links, MAX_VOUCHING)}
