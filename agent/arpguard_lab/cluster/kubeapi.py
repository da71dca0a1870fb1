"""The lab's own requests to an API server: one connection each, no retries, JSON in and out."""

import base64
import http.client
import json
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from arpguard.errors import ArpguardError

Json: TypeAlias = dict[str, Any]
Connect: TypeAlias = Callable[[tuple[str, int]], socket.socket]

PATIENCE_S = 20.0
JSON_BODY = "application/json"
MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT = 404, 409


class KubeApiError(ArpguardError):
    """The API server refused; `code` is HTTP's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the API server refused ({code}): {message}: {_advice(code, message)}")
        self.code = code


def _advice(code: int, message: str) -> str:
    """What to do about a refusal."""
    if "service account" in message:
        return "nothing creates ServiceAccounts there: is kube-controller-manager running?"
    if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "use the kubeconfig of an administrator (the ClusterRole cluster-admin)"
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "look at the API server's log"
    return "this server does not accept what the lab asked for"


def connect_directly(address: tuple[str, int]) -> socket.socket:
    """A connection from where this program runs."""
    return socket.create_connection(address, PATIENCE_S)


class KubeApi:
    """One client, from the current context of its kubeconfig."""

    def __init__(self, kubeconfig: Json, connect: Connect = connect_directly) -> None:
        cluster, user = current(kubeconfig)
        url = urlsplit(str(cluster["server"]))
        self.address = (url.hostname or "", url.port or 443)
        self._connect = connect
        self._name = str(cluster.get("tls-server-name") or self.address[0])
        self._tls = _context(cluster, user) if url.scheme == "https" else None
        self._token = str(user.get("token", ""))

    def ask(self, method: str, path: str, body: object = None, content_type: str = JSON_BODY) -> Json:
        """The body of the answer, over a connection of its own.

        Raises KubeApiError for a refusal, OSError when there is no answer.
        """
        with self.connected() as ask:
            return ask(method, path, body, content_type)

    @contextmanager
    def connected(self) -> Iterator[Callable[..., Json]]:
        """What asks as `ask` does, over one connection: for several requests, one after another."""
        connection = http.client.HTTPConnection(self._name, timeout=PATIENCE_S)
        connection.auto_open = 0  # it knows no other way to the server
        opened = self._connect(self.address)
        try:
            opened.settimeout(PATIENCE_S)
            # http.client sends head and body apart: without this the body waits 40 ms for an ACK of the head.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = self._tls.wrap_socket(opened, server_hostname=self._name) if self._tls else opened
            yield partial(self._exchange, connection)
        finally:
            connection.close()
            opened.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON_BODY,
    ) -> Json:
        headers = {"Content-Type": content_type, **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        answer: Json = _exchange(connection, method, path, body, headers)
        return answer

    def get(self, path: str) -> Json:
        """One object, or a list."""
        return self.ask("GET", path)

    def create(self, path: str, body: Json) -> Json:
        """A new object in a collection."""
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """Merges into an object."""
        return self.ask("PATCH", path, body, MERGE_PATCH)

    def finalize_namespace(self, name: str) -> None:
        """Lets go a namespace that is deleted, whatever is left in it."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
        self.ask("PUT", f"/api/v1/namespaces/{name}/finalize", body)

    def delete(self, path: str, body: Json | None = None) -> None:
        """Deletes an object that may be gone already."""
        try:
            self.ask("DELETE", path, body)
        except KubeApiError as error:
            if error.code != NOT_FOUND:
                raise


class Control:
    """The double's other door, on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON that it answers; KubeApiError for a refusal."""
        connection = http.client.HTTPConnection("control")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.settimeout(PATIENCE_S)
            connection.sock.connect(str(self._path))
            return _exchange(connection, method, f"/control/{path}", body, {})
        finally:
            connection.close()


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: object, headers: Mapping[str, str]
) -> Any:
    """The JSON of an answer; KubeApiError for a refusal, OSError where there is no answer."""
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"no answer from the API server: {type(error).__name__}") from error
    if response.status >= 300:
        raise KubeApiError(response.status, _message_of(text))
    return json.loads(text)


def _message_of(text: bytes) -> str:
    """What a refusal says: that of a Status, or as it is."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError):
        return text[:200].decode(errors="replace")


def current(kubeconfig: Json) -> tuple[Json, Json]:
    """(cluster, user) of the current context; the certificates of files are read in by `inlined`."""
    contexts = {item["name"]: item["context"] for item in kubeconfig.get("contexts", ())}
    context = contexts.get(kubeconfig.get("current-context")) or next(iter(contexts.values()))
    clusters = {item["name"]: item["cluster"] for item in kubeconfig.get("clusters", ())}
    users = {item["name"]: item["user"] for item in kubeconfig.get("users", ())}
    return clusters[context["cluster"]], users[context["user"]]


def inlined(entry: Json, folder: Path) -> Json:
    """A cluster or user whose files are part of it, so that the kubeconfig may stand anywhere."""
    found = dict(entry)
    for name in ("certificate-authority", "client-certificate", "client-key"):
        if name in found:
            found[f"{name}-data"] = base64.b64encode((folder / found.pop(name)).read_bytes()).decode()
    if "tokenFile" in found:
        found["token"] = (folder / found.pop("tokenFile")).read_text(encoding="ascii").strip()
    return found


def _context(cluster: Json, user: Json) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate-data"):
        with tempfile.NamedTemporaryFile() as pair:
            parts = (base64.b64decode(user[f"client-{name}-data"]) for name in ("certificate", "key"))
            pair.write(b"\n".join(parts))
            pair.flush()
            context.load_cert_chain(pair.name)
    return context
