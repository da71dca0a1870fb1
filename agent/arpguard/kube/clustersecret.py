"""The cluster's secret: bytes from which all agents derive the keys of vouching, and that no one else knows.

They are in a Secret of the agents' namespace. The first agent that does not find it creates it; none changes it.
"""

import base64
import secrets

from arpguard.errors import ArpguardError
from arpguard.kube.client import Client
from arpguard.kube.errors import ConflictError, ForbiddenError, JsonObject
from arpguard.kube.resources import SECRETS, Request

DATA_KEY = "key"
LEN = 32  # of what is created, and the least that is taken


class ClusterSecretError(ArpguardError):
    """The Secret is wrong, or may not be read; says what to do."""


class NoRightError(ClusterSecretError):
    """This agent may not read it, or not create it."""


async def cluster_secret(client: Client, namespace: str, name: str) -> bytes:
    """The bytes in a Secret, LEN or more; creates it if there is none.

    Raises ClusterSecretError, and ClusterError where a later try may succeed. A second call gets what is there by
    then, even if the Secret was created and the answer lost, or another agent was faster.
    """
    read = Request("get", SECRETS, namespace, name)
    try:
        found = await client.find(read)
        if found is None and (found := await _create(client, namespace, name)) is None:
            found = await client.find(read)
    except ForbiddenError as error:
        remedy = "grant the rights that the manifests and the chart grant for vouching, or set lease.vouching: off"
        raise NoRightError(f"{error}; {remedy}") from error

    if found is None:
        raise ClusterSecretError(
            f"Secret {namespace}/{name} was deleted while the agent read it; the agent will recreate it: do not "
            "delete it"
        )
    return secret_in(found, f"Secret {namespace}/{name}")


def secret_in(raw: JsonObject, what: str) -> bytes:
    """The bytes in a Secret as the API server sends it. Raises ClusterSecretError, which does not quote them."""
    data = raw.get("data")
    text = data.get(DATA_KEY) if isinstance(data, dict) else None
    remedy = "delete the Secret and restart the agents; the first agent to start creates a new one"

    if not isinstance(text, str):
        raise ClusterSecretError(f"{what} has no data.{DATA_KEY}: {remedy}")
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        raise ClusterSecretError(f"{what}: data.{DATA_KEY} is not base64: {remedy}") from None
    if len(value) < LEN:
        raise ClusterSecretError(f"{what}: data.{DATA_KEY} has {len(value)} bytes, not {LEN} or more: {remedy}")
    return value


async def _create(client: Client, namespace: str, name: str) -> JsonObject | None:
    """None: another agent created it meanwhile. Immutable: otherwise it could differ for agents that start later."""
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "arpguard"}},
        "type": "Opaque",
        "immutable": True,
        "data": {DATA_KEY: base64.b64encode(secrets.token_bytes(LEN)).decode()},
    }
    try:
        return (await client.call(Request("create", SECRETS, namespace, body=body))).body
    except ConflictError:
        return None
