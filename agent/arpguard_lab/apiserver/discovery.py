"""What there is: /version, /api, /apis and their pages, /openapi/v3, and the probes' paths."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.resources import ALL_VERBS, Catalogue, Resource
from arpguard_lab.apiserver.store import to_bytes

Json: TypeAlias = dict[str, Any]

_JSON = "application/json"
_AGGREGATED = "as=APIGroupDiscoveryList"
_AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_STATUS_VERBS = ("get", "patch", "update")
_PROBES = ("/healthz", "/livez", "/readyz")
VERSION: Mapping[str, str] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3-arpguard-lab",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}


def answer(catalogue: Catalogue, path: str, accept: str) -> tuple[str, bytes]:
    """(content type, body) of a path without a resource; 404 if there is nothing."""
    if path.startswith(_PROBES):
        return "text/plain; charset=utf-8", b"ok"
    path = path.rstrip("/")
    if _AGGREGATED in accept and path in ("/api", "/apis"):
        return _AGGREGATED_TYPE, to_bytes(_aggregated(catalogue, core=path == "/api"))
    page = _pages(catalogue).get(path)
    if page is None:
        raise statuses.no_such_path()
    return _JSON, to_bytes(page())


def _pages(catalogue: Catalogue) -> dict[str, Callable[[], Json]]:
    versions = [(group, version) for group, found in catalogue.versions().items() for version in found]
    pages: dict[str, Callable[[], Json]] = {
        "/version": lambda: dict(VERSION),
        "/api": _core_versions,
        "/apis": lambda: _groups(catalogue),
        "/openapi/v3": lambda: _schema_index(versions),
    }
    for group, version in versions:
        root = _root(group, version)
        pages[root] = lambda group=group, version=version: _resources(catalogue, group, version)  # type: ignore[misc]
        pages[f"/openapi/v3{root}"] = lambda group=group, version=version: _schema(catalogue, group, version)  # type: ignore[misc]
        if group:
            pages[f"/apis/{group}"] = lambda group=group: _group(catalogue, group)  # type: ignore[misc]
    return pages


def _root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _of(catalogue: Catalogue, group: str, version: str) -> list[Resource]:
    found = (resource for resource in catalogue if (resource.group, resource.version) == (group, version))
    return sorted(found, key=lambda resource: resource.plural)


def _core_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _groups(catalogue: Catalogue) -> Json:
    groups = [_group(catalogue, group) for group in catalogue.versions() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(catalogue: Catalogue, group: str) -> Json:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in catalogue.versions()[group]]
    described = {"name": group, "versions": versions, "preferredVersion": versions[0]}
    return {"kind": "APIGroup", "apiVersion": "v1", **described}


def _resources(catalogue: Catalogue, group: str, version: str) -> Json:
    found = _of(catalogue, group, version)
    listed = [entry for resource in found for entry in _entries(resource)]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}


def _entries(resource: Resource) -> Iterable[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
    }
    yield {**entry, "shortNames": list(resource.short)} if resource.short else entry
    if resource.status:
        yield {**entry, "name": f"{resource.plural}/status", "singularName": "", "verbs": list(_STATUS_VERBS)}


def _aggregated(catalogue: Catalogue, *, core: bool) -> Json:
    groups = [group for group in catalogue.versions() if (not group) == core]
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_aggregated_version(catalogue, group, version) for version in catalogue.versions()[group]],
        }
        for group in groups
    ]
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return {**kind, "metadata": {}, "items": items}


def _aggregated_version(catalogue: Catalogue, group: str, version: str) -> Json:
    listed = [_aggregated_resource(resource) for resource in _of(catalogue, group, version)]
    return {"version": version, "freshness": "Current", "resources": listed}


def _aggregated_resource(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: Json = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(ALL_VERBS),
        "shortNames": list(resource.short),
    }
    if resource.status:
        status = {"subresource": "status", "responseKind": kind, "verbs": list(_STATUS_VERBS)}
        entry["subresources"] = [status]
    return entry


def _schema_index(versions: list[tuple[str, str]]) -> Json:
    paths = [_root(group, version).lstrip("/") for group, version in versions]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def _schema(catalogue: Catalogue, group: str, version: str) -> Json:
    """As much as kubectl wants: that every kind can be patched with fieldValidation. There are no schemas in it."""
    paths = {}
    for resource in _of(catalogue, group, version):
        kind = {"group": group, "version": version, "kind": resource.kind}
        parameters = [{"name": name, "in": "query"} for name in ("fieldValidation", "dryRun")]
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        patch = {"parameters": parameters, "x-kubernetes-group-version-kind": kind, "responses": {}}
        paths[f"{resource.path}{scope}/{resource.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "arpguard lab", "version": "0"}, "paths": paths}
