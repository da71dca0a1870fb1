"""Random maps, and the comparison of the programs with tests/reference: verdicts, reasons, counters, and every byte.

The seed is printed with every failure; ARPGUARD_SEED repeats a run.
"""

import random
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network

from arpguard.addresses import ZERO_MAC, Address, MacAddress, Network
from arpguard.clock import boot_ns
from arpguard.dataplane.explain import Trial
from arpguard.model import ALL_IPV4, EntryKey, Grants, LinkTerm, NodeControl, RangeKey, VipEntry
from arpguard.verdict import VIP_KINDS, Hook, Kind, Mode, Reason, Vouched
from reference import Response, Situation, respond_egress, respond_ingress
from support.chance import RUNS, SEED
from support.frames import random_vouching
from support.frames.builders import EPOCH, GUARD, HOUR_NS, OWNER, PRIMARY_IP, patched
from support.frames.nd_builders import PRIMARY_IP6
from support.frames.vouch_builders import STAMP_AT, payload_of, read_back, resealed
from support.programs.prog_run import (
    DROPPED,
    HIDE,
    LO,
    PASS,
    SEND_BACK,
    Count,
    Outcome,
    Plane,
    assert_counted,
    assert_outcome,
    hexdump,
)

# Fewer would not surely have the rarest reason, which has about one frame of a thousand.
BATCHES, FRAMES_PER_BATCH = max(100, RUNS), 150
VOUCHING_PER_BATCH = 15  # and so many of vouching among them

VIRTUAL_MAC = MacAddress.parse("00:00:5e:00:01:07")


def a_random_entry(rng: random.Random, primary: Address) -> VipEntry:
    return VipEntry(
        kind=rng.choice([*VIP_KINDS, Kind.OWNED, Kind.OWNED]),
        mode=rng.choice([Mode.INHERIT, Mode.INHERIT, Mode.ENFORCE, Mode.OBSERVE]),
        unfenced=rng.random() < 0.3,
        epoch=rng.choice([EPOCH, EPOCH, EPOCH, EPOCH - 1, 0]),
        link_mac=rng.choice([GUARD, GUARD, GUARD, ZERO_MAC]),
        answer_mac=rng.choice([GUARD, GUARD, VIRTUAL_MAC, ZERO_MAC]),
        owner_mac=rng.choice([ZERO_MAC, OWNER]),
        primary=rng.choice([primary, None]),
    )


def a_random_control(rng: random.Random, now_ns: int) -> NodeControl:
    """Fences far enough from now that no clock reading of this batch comes near."""
    fence_ns = rng.choice([now_ns + HOUR_NS] * 4 + [0, now_ns - 1, now_ns + 5 * HOUR_NS, 2**64 - 1])
    mode = rng.choice([Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE])
    strictest = rng.choice([Mode.ENFORCE, mode])
    return NodeControl(mode, 1, strictest, epoch=EPOCH, fence_ns=fence_ns, lease_ns=2 * HOUR_NS)


@dataclass
class Tallies:
    """How often what happened."""

    actions: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    vouched: Counter[Vouched] = field(default_factory=Counter)


Maps = tuple[Mapping[Address, VipEntry], NodeControl]

# Around the VIPs and the other addresses of the random frames.
RANGES = {
    4: ("192.0.2.0/24", "192.0.2.96/29", "192.0.2.100/32", "192.0.2.55/32", "10.0.0.0/8", "0.0.0.0/0"),
    6: ("2001:db8::/64", "2001:db8::100/120", "2001:db8::55/128", "fd00::/8", "2000::/3"),
}
MAX_RANGES = 8  # of tests/fuzz/frames/programs.h
PRIMARIES = {4: PRIMARY_IP, 6: PRIMARY_IP6}


def with_random_ranges(rng: random.Random, control: NodeControl) -> tuple[NodeControl, dict[Network, VipEntry]]:
    """Some closed ranges, and open ones in them, the link's own address among them; and the control value for these."""
    if rng.random() < 0.3:
        return control, {}
    ranges: dict[Network, VipEntry] = {ip_network(own): VipEntry(Kind.OPEN) for own in PRIMARIES.values()}
    for version, networks in RANGES.items():
        for text in networks:
            if rng.random() < 0.5:
                primary = rng.choice([PRIMARIES[version], None])
                kind = rng.choice([Kind.CLOSED, Kind.CLOSED, Kind.OPEN])
                mode = rng.choice([Mode.INHERIT, Mode.INHERIT, Mode.ENFORCE, Mode.OBSERVE])
                ranges[ip_network(text)] = VipEntry(
                    kind, mode, link_mac=rng.choice([GUARD] * 4 + [OWNER]), primary=primary
                )
    control = replace(control, vips4=ALL_IPV4)
    control = replace(control, strictest6=control.strictest6 or rng.choice([Mode.ENFORCE, Mode.OBSERVE]))
    return replace(control, closed=True), dict(list(ranges.items())[:MAX_RANGES])


def compare(
    plane: Plane,
    hook: Hook,
    maps: Callable[[random.Random, int], Maps],
    stimulus: Callable[[random.Random], bytes],
    batches: int = BATCHES,
) -> Tallies:
    """Runs frames through the program of a hook, its twin and the model; each batch of them with other maps."""
    rng = random.Random(f"{SEED} {hook.name}")
    tallies = Tallies()
    for number in range(batches):
        try:
            now_ns = boot_ns()
            frames = [stimulus(rng) for _ in range(FRAMES_PER_BATCH)]
            frames += [random_vouching.a_stimulus(rng, now_ns) for _ in range(VOUCHING_PER_BATCH)]
            rng.shuffle(frames)
            entries, control = maps(rng, now_ns)
            control, ranges = with_random_ranges(rng, control)
            control, term, grants = random_vouching.random_state(rng, control, now_ns)
            plane.set(entries, control, ranges=ranges, term=term, grants=grants)
            _run_batch(plane, hook, situation_of(entries, control, ranges, term, grants, now_ns), frames, tallies)
        except AssertionError as error:
            raise AssertionError(f"ARPGUARD_SEED={SEED}, batch {number}\n{error}") from None
    return tallies


def situation_of(
    entries: Mapping[Address, VipEntry],
    control: NodeControl,
    ranges: Mapping[Network, VipEntry],
    term: LinkTerm | None,
    grants: Grants,
    now_ns: int,
) -> Situation:
    """What a plane has, for the model."""
    of_lo = {EntryKey(LO, vip): entry for vip, entry in entries.items()}
    return Situation(
        control, of_lo, LO, now_ns, {RangeKey(LO, network): entry for network, entry in ranges.items()}, term, grants
    )


def _run_batch(plane: Plane, hook: Hook, situation: Situation, frames: Sequence[bytes], tallies: Tallies) -> None:
    respond = respond_egress if hook is Hook.TC_EGRESS else respond_ingress
    twins = replace(situation, control=replace(situation.control, ethertype=0))  # they know no frames of vouching
    expected: Counter[Count] = Counter()
    vouched: Counter[Vouched] = Counter()
    before, vouched_before = plane.counts(), plane.vouched()
    for frame in frames:
        response = respond(frame, situation)
        outcome = at_time_of(situation, response, plane.run(hook, frame))
        assert_agrees(outcome, plane.shown(expected_outcome(response, hook, frame)), frame, situation)
        _assert_twin_agrees(plane.trial(hook, frame), respond(frame, twins), frame)
        if response.grants is not None:
            situation, twins = (replace(each, grants=response.grants) for each in (situation, twins))
        expected.update(_counts_of(response, situation))
        vouched.update([response.vouched] if response.vouched is not None else [])
        tallies.actions[outcome.action] += 1
        tallies.reasons.update(judgement.reason for judgement in response.judgements)
    assert_counted(plane.counts() - before, expected)
    assert plane.vouched() - vouched_before == vouched
    assert plane.grants == situation.grants
    tallies.vouched.update(vouched)


def at_time_of(situation: Situation, response: Response, outcome: Outcome) -> Outcome:
    """The outcome as it would be at the situation's time: the model does not know when a pong is stamped."""
    if response.vouched is not Vouched.PING or situation.term is None or outcome.frame is None:
        return outcome
    pong, key = payload_of(outcome.frame), situation.term.key
    assert situation.now_ns <= read_back(outcome.frame, key).stamp_ns <= boot_ns(), pong
    stamped = resealed(patched(pong, STAMP_AT, struct.pack("<Q", situation.now_ns)), key)
    return replace(outcome, frame=outcome.frame[: -len(pong)] + stamped)


def expected_outcome(response: Response, hook: Hook, frame: bytes) -> Outcome:
    """At XDP nothing can be hidden from this node's kernel only."""
    if response.hidden and hook is not Hook.XDP:
        return Outcome(HIDE, frame)
    if response.frame is None:
        return DROPPED
    return Outcome(SEND_BACK if response.answered else PASS, response.frame)


def _counts_of(response: Response, situation: Situation) -> list[Count]:
    """A decision about a VIP is the entry's and the node's; one about none is the node's."""
    counts = []
    for judgement in response.judgements:
        entry = situation.rule(judgement.vip)
        if entry is None:
            observed = judgement.verdict.name == "SUPPRESS" and response.frame is not None
        else:
            observed = not situation.enforces(entry)
            counts.append(Count(_row_of(judgement.vip, situation), observed, judgement.reason))
        counts.append(Count(None, observed, judgement.reason))
    return counts


def _row_of(address: Address | None, situation: Situation) -> Address | Network | None:
    """What has the counter of a decision about an address: itself, or its range."""
    rule = situation.rule(address)
    return next((key.network for key, entry in situation.ranges.items() if entry is rule), address)


def _assert_twin_agrees(trial: Trial, response: Response, frame: bytes) -> None:
    """What `explain` would say of the frame; that nothing is counted twice is seen at the end of the batch."""
    decided = tuple((judgement.verdict, judgement.reason) for judgement in response.judgements)
    expected = Trial(response.answered, response.frame, decided)
    if trial != expected:
        raise AssertionError(f"stimulus\n{hexdump(frame)}\nexpected: {expected}\nthe twin: {trial}")
    assert all(verdict is reason.verdict for verdict, reason in trial.decisions), trial


def assert_agrees(outcome: Outcome, expected: Outcome, frame: bytes, situation: Situation) -> None:
    try:
        assert_outcome(outcome, expected, frame)
    except AssertionError as error:
        entries = "\n".join(f"  {key.vip}: {entry}" for key, entry in situation.entries.items())
        raise AssertionError(f"{error}\n{situation.control} at {situation.now_ns}\n{entries}") from None
