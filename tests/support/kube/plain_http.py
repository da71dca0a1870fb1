"""One client's HTTP to an API server, as it is: no retries, no models, no pool; one connection per request."""

import http.client
import json
import ssl
import tempfile
from base64 import b64decode
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import yaml

from arpguard_lab.apiserver.counters import Counters
from support.netns.waiting import HUNG_S

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True)
class Reply:
    code: int
    headers: http.client.HTTPMessage
    body: dict

    @property
    def version(self) -> str:
        return self.body["metadata"]["resourceVersion"]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Stream:
    """An open watch."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> dict | None:
        """The next event; None at the end of the stream; TimeoutError if nothing comes."""
        line = self._response.readline()
        return json.loads(line) if line else None

    def __iter__(self):
        return iter(self.next, None)


class Api:
    """A client, from its kubeconfig."""

    def __init__(self, kubeconfig: dict, patience_s: float = HUNG_S) -> None:
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        self._address = urlsplit(cluster["server"])
        self._context = _context(cluster, user) if self._address.scheme == "https" else None
        self._token = user.get("token") or _content(user, "tokenFile").decode().strip()
        self._patience_s = patience_s

    def ask(self, method: str, path: str, body=None, content_type="application/json", **query) -> Reply:
        with self._asked(method, path, body, content_type, query) as response:
            text = response.read()
            is_json = "json" in response.headers["Content-Type"]
            return Reply(response.status, response.headers, json.loads(text) if is_json else text)

    @contextmanager
    def watch(self, path: str, **query):
        with self._asked("GET", path, None, "application/json", {"watch": "true", **query}) as response:
            assert response.status == 200, response.read()
            yield Stream(response)

    def connect(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname, self._address.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=self._patience_s)
        return http.client.HTTPSConnection(host, port, timeout=self._patience_s, context=self._context)

    @contextmanager
    def _asked(self, method, path, body, content_type, query):
        connection = self.connect()
        headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        headers |= {name[2:].replace("_", "-"): query.pop(name) for name in list(query) if name.startswith("h_")}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path + ("?" + urlencode(query) if query else ""), data, headers)
            yield connection.getresponse()
        finally:
            connection.close()


def real_kubeconfig(path: str) -> dict:
    """The kubeconfig of a real cluster, cut down to its current context; files in it are found from any folder."""
    config = yaml.safe_load(Path(path).read_text())
    context = next(each for each in config["contexts"] if each["name"] == config["current-context"])["context"]
    clusters = [each for each in config["clusters"] if each["name"] == context["cluster"]]
    users = [each for each in config["users"] if each["name"] == context["user"]]
    for part in (*(each["cluster"] for each in clusters), *(each["user"] for each in users)):
        part |= {name: str(Path(path).parent / part[name]) for name in _FILES if name in part}
    return {"clusters": clusters, "users": users}


def _context(cluster: dict, user: dict) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(certificate + b"\n" + key)
            pem.flush()
            context.load_cert_chain(pem.name)
    return context


def _content(part: dict, name: str) -> bytes:
    """What a kubeconfig gives as base64 (`name`-data, which goes first), or names a file for."""
    if data := part.get(f"{name}-data"):
        return b64decode(data)
    return Path(part[name]).read_bytes() if part.get(name) else b""


def counted(counters: Counters, client: str = "", verb: str = "", resource: str = "", code: int | None = None) -> int:
    """How many requests the lab's server has counted; what is left out may be anything."""
    wanted = (client, verb, resource)
    return sum(
        number
        for request, number in counters.requests.items()
        if all(
            want in ("", have)
            for want, have in zip(wanted, (request.client, request.verb, request.resource), strict=True)
        )
        and code in (None, request.code)
    )
