"""Readers of values that both configurations and annotations have: words, and owners of VIPs."""

from functools import partial

from arpguard.addresses import MacAddress
from arpguard.config.reading import Place, Problems, Raw, ValueReader, choice, reads, scalar, section, text
from arpguard.errors import did_you_mean
from arpguard.model import Owner, OwnerKind
from arpguard.names import is_subdomain
from arpguard.verdict import Mode

_LONGEST_INSTANCE = 255
TRUTH = choice({"true": True, "false": False}, {"type": "boolean"})
MODE = choice({"observe": Mode.OBSERVE, "enforce": Mode.ENFORCE})


def _mac(found: str) -> MacAddress | None:
    mac = MacAddress.parse(found)
    return None if mac.is_group or mac.is_zero else mac


def _is_instance(found: str) -> bool:
    return 0 < len(found) <= _LONGEST_INSTANCE and found.isprintable() and not set(found) & set('" ')


# Of schemas: they refuse most of what readers do. JSON Schema has the regular expressions of ECMA 262.
SUBDOMAIN = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"  # RFC 1123
LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

_MAC_SCHEMA = {"type": "string", "pattern": "^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$"}
_MAC = scalar(_mac, "the MAC address of one host such as 02:00:00:00:00:aa", _MAC_SCHEMA)
_NODE = text(is_subdomain, "a node name as Kubernetes writes it (lower case letters, digits, - and .)", SUBDOMAIN)
_INSTANCE = text(_is_instance, "the name of a vrrp_instance in keepalived.conf, such as VI_1", '^[^"\\s]+$')
_PLAIN = {kind.value: Owner(kind) for kind in (OwnerKind.EXTERNAL, OwnerKind.ELECT, OwnerKind.FOLLOW)}
_NAMED: dict[str, ValueReader[Owner]] = {
    "external": section(lambda external: Owner(OwnerKind.EXTERNAL, mac=external), {"external": _MAC}, ["external"]),
    "node": section(partial(Owner, OwnerKind.NODE), {"node": _NODE, "delegated": TRUTH}, ["node"]),
    "keepalived": section(
        lambda keepalived: Owner(OwnerKind.KEEPALIVED, instance=keepalived), {"keepalived": _INSTANCE}, ["keepalived"]
    ),
}
_OF_SERVICES = ("external", "node")  # a keepalived is not told of Services


_OF_CONFIG = ("external", "elect")


@reads({"anyOf": [{"enum": [*_OF_CONFIG]}, *(reader.schema for reader in _NAMED.values())]})
def owner(raw: Raw, place: Place) -> Owner | None:
    """Who owns a VIP of the configuration."""
    if isinstance(raw, str) and raw in _OF_CONFIG:
        return _PLAIN[raw]
    if isinstance(raw, dict):
        kinds = [key for key in _NAMED if key in raw]
        if len(kinds) == 1:
            return _NAMED[kinds[0]](raw, place)
        if kinds:
            place.wrong(raw, "a mapping with only one of the keys keepalived, node and external")
            return None
    place.wrong(
        raw,
        "{node: NAME}, {node: NAME, delegated: true}, {keepalived: INSTANCE}, external, {external: MAC} or elect",
        _meant_owner(raw),
    )
    return None


def _meant_owner(raw: Raw) -> str:
    """What was likely meant: a kind that is misspelt, or a node that is named without its key."""
    if isinstance(raw, dict):
        return next((hint for key in raw if (hint := did_you_mean(key, _NAMED))), "")
    return did_you_mean(raw, _OF_CONFIG) or _as_node(raw) if isinstance(raw, str) else ""


def _as_node(found: str) -> str:
    meant = "keepalived: INSTANCE" if found == "keepalived" else f"node: {found}"
    return f"; did you mean {{{meant}}}?" if is_subdomain(found) else ""


def _in_short(found: str) -> Owner | None:
    """An owner as in an annotation: `node/NAME` for `{node: NAME}`."""
    kind, slash, name = found.partition("/")
    if not slash:
        return _PLAIN.get(found)
    return owner({kind: name}, Place(Problems(0))) if kind in _OF_SERVICES else None


_SHORT_OWNERS = (
    "node/NAME, external, external/MAC, elect or follow; arpguard ignores this Service until that is corrected"
)
SHORT_OWNER = scalar(_in_short, _SHORT_OWNERS, {})
