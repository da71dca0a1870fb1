"""Wall-clock times as the Kubernetes API writes them. They are for people to read; nothing is decided by them."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micro_time(wall_ns: int) -> str:
    """A MicroTime (apimachinery, meta/v1): always six digits of a second, or the server refuses it (400)."""
    return (_EPOCH + timedelta(microseconds=wall_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
