"""get and list: which revision is read, and in which pages."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from arpguard_lab.apiserver import selectors, statuses
from arpguard_lab.apiserver.paths import Target
from arpguard_lab.apiserver.statuses import ApiError
from arpguard_lab.apiserver.store import Key, Store, Stored, page

Json: TypeAlias = dict[str, Any]

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)
_TOO_OLD = "The resourceVersion for the provided list is too old."
_MATCHES = ("", "Exact", "NotOlderThan")


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list."""

    items: list[Stored]
    metadata: Json


@dataclass(frozen=True, slots=True)
class _Reading:
    """A state to read, and where in it."""

    revision: int
    after: Key | None = None
    paged: bool = True


def read_one(store: Store, target: Target, version: str, stale: int | None) -> Stored:
    """GET of an object; `stale` is the revision of a cache that lags."""
    table = store.table(target.resource)
    store.require(number(version, statuses.bad_request))
    live = table.at(stale) if version == "0" and stale is not None else table.live
    found = live.get(target.key)
    if found is None:
        raise statuses.not_found(target.resource, target.name)
    return found


def read_list(store: Store, target: Target, query: Mapping[str, str], stale: int | None) -> Listed:
    """GET of a collection."""
    resource = target.resource
    wanted = selectors.parse(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))

    reading = _choose(store, query, stale)
    ordered = page(_state(store, target, reading), reading.after)
    chosen = [(key, stored) for key, stored in ordered if target.namespace in ("", key[0])]
    if wanted is not None:
        chosen = [(key, stored) for key, stored in chosen if wanted(stored.body)]

    limit = int(query.get("limit") or 0) if reading.paged else 0
    metadata: Json = {"resourceVersion": str(reading.revision)}
    if limit and len(chosen) > limit:
        metadata["continue"] = _token(reading.revision, chosen[limit - 1][0])
        if wanted is None:
            metadata["remainingItemCount"] = len(chosen) - limit
        chosen = chosen[:limit]

    return Listed([stored for _key, stored in chosen], metadata)


def number(version: str, error: Callable[[str], ApiError]) -> int:
    """A resourceVersion as a number; "" is 0."""
    if version and not version.isdigit():
        raise error(
            f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
        )
    return int(version or 0)


def _choose(store: Store, query: Mapping[str, str], stale: int | None) -> _Reading:
    """The revision that a list asks for, by the table in the API concepts (resourceVersionMatch)."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if query.get("continue"):
        return _continued(query["continue"])

    if match and not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise statuses.wrong_options("resourceVersionMatch", why)
    if match not in _MATCHES or (match == "Exact" and version == "0"):
        raise statuses.wrong_options("resourceVersionMatch", f'"{match}" is not allowed here')

    asked = number(version, lambda why: statuses.bad_request(f"invalid resource version: {why}"))
    store.require(asked)
    if match == "Exact":
        return _Reading(asked)
    if version == "0":
        return _Reading(store.revision if stale is None else stale, paged=False)  # from the cache, which has no pages
    return _Reading(store.revision)


def _state(store: Store, target: Target, reading: _Reading) -> Mapping[Key, Stored]:
    table = store.table(target.resource)
    if reading.revision >= store.revision:
        return table.live
    try:
        return table.at(reading.revision)
    except ApiError as error:
        raise statuses.expired(_EXPIRED if reading.after else _TOO_OLD) from error


def _token(revision: int, last: Key) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": list(last)})
    return base64.urlsafe_b64encode(text.encode()).decode()


def _continued(token: str) -> _Reading:
    try:
        value = json.loads(base64.urlsafe_b64decode(token))
        namespace, name = value["start"]
        return _Reading(value["rv"], (namespace, name))
    except (ValueError, KeyError, TypeError) as error:
        raise statuses.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
