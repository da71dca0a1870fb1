"""YAML files into the store: the scene that a lab starts with. A CustomResourceDefinition registers its resource."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from arpguard.errors import ConfigError, Problem
from arpguard_lab.apiserver.registry import Registry
from arpguard_lab.apiserver.resources import Catalogue
from arpguard_lab.apiserver.statuses import ApiError
from arpguard_lab.apiserver.store import Stored

Json: TypeAlias = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io/"


def load(registry: Registry, catalogue: Catalogue, documents: Iterable[Json], source: str) -> list[Stored]:
    """Puts objects into the store; ConfigError for what cannot be."""
    return [_put(registry, catalogue, document, source) for document in _flat(documents)]


def read(path: Path) -> list[Json]:
    """The documents of a file; ConfigError if it cannot be read."""
    try:
        return parse(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        problem = Problem(str(path), f"{type(error).__name__}: {error}: must be a YAML file of Kubernetes objects")
        raise ConfigError("arpguard lab", [problem]) from error


def parse(text: str) -> list[Json]:
    """The documents of a text. JSON is YAML too, and read fifty times as fast on its own."""
    try:
        documents = [json.loads(text)]
    except ValueError:
        documents = list(yaml.safe_load_all(text))
    return list(_flat(documents))


def of_rbac(documents: Iterable[Json]) -> list[Json]:
    """Those that say who may do what."""
    return [document for document in documents if document.get("apiVersion", "").startswith(_RBAC)]


def _flat(documents: Iterable[Json | None]) -> Iterator[Json]:
    """Leaves empty documents out, and takes lists apart."""
    for document in documents:
        if document and document.get("kind") == "List":
            yield from document["items"]
        elif document:
            yield document


def _put(registry: Registry, catalogue: Catalogue, document: Json, source: str) -> Stored:
    kind = (document.get("apiVersion", ""), document.get("kind", ""))
    resource = catalogue.of_kind(*kind)
    if resource is None:
        allowed = "must be a kind that the lab knows, or that an earlier CustomResourceDefinition defines"
        raise ConfigError("arpguard lab", [Problem(source, f"{' '.join(kind)}: {allowed}")])
    try:
        return registry.put(resource, document)
    except ApiError as error:
        name = document.get("metadata", {}).get("name", "")
        raise ConfigError("arpguard lab", [Problem(source, f"{kind[1]} {name}: {error.message}")]) from error
