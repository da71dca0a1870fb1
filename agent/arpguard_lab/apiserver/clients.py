"""Who is who: clients are distinguished by their bearer token, and act as a user of RBAC."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses

Json: TypeAlias = dict[str, Any]

_TOKEN = "lab-token-of-"  # noqa: S105 - no secret: whoever reaches the lab may use it
_SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody who sends requests: a name for faults and counters, and a user with groups for RBAC."""

    name: str
    user: str
    groups: tuple[str, ...]


ANONYMOUS = Client("anonymous", "system:anonymous", ("system:unauthenticated",))


class Clients:
    """All known clients."""

    def __init__(self) -> None:
        self._known: dict[str, Client] = {}

    def __iter__(self) -> Iterator[Client]:
        return iter(self._known.values())

    def add(self, name: str, service_account: str = "") -> Client:
        """Makes a client known: as the service account `NAMESPACE/NAME`, or as an administrator."""
        client = _as_service_account(name, service_account) if service_account else _as_administrator(name)
        self._known[name] = client
        return client

    def find(self, name: str) -> Client:
        """By name; KeyError if there is none."""
        return self._known[name]

    def identify(self, authorization: str) -> Client:
        """By the Authorization header; 401 for a token that nobody has."""
        if not authorization:
            return ANONYMOUS
        name = authorization.removeprefix(_SCHEME).removeprefix(_TOKEN)
        if authorization != f"{_SCHEME}{_TOKEN}{name}" or name not in self._known:
            raise statuses.unauthorized()
        return self._known[name]


def token(client: Client) -> str:
    """The token of a client."""
    return _TOKEN + client.name


def kubeconfig(client: Client, url: str, authority: bytes | None) -> Json:
    """A kubeconfig for a client."""
    cluster: Json = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return kubeconfig_of(cluster, {"token": token(client)})


def kubeconfig_of(cluster: Json, user: Json) -> Json:
    """A kubeconfig with one cluster and one user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }


def _as_service_account(name: str, account: str) -> Client:
    namespace, _, short = account.partition("/")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Client(name, f"system:serviceaccount:{namespace}:{short}", groups)


def _as_administrator(name: str) -> Client:
    return Client(name, name, ("system:masters", "system:authenticated"))
