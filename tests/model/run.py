"""Checks the claim protocol (claim.pml) and vouching (vouch.pml) with Spin: every rule kept, and each broken in turn.

`make model` runs all; `run.py NAME ...` some; `run.py --quick` those that the tests run; `run.py --trace NAME` prints
how two come to answer (the processes of the first node come first). What each search covers is said with each:

- all states: breadth first and to the end. A trace is a shortest one, and none means that there is none at all, within
  the bounds that the flags say.
- all states, endless: depth first and to the end, for something that goes on for ever while no time passes.
- all of N steps: every run of at most so many steps.
- a sample: depth first for some minutes, in an order by chance, in a hash table of bits; states may be taken for
  others, and most of them are not reached. No trace means that none was found.

States of claim.pml that differ by the numbers of nodes and VIPs alone are searched once (symmetry.c), if the nodes may
do the same.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

CLAIM = Path(__file__).with_name("claim.pml")
VOUCH = Path(__file__).with_name("vouch.pml")
SYMMETRY = Path(__file__).with_name("symmetry.c")
MEMORY_MB = 6000
COMPILER = ("gcc", "-O1")
QUICK_COMPILER = ("clang", "-O0")  # in a tenth of the time
QUICK_TABLE = ("-w20",)  # of hashes: 8 MB to clear, not 128
COMPILE = ("-w", "-DNOREDUCE", "-DVECTORSZ=1024", f"-DMEMLIM={MEMORY_MB}")
EXHAUSTIVE = ("-DSAFETY", "-DBFS", "-DCOLLAPSE")
ENDLESS = ("-DNP", "-DCOLLAPSE")
SAMPLE = ("-DSAFETY", "-DBITSTATE", "-DP_RAND", "-DT_RAND")
SAMPLE_BITS = 33  # 1 GB
SAMPLE_DEPTH = 150  # steps of Spin
UNFINISHED = ("Search not completed", "max search depth too small")
MASKS = {"RESTART", "STRAY", "STRAY_CLAIM", "HANDOVER", "PARTS", "ANEW", "LOSE"}
ALL_FAULTS = ("RESTART=3", "STRAY=3", "STRAY_CLAIM=3", "HANDOVER=3")
CALM = ("RESTART=3", "CALM=3")
THREE_TWO_CALM = ("N=3", "V=2", "RESTART=7", "HANDOVER=7", "CALM=3")


class ModelError(Exception):
    """Spin or the compiler failed, or the search was not finished."""


@dataclass(frozen=True)
class Case:
    """`steps`: of the shortest trace that breaks an assertion; None: there is none.

    `depth`: of the runs that are searched, in steps, 0 for all. `minutes`: of a search that is a sample.
    `flags` with ENDLESS search for what goes on for ever while no time passes. Of these two `steps` only say whether
    there is a trace.
    """

    name: str
    what: str
    flags: tuple[str, ...]
    steps: int | None
    quick: bool = False
    depth: int = 0
    minutes: int = 0
    model: Path = CLAIM

    @property
    def value(self) -> dict[str, str]:
        """What is given as NAME=VALUE."""
        return dict(flag.split("=") for flag in self.flags if "=" in flag)

    @property
    def nodes(self) -> int:
        return int(self.value.get("N", "2" if self.model == CLAIM else "1"))

    @property
    def vips(self) -> int:
        return int(self.value.get("V", "1"))

    @property
    def symmetric(self) -> bool:
        """Whether all nodes may do the same, and nothing remembers one by its number."""
        masks = {value for name, value in self.value.items() if name in MASKS}
        alike = self.model == CLAIM and masks <= {"0", str((1 << self.nodes) - 1)}
        return alike and "ENDLESS" not in self.flags and not any(flag.startswith("SEEK_") for flag in self.flags)

    @property
    def expected(self) -> str:
        return self.told(self.steps)

    def told(self, steps: int | None) -> str:
        """What came of it, in a word or two."""
        if steps is not None:
            return "a loop" if "ENDLESS" in self.flags else "found" if self.minutes else f"{steps} steps"
        return "none found" if self.minutes else f"none in {self.depth} steps" if self.depth else "none"


@dataclass(frozen=True)
class Result:
    """`covers`: what was searched. `memory`: in MB."""

    steps: int | None
    states: int
    seconds: float
    memory: int
    covers: str
    trace: tuple[str, ...] = ()


SAFE = [
    Case("plain", "slow and lost answers, late watches, pauses, restarts", ("RESTART=3",), None, quick=True),
    Case("stray", "stray writes of both nodes, and hand-over, besides", ALL_FAULTS, None),
    Case("anew", "needless new epochs, besides all that", (*ALL_FAULTS, "ANEW=3"), None),
    Case("deleted", "claims deleted, let go, created again; hand-over", ("RESTART=3", "HANDOVER=3", "DELETE"), None),
    Case(
        "deleted-stray",
        "deleted claims; stray claim writes of one node",
        ("RESTART=1", "DELETE", "STRAY_CLAIM=1"),
        None,
    ),
    Case("parted", "parting leases of one and a half lengths", ("RESTART=3", "P=3"), None),
    Case(
        "parted-stray", "one node parts; stray renewals", ("RESTART=3", "P=3", "PARTS=1", "STRAY=3", "HANDOVER=1"), None
    ),
    Case("clock", "clocks stand still for as long as the margin", ("RESTART=3", "D=3", "M=1", "SKIP=1"), None),
    Case("lost", "heartbeats are deleted, again and again", ("RESTART=3", "LOSE=3"), None),
    Case(
        "lost-parted", "the heartbeat of a node that parts is deleted", ("RESTART=3", "LOSE=1", "P=3", "PARTS=1"), None
    ),
    Case("lost-stuck", "a heartbeat is deleted while requests to create it are stuck", ("LOSE=1", "STRAY=3"), None),
    Case(
        "create-at-once",
        "a missing heartbeat is created at once: what that wait is not for, unless nodes part",
        ("LOSE=1", "CREATE_AT_ONCE"),
        None,
    ),
    Case(
        "uninstall",
        "claims are taken away by force once no node has anything of them",
        ("RESTART=3", "HANDOVER=3", "DELETE", "UNINSTALL"),
        None,
    ),
    Case("uninstall-stray", "the same, with stray claim writes", ("STRAY_CLAIM=1", "DELETE", "UNINSTALL"), None),
    Case("no-confirm", "an entry without a renewal after the claim: what CONFIRM is not for", ("NO_CONFIRM",), None),
]
BROKEN = [
    Case("no-revocation", "a claim is taken because its holder is silent", ("NO_REVOCATION",), 13, quick=True),
    Case("no-epoch", "a claim is taken because its holder was revoked", ("NO_EPOCH",), 15, quick=True),
    Case("late-fence", "the fence counts from the answer", ("LATE_FENCE",), 14, quick=True),
    Case(
        "bad-release",
        "the claim is released first, then the kernel cleared",
        ("BAD_RELEASE", "HANDOVER=1"),
        12,
        quick=True,
    ),
    Case("no-cas", "answers because a read names it", ("NO_CAS", "HANDOVER=1", "STRAY_CLAIM=1"), 14, quick=True),
    Case("thin-margin", "a clock stands still for longer than the margin", ("D=3", "M=1", "SKIP=2"), 15, quick=True),
    Case("early", "revocation one tick early", ("EARLY",), 13),
    Case("bad-letgo", "the finalizer is taken off first, then the kernel cleared", ("BAD_LETGO", "DELETE"), 13),
    Case("ask-early", "claims with an epoch that no renewal has confirmed", ("ASK_EARLY",), 17),
    Case("keep-old", "a restart keeps entries of an old epoch", ("KEEP_OLD", "RESTART=1", "STRAY=1"), 18),
    Case("keep-revoked", "entries are kept though the renewal came too late", ("KEEP_REVOKED",), 17),
    Case("no-clamp", "a shorter lease is published before the kernel has it", ("NO_CLAMP", "P=3"), 16),
    Case(
        "flat-margin", "a parting lease with the margin of an ordinary one", ("FLAT_MARGIN", "P=4", "M=1", "SKIP=1"), 16
    ),
    Case("take-missing", "claims are void when the heartbeat is missing", ("TAKE_MISSING", "LOSE=1"), 11),
    Case(
        "create-soon",
        "a missing heartbeat is created after its own lease, not the longest",
        ("CREATE_SOON", "LOSE=1", "P=5", "PARTS=1"),
        17,
    ),
    Case("no-settle", "a recreated heartbeat makes claims void at once", ("NO_SETTLE", "LOSE=1", "STRAY=2"), 20),
    Case("forced", "claims are taken away by force while a node has them", ("FORCED", "DELETE", "UNINSTALL"), 11),
]
HOLES = [
    Case(
        "lost-parted-stuck",
        "the heartbeat of a parted node is deleted while a request to create it is stuck",
        ("LOSE=1", "P=3", "PARTS=1", "STRAY=2"),
        23,
    ),
]
CURES = [
    Case(
        "cure",
        "a recreated heartbeat voids after the longest lease",
        (*HOLES[0].flags, "SETTLE_LONGEST"),
        None,
    ),
]
REACHED = [
    Case("moves", "a VIP moves", ("SEEK_MOVE",), 14),
    Case("returns", "a revoked node answers again", ("SEEK_RETURN",), 12),
    Case("keeps", "a restarted agent renews what its kernel kept", ("SEEK_KEPT", "RESTART=1"), 9),
    Case("parts", "a parting lease lasts longer", ("SEEK_PARTED", "P=4"), 5),
    Case("creates", "a claim that was let go is created again", ("SEEK_CREATED", "DELETE"), 11),
]
MORE = [
    Case("two-vips", "two VIPs: slow and lost answers, late watches, pauses, restarts", ("V=2", "RESTART=3"), None),
    Case("three-nodes", "three nodes: the same", ("N=3", "RESTART=7"), None),
    Case("three-two", "three nodes and two VIPs: the same", ("N=3", "V=2", "RESTART=7"), None, depth=16),
    Case(
        "three-two-stray",
        "three nodes and two VIPs: stray writes of all nodes, and hand-over, besides",
        ("N=3", "V=2", "RESTART=7", "STRAY=7", "STRAY_CLAIM=7", "HANDOVER=7"),
        None,
        depth=12,
    ),
    Case("three-nodes-short", "the first steps of `three-nodes`", ("N=3", "RESTART=7"), None, quick=True, depth=12),
    Case("two-vips-short", "the first steps of `two-vips`", ("V=2", "RESTART=3"), None, quick=True, depth=14),
    Case(
        "three-two-no-revocation",
        "three nodes and two VIPs: `no-revocation`",
        ("N=3", "V=2", "NO_REVOCATION"),
        13,
    ),
]
PROGRESS = [
    Case("calm", "slow and lost answers, late watches, pauses, restarts", CALM, None, quick=True),
    Case("calm-endless", "as `calm`: no end of steps within one tick", (*CALM, "ENDLESS"), None),
    Case("calm-deleted", "deleted claims, and hand-over, besides", (*CALM, "HANDOVER=3", "DELETE"), None),
    Case("calm-parted", "parting leases of one and a half lengths, besides", ("RESTART=3", "P=3", "CALM=4"), None),
    Case(
        "calm-clock",
        "clocks stand still for as long as the margin, besides",
        ("RESTART=3", "D=3", "M=1", "SKIP=1", "CALM=4"),
        None,
    ),
    Case("calm-lost", "heartbeats are deleted, besides", ("RESTART=3", "LOSE=3", "CALM=5"), None),
    Case("calm-three-two", "three nodes and two VIPs: as `calm`, and hand-over", THREE_TWO_CALM, None, minutes=3),
]
STUCK = [
    Case("too-soon", "nothing: they have a tick less", ("RESTART=3", "CALM=2"), 12),
    Case("never-revoked", "no node revokes a silent one", (*CALM, "NEVER_REVOKED"), 16, quick=True),
    Case("keeps-idle", "a node keeps claims that its kernel has nothing of", (*CALM, "KEEPS_IDLE"), 31),
    Case("never-let-go", "only its holder takes the finalizer off", (*CALM, "DELETE", "NEVER_LET_GO"), 18),
    Case("never-rests", "a node renews again as soon as it has renewed", (*CALM, "ENDLESS", "NEVER_RESTS"), 1),
    Case(
        "three-two-never-revoked",
        "three nodes and two VIPs: `never-revoked`",
        (*THREE_TWO_CALM, "NEVER_REVOKED"),
        1,
        minutes=3,
    ),
]
# Vouching. Names begin with "v-".
LONG_LEASE = ("D=2", "LONG=4", "LD=1")
CHAIN = (*LONG_LEASE, "CHAIN", "WRESTART")
V_FAULTS = ("RESTART", "WRESTART", "STRAY")
CLOCKS = ("D=4", "M=2", "LD=2", "LM=1", "STAND=1")
LONG_CLOCKS = ("D=2", "M=1", "LONG=4", "LD=2", "LM=1", "STAND=1")
RING = ("RING", "D=2", "LD=1", "CHAIN")
MUTUAL = ("N=2", "T=1", "TAME", *RING)
OF_THREE = ("N=3", "T=1", "TAME", *RING)
LOST = (*CHAIN, "LOSE", "STRAY")
QUIET = (*CHAIN, "QUIET")
QUIET_CALM = ("CALM=1", "D=3", "LONG=6", "CHAIN", "WRESTART", "QUIET")
Vouch = partial(Case, model=VOUCH)

V_SAFE = [
    Vouch("v-plain", "restarts, stray writes, hand-over, needless new epochs", (*V_FAULTS, "HANDOVER", "ANEW"), None),
    Vouch("v-three-terms", "three terms alive at once", ("T=3", "D=3", "LD=1", *V_FAULTS), None),
    Vouch("v-two-vouchers", "a node changes between two vouchers", ("W=2", "D=3", "LD=1", *V_FAULTS), None),
    Vouch("v-clock", "the node's clock stands still for as long as the margins", (*CLOCKS, *V_FAULTS), None),
    Vouch(
        "v-carry-fence",
        "a new term begins with the fence of the one before",
        ("D=3", "LD=1", "CARRY_VF", *V_FAULTS),
        None,
    ),
    Vouch(
        "v-born-bound", "the kernel is bound as soon as it has the term", ("D=3", "LD=1", "BORN_BOUND", *V_FAULTS), None
    ),
    Vouch(
        "v-late-set",
        "an agent that was replaced sets the term late, by compare-and-set",
        ("D=3", "LD=1", "RESTART", "LATE_WRITE", "LATE_CAS"),
        None,
    ),
    Vouch(
        "v-long-named", "the long lease from the naming on, and no chain", (*LONG_LEASE, "LONG_NAMED", *V_FAULTS), None
    ),
    Vouch(
        "v-chain",
        "long lease and chain: vouchers and their nodes die, restart, lose their epoch",
        CHAIN,
        None,
        quick=True,
    ),
    Vouch(
        "v-chain-faults",
        "restarts, stray writes, hand-over, needless new epochs, besides",
        (*CHAIN, "RESTART", "STRAY", "HANDOVER", "ANEW"),
        None,
    ),
    Vouch(
        "v-right",
        "the same, and no claims: with an epoch the right to answer ends, whether or not there is an entry",
        (*CHAIN, "RESTART", "STRAY", "ANEW", "RIGHTS"),
        None,
    ),
    Vouch(
        "v-chain-longer",
        "longer leases; restarts and stray writes",
        ("D=4", "LONG=6", "LD=2", "CHAIN", *V_FAULTS),
        None,
    ),
    Vouch("v-chain-two-vouchers", "the chain with two vouchers", ("W=2", *CHAIN), None),
    Vouch(
        "v-chain-clock",
        "the node's clock stands still for as long as the margins",
        (*LONG_CLOCKS, "LONGM=2", "CHAIN", "WRESTART"),
        None,
    ),
    Vouch("v-parted", "parting leases, long leases and chain", ("P=3", "PARTS", *CHAIN, "RESTART", "STRAY"), None),
    Vouch("v-lost", "people delete the heartbeat, and requests to create it are stuck", LOST, None),
    Vouch(
        "v-lost-released",
        "the same, and the node releases what it claimed in an epoch that is over",
        (*LOST, "LETS_GO"),
        None,
    ),
    Vouch("v-two-vips", "two VIPs of one node", ("V=2", "D=2", "LONG=3", "LD=1", "CHAIN", *V_FAULTS), None),
    Vouch(
        "v-quiet",
        "`v-chain`, and quiet renewals: a node that revokes another one may have read its heartbeat before, or not",
        QUIET,
        None,
        quick=True,
    ),
    Vouch(
        "v-quiet-faults",
        "the same; and restarts, stray writes, hand-over, needless new epochs",
        (*QUIET, "RESTART", "STRAY", "HANDOVER", "ANEW"),
        None,
    ),
    Vouch(
        "v-quiet-lost", "`v-quiet`; and restarts, and people delete the heartbeat", (*QUIET, "RESTART", "LOSE"), None
    ),
]
V_MUTUAL = [
    Vouch("v-mutual", "two nodes vouch for each other; writes are applied at once", MUTUAL, None),
    Vouch("v-mutual-quiet", "the same, and quiet renewals", (*MUTUAL, "QUIET"), None),
    Vouch(
        "v-mutual-faults",
        "`v-mutual`, and restarts of agents and vouchers",
        (*MUTUAL, "RESTART", "WRESTART"),
        None,
        depth=16,
    ),
    Vouch(
        "v-mutual-slow",
        "two nodes vouch for each other; writes take any time and may be lost, two terms",
        ("N=2", *RING),
        None,
        depth=19,
    ),
    Vouch("v-ring", "three nodes in a ring; writes are applied at once", OF_THREE, None, depth=13),
    Vouch(
        "v-mutual-no-right",
        "a voucher grants whatever its own fences say",
        (*MUTUAL, "NO_RIGHT"),
        13,
        quick=True,
    ),
    Vouch(
        "v-mutual-api-right",
        "it grants until its API fence, though its own voucher is silent",
        (*MUTUAL, "API_RIGHT"),
        25,
    ),
    Vouch("v-mutual-looks-early", "it looks at its own fences before the pong comes", (*MUTUAL, "LOOKS_EARLY"), 17),
    Vouch(
        "v-mutual-regrant",
        "it keeps granting in the same terms when it has another epoch",
        (*MUTUAL, "REGRANT"),
        16,
    ),
    Vouch("v-ring-no-right", "three nodes: `v-mutual-no-right`", (*OF_THREE, "NO_RIGHT"), 13),
]
V_BROKEN = [
    Vouch("v-no-fence", "the kernel does not look at the voucher's fence", ("NO_VFENCE",), 15),
    Vouch("v-no-bound", "a voucher revokes without having seen that the kernel is bound", ("NO_BOUND",), 9, quick=True),
    Vouch("v-early", "it revokes one tick before d", ("EARLY_V",), 14, quick=True),
    Vouch("v-count-from-ping", "it counts d from its ping, not from the pong", ("COUNT_FROM_PING",), 14),
    Vouch("v-grants-on", "it grants after it has decided", ("GRANT_AFTER",), 17, quick=True),
    Vouch(
        "v-late-fence",
        "the kernel counts from when the grant came, not from its own stamp",
        ("LATE_FENCE_V",),
        15,
        quick=True,
    ),
    Vouch(
        "v-unbinds-early",
        "the kernel is un-bound when the renewal that drops the voucher is sent",
        ("UNBIND_SENT",),
        16,
        quick=True,
    ),
    Vouch(
        "v-unbinds-unsure",
        "it is un-bound while the outcome of that renewal is unknown",
        ("STRAY", "UNBIND_UNKNOWN"),
        17,
    ),
    Vouch(
        "v-restart-unbinds",
        "a restart of the agent, or a map that was lost, un-binds the kernel",
        ("RESTART", "RESTART_UNBINDS"),
        16,
    ),
    Vouch("v-term-first", "a node that begins again takes the term away before the fence", ("ANEW", "TERM_FIRST"), 16),
    Vouch(
        "v-binds-early", "the kernel has the term before the heartbeat is known to name it", ("STRAY", "BIND_FIRST"), 19
    ),
    Vouch("v-no-reread", "after a conflict a voucher replaces whatever is there", ("NO_REREAD",), 19),
    Vouch("v-no-version", "a revocation names no version", ("STRAY", "BLIND_REVOKE"), 20),
    Vouch("v-term-again", "a term is named again", ("REUSE_TERM",), 21),
    Vouch("v-bound-for-all", "that the kernel was bound in one term counts for the next", ("CARRY_BOUND",), 20),
    Vouch("v-other-term", "the kernel accepts grants of another term", ("W=2", "NO_TERM_CHECK"), 20),
    Vouch("v-old-grants", "a restarted voucher grants in a term from before", ("WRESTART", "STRAY", "OLD_GRANTS"), 20),
    Vouch("v-old-revokes", "a restarted voucher revokes in a term from before", ("WRESTART", "OLD_REVOKES"), 15),
    Vouch("v-late-write", "an agent that was replaced still writes the kernel's term", ("RESTART", "LATE_WRITE"), 18),
    Vouch("v-thin-margin", "the node's clock stands still for longer than m", ("M=3", "LM=1", "STAND=2"), 15),
    Vouch("v-no-margin", "no m", ("M=2", "STAND=1"), 15),
    Vouch("v-flat-margin", "the long lease with the margin of the short one", (*LONG_CLOCKS, "LONGM=1", "SAY"), 20),
    Vouch(
        "v-no-cut", "a shorter lease is sent before the kernel's fence is cut to it", (*LONG_LEASE, "SAY", "NO_CUT"), 20
    ),
    Vouch(
        "v-short-wait", "others wait for D, whatever the heartbeat publishes", (*LONG_LEASE, "SAY", "SHORT_WAIT"), 18
    ),
    Vouch(
        "v-chain-unbound",
        'the chain starts from a heartbeat that names a voucher but does not say "bound"',
        ("CHAIN", "WRESTART", "CHAIN_UNBOUND"),
        7,
        quick=True,
    ),
    Vouch(
        "v-says-early", 'a heartbeat says "bound" as soon as it names a voucher', ("CHAIN", "WRESTART", "SAYS_EARLY"), 7
    ),
    Vouch("v-chain-early", "the chain starts one tick before d", ("CHAIN", "WRESTART", "CHAIN_SOON"), 14, quick=True),
    Vouch("v-chain-no-version", "a revocation by the chain names no version", ("CHAIN", "WRESTART", "CHAIN_BLIND"), 21),
    Vouch(
        "v-chain-grants-on",
        "a voucher grants after its own epoch or instance is over",
        ("CHAIN", "WRESTART", "OLD_GRANTS"),
        16,
        quick=True,
    ),
    Vouch(
        "v-parts-swapped",
        "an agent that parts puts programs in place that know no voucher, before its heartbeat has dropped the voucher",
        (*LONG_LEASE, "P=4", "PARTS", "PART_SWAPS"),
        15,
    ),
    Vouch(
        "v-parts-uncut",
        "a parted node publishes D again before the kernel's fence is cut to it",
        ("D=2", "P=4", "LD=1", "PARTS", "NO_CUT"),
        9,
    ),
    Vouch(
        "v-settles-early",
        "a recreated heartbeat voids claims after D, not after the longest lease",
        (*LONG_LEASE, "SAY", "LOSE", "STRAY", "SETTLE_SHORT"),
        19,
    ),
    Vouch(
        "v-quiet-lease-shown",
        "a lease counts from the last version that a watch showed, though a read has shown a newer one",
        (*LONG_LEASE, "SAY", "QUIET", "LEASE_SHOWN"),
        24,
        quick=True,
    ),
    Vouch(
        "v-quiet-no-version",
        "a revocation of a bound node after its lease names no version",
        (*LONG_LEASE, "SAY", "QUIET", "LEASE_BLIND"),
        22,
    ),
]
V_PROGRESS = [
    Vouch("v-calm", "slow and lost answers, restarts of vouchers", ("CALM=1", "WRESTART"), None),
    Vouch(
        "v-calm-chain", "the same, with long lease and chain", ("CALM=1", "D=3", "LONG=4", "CHAIN", "WRESTART"), None
    ),
    Vouch("v-calm-quiet", "the same, with longer leases, and quiet renewals", QUIET_CALM, None),
]
V_STUCK = [
    Vouch("v-too-soon", "nothing: they have a tick less", ("CALM=1", "SLACK=1"), 7, quick=True),
    Vouch("v-keeps-term", "the kernel keeps the term that it has", ("CALM=2", "KEEP_KTERM"), 21),
    Vouch("v-never-unbinds", "a node keeps naming a voucher that is dead", ("CALM=2", "NO_UNBIND"), 21),
    Vouch(
        "v-quiet-decided-unread",
        "a voucher that has decided does not read the heartbeat before it revokes",
        (*QUIET_CALM, "DECIDED_UNREAD"),
        20,
    ),
    Vouch(
        "v-quiet-chain-unread",
        "a node that follows the chain does not read the heartbeat before it revokes",
        (*QUIET_CALM, "CHAIN_UNREAD"),
        17,
    ),
    Vouch(
        "v-quiet-unswept",
        "no node reads a bound node's heartbeat to find out whether its lease is over",
        (*QUIET_CALM, "UNSWEPT"),
        24,
    ),
    Vouch(
        "v-quiet-swept-once",
        "they read it at the end of the lease only, and not after half of it",
        (*QUIET_CALM, "SWEPT_ONCE"),
        25,
    ),
]
V_REACHED = [
    Vouch("v-revokes-early", "a revocation while the API's fence lies ahead", ("SEEK_EARLY",), 15),
    Vouch("v-binds-again", "a node that was revoked early answers again, bound", ("D=3", "LD=1", "SEEK_REBOUND"), 24),
    Vouch("v-revokes-newer", "a voucher revokes a version newer than the one it decided by", ("SEEK_RETRY",), 16),
    Vouch(
        "v-chains",
        "a revocation by the chain while the API's fence lies ahead",
        ("CHAIN", "WRESTART", "SEEK_CHAIN"),
        14,
    ),
    Vouch("v-lasts", "a bound node's right lasts longer than D", (*LONG_LEASE, "SAY", "SEEK_LONG"), 11),
    Vouch("v-parts", "a parted node's right lasts longer than D", ("D=2", "P=4", "LD=1", "PARTS", "SEEK_PARTED"), 3),
    Vouch("v-takes-lost", "others take what a deleted heartbeat held", (*LOST, "SEEK_REMADE"), 10),
    Vouch(
        "v-misses",
        "a bound node answers though its lease is over by what others saw",
        (*LONG_LEASE, "SAY", "QUIET", "SEEK_MISSED"),
        21,
    ),
    Vouch("v-both", "two nodes answer, each bound to the other", (*MUTUAL, "SEEK_BOTH"), 14),
]
VOUCHING = V_SAFE + V_MUTUAL + V_BROKEN + V_PROGRESS + V_STUCK + V_REACHED
CASES = SAFE + BROKEN + HOLES + CURES + MORE + PROGRESS + STUCK + REACHED + VOUCHING


def search(case: Case, *, depth: int = 0, symmetry: bool = True) -> Result:
    """`depth`: how far to search, in steps of Spin from before the start. Raises ModelError when there is more."""
    with tempfile.TemporaryDirectory(prefix="arpguard-model-") as folder:
        build, limits = _method(case, depth, folder)
        _build(case, case.flags, build, folder, symmetry=symmetry and case.symmetric)
        began = time.monotonic()
        out = _call(["./pan", "-n", *limits, *(QUICK_TABLE if case.quick else [])], folder)
        seconds = time.monotonic() - began
        trail = Path(folder, f"{case.model.name}.trail")
        states = re.search(r"(\d+) states, stored", out)
        may_end = bool(case.depth or case.minutes)
        if states is None or (not trail.exists() and not may_end and any(sign in out for sign in UNFINISHED)):
            raise ModelError(f"{case.name}: the search was not finished\n{out}")
        covers, memory = _covers(case, out), _memory(out)
        if not trail.exists():
            return Result(None, int(states[1]), seconds, memory, covers)
        lines = _call(["spin", "-k", str(trail), "-t", "-p", *_defines(case.flags), str(case.model)], folder)
        trace = tuple(_steps(case, lines))
        return Result(len(trace), int(states[1]), seconds, memory, covers, trace)


def _method(case: Case, depth: int, folder: str) -> tuple[Sequence[str], list[str]]:
    """How to compile the search, and with which limits to run it."""
    if "ENDLESS" in case.flags:
        return ENDLESS, ["-l", "-m10000000"]
    if case.minutes:
        return SAMPLE, [f"-w{SAMPLE_BITS}", f"-m{SAMPLE_DEPTH}", f"-Q{case.minutes}", "-RS1"]
    deepest = depth or (case.depth and _start(case, folder) + case.depth)
    return EXHAUSTIVE, [f"-m{deepest}"] if deepest else []


def _start(case: Case, folder: str) -> int:
    """How many steps of Spin there are before the first one of a node."""
    _build(case, (*case.flags, "SEEK_START"), EXHAUSTIVE, folder, symmetry=False)
    out = _call(["./pan", "-n"], folder)
    Path(folder, f"{case.model.name}.trail").unlink()
    return int(re.search(r"depth reached (\d+), errors: 1", out)[1])


def _covers(case: Case, out: str) -> str:
    if case.depth:
        return f"all of {case.depth} steps"
    if not case.minutes:
        return "all states"
    factor = re.search(r"hash factor: ([\d.e+]+)", out)
    return f"a sample, {case.minutes} min, 2^{SAMPLE_BITS} bits, hash factor {factor[1] if factor else 'unknown'}"


def _memory(out: str) -> int:
    return round(float(re.search(r"([\d.]+)\s+total actual memory usage", out)[1]))


def _build(case: Case, flags: Sequence[str], build: Sequence[str], folder: str, *, symmetry: bool) -> None:
    _call(["spin", "-a", *_defines(flags), str(case.model)], folder)
    if symmetry:
        _look_up_alike(case, Path(folder))
    _call([*(QUICK_COMPILER if case.quick else COMPILER), *COMPILE, *build, "-o", "pan", "pan.c"], folder)


def _defines(flags: Sequence[str]) -> list[str]:
    return [f"-D{flag}" for flag in flags]


def _look_up_alike(case: Case, folder: Path) -> None:
    """Has pan.c look states up by symmetry.c."""
    pan = folder / "pan.c"
    text, found = re.subn(r"\b([bh]_store)\(\(char \*\)&now, vsize\)", r"as_first(\1)", pan.read_text())
    if not found:
        raise ModelError("this version of Spin stores states in another way than symmetry.c knows")
    lists = {"N": "OF_NODE", "N * V": "OF_BOTH", "V": "OF_VIP"}
    names: dict[str, list[str]] = {name: [] for name in (*lists.values(), "NAMES")}
    kept = re.search(r"typedef struct State \{(.*?)\} State;", (folder / "pan.h").read_text(), re.DOTALL)[1]
    for kind, declared in re.findall(r"^(bool|byte|NODE) ([^;]*\]).*;", case.model.read_text(), re.MULTILINE):
        for name, size in re.findall(r"(\w+)\[([^]]+)\]", declared):
            if re.search(rf"\b{name}\[", kept):
                names["NAMES" if kind == "NODE" else lists[size]].append(f"IS({name})")
    defined = {**{name: " ".join(uses) for name, uses in names.items()}, "N": case.nodes, "V": case.vips}
    head = "".join(f"#undef {name}\n#define {name} {value}\n" for name, value in defined.items())
    pan.write_text(f"int as_first(int (*)(char *, int));\n{text}\n{head}{SYMMETRY.read_text()}")


def _call(command: Sequence[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not done.stdout:
        raise ModelError(f"{command[0]}: {done.stderr}")
    return done.stdout


def _steps(case: Case, lines: str) -> Iterator[str]:
    """One line for each step after the start: which process does what."""
    source = case.model.read_text().splitlines()
    last = ""
    for step, number, name, line in re.findall(
        r"^\s*(\d+):\s+proc +(\d+) \(([A-Z]\w*):\d+\) \S+:(\d+) ", lines, re.MULTILINE
    ):
        if step != last:
            last = step
            yield f"{number:>4} {name:10} {source[int(line) - 1].strip()}"


def wrong(case: Case, result: Result) -> str:
    """What is not as expected; empty if all is."""
    found = case.told(result.steps)
    return "" if found == case.expected else f"{case.name}: {found}, expected {case.expected}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trace", action="store_true", help="print the steps")
    parser.add_argument("--jobs", type=int, default=1, help=f"searches at a time, of {MEMORY_MB} MB at most each")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(arguments)
    chosen = [case for case in CASES if case.name in given.names] if given.names else CASES
    if given.quick:
        chosen = [case for case in chosen if case.quick]
    failures = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for case, result in zip(chosen, pool.map(search, chosen), strict=True):
            figures = f"{result.states:>11,} states {result.memory:>5,} MB {result.seconds:7.1f} s"
            told = f"{case.name:23} {case.told(result.steps):16} {figures}  {result.covers}: {' '.join(case.flags)}"
            print(told, flush=True)
            if given.trace:
                print("\n".join(result.trace))
            failures += [wrong(case, result)] if wrong(case, result) else []
    print("\n".join(failures) or "all as expected")
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
