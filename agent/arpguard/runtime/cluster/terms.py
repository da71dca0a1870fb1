"""The terms of this node's voucher, as the kernel gets them."""

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from arpguard.config.model import VouchingConfig
from arpguard.core.backoff import Backoff
from arpguard.core.ownership.records import KernelTerm
from arpguard.core.vouching.profiles import Profile, profile_of
from arpguard.dataplane.processor import read_cpuinfo
from arpguard.errors import ArpguardError
from arpguard.kube.clustersecret import NoRightError
from arpguard.model import LinkTerm
from arpguard.runtime.cluster.here import Here
from arpguard.units import NS_PER_MS
from arpguard.wire.vouching import KEY_LEN, VouchTerm, term_key, term_number

log = logging.getLogger(__name__)

ReadSecret: TypeAlias = Callable[[str], Awaitable[bytes]]

RETRY_S, LONGEST_RETRY_S = 4.0, 60.0  # a trial of a voucher takes a minute besides


class Terms:
    """Writes them to the kernel, and reads them. `problem`: why the agent cannot read the cluster's secret.

    `lacks_right`: it may not, and the configuration does not ask for vouching.
    """

    def __init__(self, here: Here, read_secret: ReadSecret) -> None:
        self._here = here
        self._read_secret = read_secret
        self._secret: bytes | None = None
        self.problem = ""
        self.lacks_right = False
        self._is_logged = False

    async def learn_secret(self, name: str) -> None:
        """Reads the cluster's secret, and tries again until it can, ever more rarely."""
        backoff = Backoff(RETRY_S, LONGEST_RETRY_S, random.random)
        while self._secret is None:
            try:
                self._secret = await self._read_secret(name)
            except ArpguardError as error:
                self._note(error)
                await asyncio.sleep(backoff.next_s())
        self.problem, self.lacks_right = "", False

    def _note(self, error: ArpguardError) -> None:
        is_asked = self.config is not None and self.config.asked
        self.lacks_right = isinstance(error, NoRightError) and not is_asked
        self.problem = "" if self.lacks_right else str(error)
        if self.lacks_right and not self._is_logged:
            log.info("vouching: this node has no voucher: %s", error)
            self._is_logged = True  # once, also if the server is away for a while in between

    @property
    def ready(self) -> bool:
        """Whether the secret is known."""
        return self._secret is not None

    @property
    def config(self) -> VouchingConfig | None:
        """None: nodes do not vouch for each other."""
        return self._here.outlook.lease.vouching

    @property
    def profile(self) -> Profile:
        """The fastest that this node may have."""
        return profile_of(self.config.profile if self.config else None, read_cpuinfo())

    def key(self, term: VouchTerm) -> bytes:
        """The key of its frames. Without the secret it is one that no node has, so that the term has no effect."""
        return term_key(self._secret, term) if self._secret is not None else secrets.token_bytes(KEY_LEN)

    def set(self, term: VouchTerm) -> None:
        """Makes grants of this term bind this node, from now on."""
        ethertype = self._ethertype or self._here.kernel.vouched.ethertype  # the configuration may not be read yet
        self._here.kernel.vouched.take(self._of_links(term, term.d_ns - term.m_ns), ethertype)
        log.info("voucher: %s, d=%d ms", term.voucher, term.d_ns // NS_PER_MS)

    def clear(self) -> None:
        """Makes no node vouch for this one, from now on."""
        self._here.kernel.vouched.take(None, self._ethertype)
        log.info("voucher: none")

    def try_out(self, trial: VouchTerm | None) -> None:
        """Makes the kernel answer pings of this trial, while no node vouches for this one."""
        found = None if trial is None else self._of_links(trial, 0)
        self._here.kernel.vouched.try_out(found, self._ethertype)

    def read(self) -> KernelTerm:
        """What the kernel has."""
        number, grants = self._here.kernel.vouched.read()
        if not grants.binds(number):
            return KernelTerm(number)
        return KernelTerm(number, bound=True, fence_ns=grants.fence_ns, unheard=grants.is_unheard)

    def _of_links(self, term: VouchTerm, window_ns: int) -> LinkTerm:
        return LinkTerm(term_number(term.uuid), self.key(term), window_ns)

    @property
    def _ethertype(self) -> int:
        return self.config.ethertype if self.config else 0
