"""Fields of the API's messages in words: enums, times, lengths of time, counts."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.v1 import agent_pb2 as pb

NONE = "-"
_LAST_SECOND = 253402214400  # a day before the year 10000: datetime knows no later one
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def word(message: Message, field: str) -> str:
    """The value of an enum field in lower case, without what all values of the enum begin with."""
    enum = message.DESCRIPTOR.fields_by_name[field].enum_type
    values = enum.values_by_number if enum else {}
    number = getattr(message, field)
    if number not in values:  # a newer agent's
        return f"#{number}"
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    return values[number].name.removeprefix(prefix).lower() if number else NONE


def local_time(timestamp: Timestamp) -> str:
    """Date and time of day on this host's clock."""
    return f"{local(timestamp.seconds):%Y-%m-%d %H:%M:%S}"


def time_of_day(timestamp: Timestamp) -> str:
    """The time of day; with the date before, unless it is today."""
    when = local(timestamp.seconds)
    return f"{when:%H:%M:%S}" if when.date() == datetime.now(UTC).astimezone().date() else local_time(timestamp)


def local(seconds: int) -> datetime:
    """Seconds since 1970 on this host's clock."""
    return datetime.fromtimestamp(min(max(seconds, 0), _LAST_SECOND), UTC).astimezone()


def seconds_since(timestamp: Timestamp) -> float:
    """How long ago a time is; another host's clock may be ahead of this one."""
    return max(0.0, time.time() - timestamp.seconds - timestamp.nanos / 1e9)


def age(timestamp: Timestamp) -> str:
    """How long ago a time is, such as "3s ago"."""
    return f"{span(seconds_since(timestamp)).partition(' ')[0]} ago"


def span(seconds: float) -> str:
    """A length of time in its two largest units, such as "3m 2s"."""
    left, parts = int(seconds), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join([*parts, f"{left}s"][:2])


def duration(message: Duration) -> str:
    """A short length of time, such as "2.4s"."""
    return f"{message.seconds + message.nanos / 1e9:.3g}s"


def fences(message: pb.GetStatusResponse | pb.Ownership, voucher: str = "") -> str:
    """What is left of the right to answer, which ends by the first of two fences; `voucher`: whose the second is."""
    api = duration(message.fence_left)
    if not message.HasField("voucher_fence_left"):
        return f"{api} left"
    whose = f"voucher {voucher}".rstrip()
    return f"API server {api}, {whose} {duration(message.voucher_fence_left)} left"


def counted(number: int, thing: str) -> str:
    """A number of things, such as "1 link" and "2 links"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def problems(status: pb.GetStatusResponse) -> list[str]:
    """All problems, each once: a configuration that was not applied is in both lists."""
    return list(dict.fromkeys([*status.config.problems, *status.problems]))


def frames(reasons: Iterable[pb.ReasonCount]) -> int:
    """All frames, carried out and observed."""
    return sum(count.enforced + count.observed for count in reasons)


def outcome(decision: pb.Decision | pb.FrameExplanation) -> str:
    """What happened to a frame, or would have happened were it not only observed."""
    verdict = word(decision, "verdict")
    passed = decision.verdict in {pb.VERDICT_PASS, pb.VERDICT_REPORT}
    return verdict if passed or decision.mode != pb.MODE_OBSERVE else f"would {verdict}"


def programs(link: pb.Link, *, outgoing: bool) -> str:
    """The programs that judge what comes in, or what goes out, such as "tcx 1234"."""
    found = [made for made in link.attachments if (made.hook == pb.HOOK_TC_EGRESS) is outgoing]
    return ", ".join(f"{made.how} {made.program_id}" for made in found)
