"""What `arpguard replay` prints: a line for each decision, and the account of the whole capture."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from arpguard.addresses import Address, MacAddress
from arpguard.cli.documents import stream_document
from arpguard.cli.render import (
    Columns,
    Styled,
    bad,
    careful,
    facts,
    good,
    page_width,
    strong,
    table,
    wrapped,
)
from arpguard.cli.words import NONE, counted, local, span
from arpguard.core.claimants import virtual_router
from arpguard.core.replay import PLACEHOLDER_MAC, About, Passed, Protocol, ReplayScene
from arpguard.core.sightings import Act, Ledger, Sighting, at_once
from arpguard.core.stimulus import describe
from arpguard.dataplane.replay import Judged
from arpguard.model import OwnerKind, Vip
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Mode, Reason, Verdict
from arpguard.wire.ethernet import parse_ethernet

_MOST_MACS = 10
_FRAME_COLUMNS = ("NO", "TIME", "FRAME", "VIP", "VERDICT", "REASON")
_SPARE_OF_FRAMES = ("VIP", "TIME")  # a narrow page does without: the frame has the one, its number leads to the other
_USUAL = "who-has 198.51.100.50 tell 198.51.100.100"
_USUAL_FRAME = ("00:00:00.000", _USUAL, "255.255.255.255", "would suppress", "egress_not_owner")
_VIP_COLUMNS = ("VIP", "OWNER", "REQUESTS", "ANSWERED BY", "DECISIONS")
_MAC_COLUMNS = ("MAC", "WHO", "ANSWERS", "ANNOUNCED", "ASKED", "FIRST", "LAST", "WITH GUARD")
_ALARMING = (Verdict.CONFLICT,)

Macs = Mapping[MacAddress, Sighting]


@dataclass(slots=True)
class Story:
    """What there is to tell about a replay. `broken` says where the capture could not be read on."""

    file: str
    scene: ReplayScene
    ledger: Ledger
    broken: str = ""

    @property
    def mode(self) -> Mode:
        """The node's mode."""
        return self.scene.mode or self.scene.config.mode

    def mode_of(self, vip: Address | None) -> Mode:
        """The mode in which decisions about a VIP are carried out: its own, or the node's."""
        known = self.ledger.vips.get(vip) if vip is not None else None
        return (known.mode if known else Mode.INHERIT) or self.mode

    def owner(self, vip: Vip) -> str:
        """Who owns a VIP; of an elected one, who is assumed to."""
        if not vip.elected:
            return str(vip.owner)
        return self.scene.owners.get(vip.address, "elect")

    def who(self, mac: MacAddress) -> str:
        """Whose a MAC is, as far as that is known."""
        names = (self.scene.macs.get(mac), virtual_router(mac))
        return ", ".join(str(name) for name in names if name)

    def kept(self, vip: Vip, macs: Macs) -> int:
        """How much of what was said about a VIP its owner said: the guards let it out, or there is none."""
        return sum(seen.acts.total() if mac == vip.owner.mac else seen.kept for mac, seen in macs.items())


# ---- frames ------------------------------------------------------------------------------------------------------


class FrameLines:
    """Frames as they come: a line for each decision about one, or a document for each frame."""

    def __init__(self, story: Story, form: str) -> None:
        self._story, self._form = story, form
        self._columns = Columns(_FRAME_COLUMNS, "REASON", _SPARE_OF_FRAMES)
        self._columns.add((1, *_USUAL_FRAME))
        self._columns.keep()
        self._shown = 0

    def show(self, found: Judged) -> None:
        """Prints a frame."""
        if self._form != "table":
            print(stream_document({"frame": _frame_dict(self._story, found)}, self._form))
            return
        if not self._shown:
            print(self._columns.head())
        self._shown += 1
        for about in found.decisions:
            row = _frame_row(self._story, found, about)
            self._columns.add(row)
            print(self._columns.line(row))

    def end(self) -> None:
        """Parts the frames from what follows."""
        if self._shown:
            print()


def _frame_row(story: Story, found: Judged, about: About) -> tuple[object, ...]:
    text = _outcome(story, about)
    return (
        found.captured.number,
        _time_of_day(found.captured.time_ns),
        ("out: " if found.seen.outgoing else "") + _in_words(found.seen.frame),
        about.vip or NONE,
        bad(text) if about.verdict in _ALARMING else Styled(text),
        about.reason.name.lower(),
    )


def _outcome(story: Story, about: About) -> str:
    """The verdict; "would" where the mode is to observe."""
    verdict = about.verdict.name.lower()
    passed = about.verdict in {Verdict.PASS, Verdict.REPORT}
    return verdict if passed or story.mode_of(about.vip) is Mode.ENFORCE else f"would {verdict}"


def _in_words(frame: bytes) -> str:
    """A frame in words, whatever its tags."""
    parsed = parse_ethernet(frame)
    if parsed is None or not parsed.tags:
        return describe(frame)
    tags = ", ".join(f"VLAN {tag.vid}" for tag in parsed.tags)
    at = 12 + 4 * len(parsed.tags)
    return f"{describe(frame[:12] + frame[at:])} ({tags})"


def _frame_dict(story: Story, found: Judged) -> dict[str, object]:
    fate, result = found.trial.fate(found.seen.frame), found.trial.frame
    told: dict[str, object] = {
        "number": found.captured.number,
        "time": _rfc3339(found.captured.time_ns),
        "link": found.seen.link,
        "direction": "out" if found.seen.outgoing else "in",
        "frame": _picture(found.seen.frame),
        "decisions": [
            {
                "vip": str(about.vip or ""),
                "verdict": f"VERDICT_{about.verdict.name}",
                "reason": f"REASON_{about.reason.name}",
                "meaning": about.reason.meaning,
                "mode": f"MODE_{story.mode_of(about.vip).name}",
            }
            for about in found.decisions
        ],
        "fate": fate,
    }

    if result is not None and fate != "FATE_PASSED":
        told["result"] = _picture(result)

    return told


def _picture(frame: bytes) -> dict[str, object]:
    return {"hex": frame.hex(), "text": _in_words(frame)}


# ---- times -------------------------------------------------------------------------------------------------------


def _local(time_ns: int) -> datetime:
    return local(time_ns // NS_PER_S)


def _clock(time_ns: int | None) -> str:
    """The time of day in seconds; a capture need not tell it."""
    return NONE if time_ns is None or time_ns < 0 else f"{_local(time_ns):%H:%M:%S}"


def _time_of_day(time_ns: int | None) -> str:
    """The same in milliseconds."""
    told = _clock(time_ns)
    return told if time_ns is None or told == NONE else f"{told}.{time_ns % NS_PER_S // NS_PER_MS:03}"


def _rfc3339(time_ns: int | None) -> str:
    """As protobuf's JSON mapping has a Timestamp; empty where the capture tells none."""
    if time_ns is None or time_ns < 0:
        return ""
    return f"{_local(time_ns).astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{time_ns % NS_PER_S:09}Z"


# ---- the account -------------------------------------------------------------------------------------------------


def summary(story: Story) -> str:
    """The account for people."""
    ledger = story.ledger
    vips = [vip for vip in ledger.vips.values() if _is_in_capture(ledger, vip.address)]
    others = {address: macs for address, macs in ledger.doubled().items() if address not in ledger.vips}
    blocks = [facts(_heading(story)), *("\n".join(wrapped(note, page_width())) for note in notes(story))]
    if vips:
        blocks.append(table(_VIP_COLUMNS, [_vip_row(story, vip) for vip in vips], yielding="DECISIONS"))
    blocks += [_vip_block(story, vip) for vip in vips if vip.address in ledger.guarded.found]
    for address, macs in others.items():
        title = f"{address}, not in the configuration, but worth guarding: answered by {_answered_by(macs).text}"
        blocks.append(f"{strong(title)}\n{_mac_table(story, address, macs)}")
    return "\n\n".join([*blocks, _verdict(ledger)])


def _vip_block(story: Story, vip: Vip) -> str:
    """Who spoke for a VIP, and what the guard leaves of it."""
    title, macs = strong(f"{vip.address}, owner {story.owner(vip)}"), story.ledger.guarded.found[vip.address]
    told = facts([("with the guard on every node:", with_the_guard(story, vip))])
    return f"{title}\n{_mac_table(story, vip.address, macs)}\n{told}"


def _is_in_capture(ledger: Ledger, address: Address) -> bool:
    account = ledger.accounts[address]
    return bool(account.requests or account.decisions or address in ledger.guarded.found)


def _heading(story: Story) -> Iterator[tuple[str, object]]:
    ledger, scene = story.ledger, story.scene
    yield "capture", story.file

    if story.broken:
        yield "broken", careful(story.broken)
    if ledger.first_ns is not None and ledger.last_ns is not None:
        length = span((ledger.last_ns - ledger.first_ns) / NS_PER_S)
        yield (
            "time",
            f"{_local(ledger.first_ns):%Y-%m-%d %H:%M:%S} to {_local(ledger.last_ns):%Y-%m-%d %H:%M:%S}, {length}",
        )

    yield "node", f"{scene.node}, MAC {scene.own_mac or 'not given'}, mode {story.mode.name.lower()}"
    judged = ", ".join(f"{ledger.judged[protocol]:,} {protocol.value}" for protocol in Protocol)
    yield "frames", f"{ledger.read:,} read, {judged}; {ledger.about:,} about a VIP"

    left_out = [f"{count:,} {why.value}" for why, count in ledger.passed.items()]
    if left_out:
        yield "left out", ", ".join(left_out)

    silent = sum(not _is_in_capture(ledger, address) for address in ledger.vips)
    yield "VIPs", f"{len(ledger.vips):,}" + (f", {silent:,} of them not in the capture" if silent else "")


def _vip_row(story: Story, vip: Vip) -> tuple[object, ...]:
    account, macs = story.ledger.accounts[vip.address], story.ledger.guarded.answering(vip.address)
    decisions = (
        f"{verdict.name.lower()} {count:,} ({reason.name.lower()})"
        for (verdict, reason), count in account.decisions.most_common()
    )
    return vip.address, story.owner(vip), account.requests, _answered_by(macs), ", ".join(decisions) or NONE


def _answered_by(macs: Macs) -> Styled:
    text = counted(len(macs), "MAC")
    if len(macs) < 2:
        return good(text) if macs else Styled("nobody")
    return bad(text) if at_once(macs.values()) else careful(f"{text}, in turn")


def _mac_table(story: Story, address: Address, macs: Macs) -> str:
    """The MACs that said most; a scan may have used thousands. No guard minds what is not in the configuration."""
    ordered = sorted(macs.items(), key=lambda item: (not item[1].answers, -item[1].acts.total()))
    vip = story.ledger.vips.get(address)
    columns = _MAC_COLUMNS if vip else _MAC_COLUMNS[:-1]
    rows: list[tuple[object, ...]] = []
    for mac, seen in ordered[:_MOST_MACS]:
        acts, times = (seen.acts[act] for act in Act), (_clock(seen.first_ns), _clock(seen.last_ns))
        fate = (_fate_of_claims(story, vip, mac, seen),) if vip else ()
        rows.append((str(mac), story.who(mac) or NONE, *acts, *times, *fate))
    if len(ordered) > _MOST_MACS:
        others = [seen for _, seen in ordered[_MOST_MACS:]]
        acts = (sum(seen.acts[act] for seen in others) for act in Act)
        rows.append((counted(len(others), "more MAC"), NONE, *acts, *[""] * (len(columns) - 5)))
    return table(columns, rows, yielding="WHO")


def _fate_of_claims(story: Story, vip: Vip, mac: MacAddress, seen: Sighting) -> Styled:
    kept = story.kept(vip, {mac: seen})
    if kept + seen.silenced < seen.acts.total():
        return careful("unknown")
    if not seen.silenced:
        return good("passes")
    return Styled("silenced" if not kept else f"{seen.silenced} silenced")


def with_the_guard(story: Story, vip: Vip) -> str:
    """Who would speak for a VIP if every node had the guard, and how many of the captured claims would be left."""
    macs = story.ledger.guarded.found.get(vip.address, {})
    total, kept = sum(seen.acts.total() for seen in macs.values()), story.kept(vip, macs)
    silenced = sum(seen.silenced for seen in macs.values())
    parts = [f"{kept:,} of {counted(total, 'claim')} in the capture would pass", f"{silenced:,} would be silenced"]
    if total - kept - silenced:
        parts.append(f"for {total - kept - silenced:,} the sender's node is unknown")
    return f"{_speaker(story, vip)}; " + ", ".join(parts) if total else _speaker(story, vip)


def _speaker(story: Story, vip: Vip) -> str:
    if vip.owner.kind is OwnerKind.EXTERNAL:
        return "only the host outside the cluster answers"
    owner = story.owner(vip)
    if vip.elected and vip.address not in story.scene.owners:
        return "no node answers until one is elected"
    return f"only another program on {vip.owner.node} answers" if vip.owner.delegated else f"only {owner} answers"


def notes(story: Story) -> list[str]:
    """What replay assumes, and which options would tell more."""
    return [
        *_notes_about_owners(story),
        *_notes_about_macs(story),
        *_notes_about_links(story),
        *_notes_about_frames(story.ledger),
    ]


def _notes_about_owners(story: Story) -> Iterator[str]:
    scene, vips = story.scene, story.ledger.vips.values()
    unknown = [vip for vip in vips if vip.elected and vip.address not in scene.owners]
    if not vips:
        yield "the configuration names no VIP, and replay reads no Services: --owner ADDRESS=NODE makes ADDRESS a VIP"
    if unknown:
        yield (
            f"{counted(len(unknown), 'VIP')} with the owner `elect`, such as {unknown[0].address}: no capture says "
            "which node the cluster elected; --owner ADDRESS=NODE assumes one"
        )
    if scene.owners:
        yield "replay assumes that each node named by --owner is elected, and that its fence has not expired"


def _notes_about_macs(story: Story) -> Iterator[str]:
    if story.scene.own_mac is None:
        yield (
            f"no MAC of this node is given (--mac MAC): {PLACEHOLDER_MAC} stands for it in answers. Frames to the "
            "node's real MAC count as frames to another host, and frames from it as incoming, unless the capture says "
            "otherwise"
        )
    if any(seen.unjudged for macs in story.ledger.guarded.found.values() for seen in macs.values()):
        yield (
            "--mac NODE=MAC assigns a MAC to a node, so that replay shows which of the node's frames its guard "
            "lets through"
        )


def _notes_about_links(story: Story) -> Iterator[str]:
    ledger = story.ledger
    if len(ledger.judged_links) > 1:
        names = _some(ledger.judged_links)
        yield f"frames of several interfaces are judged as if from one link ({names}): --link NAME chooses one"
    if story.scene.link and not ledger.judged_links:
        known = _some(ledger.links) or NONE
        yield f"no ARP or NDP frame is from the interface {story.scene.link}; the capture's interfaces: {known}"


def _some(names: Iterable[str]) -> str:
    listed = sorted(filter(None, names))
    return ", ".join(listed[:_MOST_MACS]) + (", ..." if len(listed) > _MOST_MACS else "")


def _notes_about_frames(ledger: Ledger) -> Iterator[str]:
    if ledger.tagged:
        yield (
            f"frames with a VLAN tag: {ledger.tagged:,}. The guard on the parent interface passes them; --vlan VID "
            "judges those of one VLAN, as the guard on its VLAN device does"
        )
    if ledger.passed[Passed.OTHER_TYPE]:
        types = _some(map(str, ledger.linktypes))
        yield (
            "replay reads only Ethernet frames, also in cooked captures (-i any); it skipped frames of link type "
            f"{types}"
        )
    missed = ledger.guarded.missed + ledger.others.missed
    if missed:
        yield f"too many addresses and MACs to count all claims; missing from the tables: {missed:,}"


def _verdict(ledger: Ledger) -> str:
    doubled = ledger.doubled()
    if not doubled:
        return str(good("at most one MAC answered for each address"))
    listed = ", ".join(map(str, list(doubled)[:_MOST_MACS])) + (", ..." if len(doubled) > _MOST_MACS else "")
    return str(bad(f"more than one MAC answered for {len(doubled)} address{'es' * (len(doubled) > 1)}: {listed}"))


def summary_dict(story: Story) -> dict[str, object]:
    """The account for programs."""
    ledger, scene = story.ledger, story.scene

    others = {address: macs for address, macs in ledger.doubled().items() if address not in ledger.vips}

    return {
        "file": story.file,
        "broken": story.broken,
        "firstTime": _rfc3339(ledger.first_ns),
        "lastTime": _rfc3339(ledger.last_ns),
        "node": scene.node,
        "mac": str(scene.own_mac or ""),
        "mode": f"MODE_{story.mode.name}",
        "notes": notes(story),
        "frames": {
            "read": ledger.read,
            **{protocol.value.lower(): ledger.judged[protocol] for protocol in Protocol},
            "aboutVips": ledger.about,
            "leftOut": {why.name: count for why, count in ledger.passed.items()},
        },
        "vips": [_vip_dict(story, vip) for vip in ledger.vips.values()],
        "others": [{"address": str(address), **_macs_dict(story, macs)} for address, macs in others.items()],
        "doubled": [str(address) for address in ledger.doubled()],
    }


def _vip_dict(story: Story, vip: Vip) -> dict[str, object]:
    account, macs = story.ledger.accounts[vip.address], story.ledger.guarded.found.get(vip.address, {})
    return {
        "address": str(vip.address),
        "owner": story.owner(vip),
        "mode": f"MODE_{story.mode_of(vip.address).name}",
        "requests": account.requests,
        "decisions": [_count_dict(*decision, count) for decision, count in account.decisions.most_common()],
        **_macs_dict(story, macs),
        "claimsKept": story.kept(vip, macs),
        "claimsSilenced": sum(seen.silenced for seen in macs.values()),
        "withTheGuard": with_the_guard(story, vip),
    }


def _count_dict(verdict: Verdict, reason: Reason, count: int) -> dict[str, object]:
    return {"verdict": f"VERDICT_{verdict.name}", "reason": f"REASON_{reason.name}", "count": count}


def _macs_dict(story: Story, macs: Macs) -> dict[str, object]:
    answering = [seen for seen in macs.values() if seen.answers]

    return {
        "answeringMacs": len(answering),
        "atOnce": at_once(answering),
        "macs": [
            {
                "mac": str(mac),
                "who": story.who(mac),
                "answers": seen.acts[Act.ANSWER],
                "announcements": seen.acts[Act.ANNOUNCEMENT],
                "requests": seen.acts[Act.REQUEST],
                "firstTime": _rfc3339(seen.first_ns),
                "lastTime": _rfc3339(seen.last_ns),
                "kept": seen.kept,
                "silenced": seen.silenced,
            }
            for mac, seen in macs.items()
        ],
    }
