"""The page of `arpguard explain`: what happens to frames about an address, and why."""

from arpguard.cli.clustering import claim_facts
from arpguard.cli.render import facts, good, page_width, strong, table, wrapped
from arpguard.cli.tables import short_name
from arpguard.cli.words import fences, outcome, word
from arpguard.core.stimulus import Operation
from arpguard.v1 import agent_pb2 as pb


def explanation(address: str, answer: pb.ExplainVipResponse) -> str:
    """What happens to frames about an address, and why, link by link."""
    stories = [_story(address, link) for link in answer.links]
    return "\n\n".join(stories) or "no link of this node is guarded"


def is_guarded(answer: pb.ExplainVipResponse) -> bool:
    """Whether the address is guarded on any link."""
    return any(link.HasField("entry") for link in answer.links)


def _story(address: str, link: pb.LinkExplanation) -> str:
    first, *others = wrapped(f"{address} on {link.link}: {link.summary}", page_width())
    blocks = ["\n".join([str(strong(first)), *others])]
    if link.HasField("entry"):
        blocks.append(facts([("entry", _entry(link.entry))], indent="  "))
    if link.frames:
        blocks += [
            table(("FRAME", "VERDICT", "REASON", "RESULT"), [_frame_row(address, frame) for frame in link.frames]),
            _meanings(link),
        ]
    if link.ownership.steps or link.ownership.candidates:
        blocks.append(_why(link.ownership))
    return "\n\n".join(blocks)


def _entry(entry: pb.Vip) -> str:
    """The kernel's entry, as far as the headline does not tell it."""
    parts = [f"epoch {entry.epoch}"]
    if entry.answer_mac:
        parts.append(f"answered with {entry.answer_mac}")
    if entry.owner_mac:
        parts.append(f"the owner's MAC is {entry.owner_mac}")
    if entry.kind == pb.KIND_OWNED:
        parts.append("no fence needed" if entry.hold else "fence needed")
    return ", ".join(parts)


def _frame_row(address: str, frame: pb.FrameExplanation) -> tuple[object, ...]:
    return _operation(frame), outcome(frame), word(frame, "reason"), _fate(address, frame)


def _operation(frame: pb.FrameExplanation) -> str:
    name = word(frame, "operation").replace("_", "-")
    return next((operation.meaning for operation in Operation if operation.value == name), name)


def _fate(address: str, frame: pb.FrameExplanation) -> str:
    """What becomes of a frame about an address, in words."""
    fates = {
        pb.FATE_PASSED: "passes",
        pb.FATE_DROPPED: "dropped",
        pb.FATE_ANSWERED: f"reply: {_said(address, frame.result)}",
        pb.FATE_CHANGED: f"sent: {_said(address, frame.result)}",
    }
    return fates.get(frame.fate, word(frame, "fate"))


def _said(address: str, frame: pb.Frame) -> str:
    """What a frame says, in tcpdump's words for ARP: those for neighbour discovery would fill the line.

    The page's own address is left out before a MAC, which would be cut off on a narrow page.
    """
    asking, telling = f"who-has {frame.tpa} tell {frame.spa}", f"{frame.spa} is-at {frame.sha}"
    said = {"solicitation": asking, "advertisement": telling}.get(frame.op, frame.text)
    return said.removeprefix(f"{address} ") if frame.spa == address else said


def _meanings(link: pb.LinkExplanation) -> str:
    """Each reason that occurs, in a sentence."""
    return facts({word(frame, "reason"): frame.meaning for frame in link.frames}.items(), indent="  ")


def _why(ownership: pb.Ownership) -> str:
    steps = facts(((f"{number}.", step) for number, step in enumerate(ownership.steps, 1)), indent="  ")
    blocks = [f"{strong('why')}\n{steps}"]
    if ownership.candidates:
        head = ("CANDIDATE", "ELIGIBLE", "CHOSEN", "WHY")
        rows = [
            (found.node, "yes" if found.eligible else "no", good("yes") if found.chosen else "no", found.why)
            for found in ownership.candidates
        ]
        blocks.append(table(head, rows))
    if ownership.HasField("claim"):
        blocks.append(f"{strong('claim')}\n{facts(claim_facts(ownership.claim), indent='  ')}")
    if ownership.HasField("fence_left"):
        blocks.append(_fences(ownership))
    return "\n\n".join(blocks)


def _fences(ownership: pb.Ownership) -> str:
    whole = "" if ownership.HasField("voucher_fence_left") else " until the right to answer ends"
    return f"fence: {fences(ownership, short_name(ownership.voucher))}{whole}"
