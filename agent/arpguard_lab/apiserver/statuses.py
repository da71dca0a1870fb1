"""The errors of the API, as a kube-apiserver words them: HTTP code, reason, message and details (`kind: Status`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from arpguard_lab.apiserver.resources import Resource

Json: TypeAlias = dict[str, Any]


class ApiError(Exception):
    """A request that ends in a Status other than Success."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def headers(self) -> dict[str, str]:
        """Retry-After, where there is one."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def body(self) -> Json:
        """The Status."""
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return {**status, "code": self.code}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong in an object."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> Json:
        """The entry in `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def success(resource: Resource, name: str, uid: str) -> Json:
    """What a deletion answers."""
    details = _details(resource, name) | {"uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def no_such_path() -> ApiError:
    """404 for a path that leads to no resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_found(resource: Resource, name: str) -> ApiError:
    """404 for an object."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """409 for a creation."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> ApiError:
    """409 for an update."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def deletion_conflict(resource: Resource, name: str, field: str, wanted: str, found: str) -> ApiError:
    """409 for a deletion whose preconditions do not hold."""
    changed = "deleted and then recreated" if field == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {_kind(resource)} "{name}": the {field} in the precondition ({wanted}) does '
        f"not match the {field} in record ({found}). The object might have been {changed}"
    )
    return ApiError(409, "Conflict", message, _details(resource, name) | {"kind": resource.kind})


def other_uid(resource: Resource, key: tuple[str, str], wanted: str, found: str) -> ApiError:
    """409: a PUT that names the uid of another object, or of none that is there."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{'/'.join(filter(None, key))}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {found}"
    )
    return conflict(resource, key[1], why)


def modified(resource: Resource, name: str) -> ApiError:
    """409: the resourceVersion is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422."""
    listed = ", ".join(map(str, errors))
    listed = f"[{listed}]" if len(errors) > 1 else listed
    details: Json = {"name": name, "group": resource.table[0], "kind": resource.kind}
    details = {key: value for key, value in details.items() if value} | {"causes": [each.cause() for each in errors]}
    return ApiError(422, "Invalid", f'{_kind(resource)} "{name}" is invalid: {listed}', details)


def version_required(resource: Resource, name: str) -> ApiError:
    """422: a PUT without a resourceVersion. It names the resource, not the kind, and 0, as the registry does."""
    error = FieldError(
        "metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update"
    )
    message = f'{resource.qualified} "{name}" is invalid: {error}'
    return ApiError(422, "Invalid", message, _details(resource, name) | {"causes": [error.cause()]})


def unfit_patch(patch: object, why: str) -> ApiError:
    """422: a patch does not result in such an object."""
    error = FieldError("patch", "FieldValueInvalid", f'Invalid value: "{patch}": {why}')
    return ApiError(422, "Invalid", f' "" is invalid: {error}', {"causes": [error.cause()]})


def wrong_options(field: str, why: str) -> ApiError:
    """422: parameters of a list or watch that do not go together."""
    error = FieldError(field, "FieldValueForbidden", f"Forbidden: {why}")
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [error.cause()]}
    return ApiError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {error}', details)


def internal(message: str) -> ApiError:
    """500 for what a kube-apiserver has no better code for."""
    return ApiError(500, "", message)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def unreadable(resource: Resource, why: str) -> ApiError:
    """400: the body is not such an object."""
    return bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden_use(plural: str, group: str, name: str, why: str) -> ApiError:
    """403 by RBAC, for resources that need not be there."""
    qualified = f"{plural}.{group}" if group else plural
    what = f'{qualified} "{name}"' if name else qualified
    details = {key: value for key, value in (("name", name), ("group", group), ("kind", plural)) if value}
    return ApiError(403, "Forbidden", f"{what} is forbidden: {why}", details)


def forbidden_path(user: str, verb: str, path: str) -> ApiError:
    """403 by RBAC, for a path without a resource."""
    return ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def method_not_allowed() -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_acceptable() -> ApiError:
    """406: there is JSON only."""
    message = "406: Not Acceptable\n\nAvailable representations: application/json"
    return ApiError(406, "NotAcceptable", message, {})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def unsupported_patch() -> ApiError:
    """415 for a kind of patch that there is not."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def manager_required() -> ApiError:
    """422: an apply by nobody."""
    error = FieldError("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
    message = f'PatchOptions.meta.k8s.io "" is invalid: {error}'
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [error.cause()]}
    return ApiError(422, "Invalid", message, details)


def too_large() -> ApiError:
    """413."""
    return ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


def expired(message: str) -> ApiError:
    """410: what was asked about is no longer known."""
    return ApiError(410, "Expired", message)


def too_old(revision: int, oldest: int) -> ApiError:
    """410: a watch from before what is remembered."""
    return expired(f"too old resource version: {revision} ({oldest})")


def from_the_future(revision: int, current: int) -> ApiError:
    """504: a revision that is not there yet."""
    message = f"Too large resource version: {revision}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})


_FAILURES = {
    401: ("Unauthorized", "Unauthorized", {}),
    403: ("Forbidden", "forbidden: a fault of the lab", {}),
    429: ("TooManyRequests", "Too many requests, please try again later.", {"retryAfterSeconds": 1}),
    500: ("InternalError", "Internal error occurred: a fault of the lab", {}),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request", {}),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout", {}),
}
FAILURE_CODES = tuple(_FAILURES)


def terminating(resource: Resource, namespace: str, name: str) -> ApiError:
    """403: the namespace is going away."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    message = f"namespace {namespace} is being terminated"
    error = forbidden_use(resource.plural, resource.group, name, why)
    cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
    error.details = (error.details or {}) | {"causes": [cause]}
    return error


def failure(code: int) -> ApiError:
    """One of the failures that a test may order."""
    return ApiError(code, *_FAILURES[code])


def _kind(resource: Resource) -> str:
    group = resource.table[0]
    return f"{resource.kind}.{group}" if group else resource.kind


def _details(resource: Resource, name: str) -> Json:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
