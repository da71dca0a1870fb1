"""Questions about oneself: `kubectl auth can-i` and `kubectl auth whoami`. Nothing of it is stored."""

from typing import Any, TypeAlias

from arpguard_lab.apiserver.clients import Client
from arpguard_lab.apiserver.rbac import Rbac, Use

Json: TypeAlias = dict[str, Any]

_ACCESS = ("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_SELF = ("authentication.k8s.io", "v1", "selfsubjectreviews")
_USES = {f"/apis/{'/'.join(path)}": Use("create", path[0], path[2]) for path in (_ACCESS, _SELF)}


def use_of(method: str, path: str) -> Use | None:
    """What RBAC must allow for a review; None if the request is none."""
    return _USES.get(path) if method == "POST" else None


def answer(rbac: Rbac, client: Client, use: Use, body: Json) -> Json:
    """The review with its status."""
    if use.group == _SELF[0]:
        status: Json = {"userInfo": {"username": client.user, "groups": list(client.groups)}}
        return {"kind": "SelfSubjectReview", "apiVersion": f"{use.group}/v1", "metadata": {}, "status": status}
    asked = (body.get("spec") or {}).get("resourceAttributes") or {}
    resource = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
    wanted = Use(
        asked.get("verb", ""), asked.get("group", ""), resource, asked.get("namespace", ""), asked.get("name", "")
    )
    head = {"kind": "SelfSubjectAccessReview", "apiVersion": f"{use.group}/v1", "metadata": {}}
    return {**head, "spec": body.get("spec"), "status": {"allowed": rbac.allows(client, wanted)}}
