"""What can go wrong with a request to the Kubernetes API, by what the caller does about it.

Only this module and `client` translate the errors of the HTTP library and of the server. A message quotes the server
only if it answered with a Status, cut to a line: any other body may be a proxy's page, or hold secrets.
The client never repeats a request; the caller decides that by the class of the error.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from arpguard.errors import ArpguardError
from arpguard.kube.decoding import decode

JsonObject: TypeAlias = dict[str, Any]  # what json.loads gives for "{...}"

MAX_QUOTE = 300
MAX_RETRY_AFTER_S = 120.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failed request. `status` is 0 if no answer came; `text` is fit for a log."""

    verb: str
    resource: str
    status: int
    text: str
    retry_after_s: float = 0.0


class ClusterError(ArpguardError):
    """The Kubernetes API did not carry out a request."""

    advice = ""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"cannot {failure.verb} {failure.resource}: {failure.text}{self.advice}")
        self.failure = failure


class ConflictError(ClusterError):
    """409: the object exists already, or is not the version that was written against."""


class GoneError(ClusterError):
    """410: the version or the continue token is too old; list again."""


class NotFoundError(ClusterError):
    """404: no such object, namespace, or kind."""


class UnauthorizedError(ClusterError):
    """401: the credentials are missing, wrong, or expired."""

    advice = ": check the token or client certificate"


class ForbiddenError(ClusterError):
    """403: RBAC or an admission rule does not allow it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.args = (f"{self}: if RBAC is the cause, allow the verb {failure.verb!r} on {failure.resource}",)


class ThrottledError(ClusterError):
    """429: the server is busy. Nothing was done."""


class RejectedError(ClusterError):
    """Any other 3xx or 4xx: the server will never do this, so a retry is useless."""


class UnavailableError(ClusterError):
    """5xx, no connection, no answer in time, or an answer that makes no sense.

    `outcome_unknown` is False only where it is certain that the server never got the request.
    """

    def __init__(self, failure: Failure, *, outcome_unknown: bool = True) -> None:
        super().__init__(failure)
        self.outcome_unknown = outcome_unknown


class TooLargeError(UnavailableError):
    """The answer is larger than this agent accepts."""


_BY_STATUS: dict[int, type[ClusterError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: GoneError,
    429: ThrottledError,
}


def error_of(failure: Failure) -> ClusterError:
    """The error for an HTTP status; a status that means no error makes no sense, and counts as unavailable."""
    default = RejectedError if 300 <= failure.status < 500 else UnavailableError
    return _BY_STATUS.get(failure.status, default)(failure)


def describe(status: int, body: bytes) -> str:
    """An answer as one line: "409 Conflict: the object has been modified"."""
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "?"
    return f"{status} {phrase}: {_quote(body)}"


def message_of(status: JsonObject) -> str:
    """The message of a Status object, as one short line (apimachinery, meta/v1 Status)."""
    texts = (status.get(field) for field in ("message", "reason"))
    return cut(next((text for text in texts if isinstance(text, str) and text), "no message"))


def cut(text: str) -> str:
    """The text as one printable line of limited length."""
    line = "".join(char if char.isprintable() else " " for char in text[: MAX_QUOTE + 1])
    return line if len(line) <= MAX_QUOTE else line[:MAX_QUOTE] + "..."


def _quote(body: bytes) -> str:
    try:
        status = decode(body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return message_of(status)
    return f"the body ({len(body)} bytes) is not a Status object"
