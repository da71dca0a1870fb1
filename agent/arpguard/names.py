"""What Kubernetes' objects and Linux' interfaces may be called."""

import re

MAX_SUBDOMAIN = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IFNAME = re.compile(r"[^\s/:]{1,15}")


def is_subdomain(text: str) -> bool:
    """Whether a Node, a Lease and most other objects may be called so (RFC 1123, as apimachinery has it)."""
    return _SUBDOMAIN.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether a namespace may be called so (RFC 1123)."""
    return _LABEL.fullmatch(text) is not None


def is_ifname(text: str) -> bool:
    """Whether a network interface may be called so. The kernel allows control characters; nobody can read those."""
    return text.isprintable() and _IFNAME.fullmatch(text) is not None


def printable(text: str) -> str:
    """A text with unprintable characters escaped: names of interfaces and of objects could control a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
