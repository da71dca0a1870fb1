"""Where the API server is, and the credentials for it: from a kubeconfig file, or the service account of a Pod.

The official client's loaders read both. A service account's token is read from its file for each request: kubelet
replaces it long before it expires. A kubeconfig's credentials (a token file, a plugin) are read again after the server
has refused them.
"""

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from arpguard.errors import ConfigError, Problem
from arpguard.importing import import_part
from arpguard.kube.errors import Failure, UnauthorizedError, cut

Configuration: TypeAlias = Any  # kubernetes.aio.client.configuration.Configuration, which mypy is kept from reading

LOOK_TIMEOUT_S = 5.0  # a plugin may go over the network
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(ABC):
    """Address, TLS and credentials of one API server."""

    def __init__(self, configuration: Configuration) -> None:
        transport = import_part("kubernetes.aio.client.rest").RESTClientObject(configuration)
        self._configuration = configuration
        self._doubted = False
        self.tls: ssl.SSLContext = transport.ssl_context

    @property
    def host(self) -> str:
        """The URL, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name in the server's certificate, if it differs from the URL's."""
        name = self._configuration.tls_server_name
        return str(name) if name else None

    @property
    def proxy(self) -> str | None:
        """The URL of an HTTP proxy to go through."""
        proxy = self._configuration.proxy
        return str(proxy) if proxy else None

    async def headers(self) -> dict[str, str]:
        """The headers with a request's credentials. Raises UnauthorizedError when they cannot be read."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                await self._look()
        except (OSError, ValueError, ConfigError) as error:
            text = cut(str(error)) or "reading the credentials takes too long"
            raise UnauthorizedError(Failure("read", "credentials", 0, text)) from error
        settings = await self._configuration.auth_settings()
        return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}

    def doubt(self) -> None:
        """The server refused the credentials, or showed a certificate of an unknown CA: both are read again."""
        self._doubted = True

    @abstractmethod
    async def _look(self) -> None:
        """Reads what may have changed. May raise OSError, ValueError or ConfigError."""

    def _trust_again(self) -> None:
        """Trusts a new CA besides the old one, which stays until the next start."""
        if self._configuration.ssl_ca_cert:
            self.tls.load_verify_locations(cafile=self._configuration.ssl_ca_cert)


class PodAccess(Access):
    """The service account that a pod runs as."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        loading = import_part("kubernetes.aio.config.incluster_config")
        configuration = _new_configuration()
        self._token = folder / "token"

        try:
            loading.InClusterConfigLoader(
                token_filename=str(self._token),
                cert_filename=str(folder / "ca.crt"),
                try_refresh_token=False,  # it goes by the wall clock, and never strips the newline
                environ=environment,
            ).load_and_set(configuration)
            super().__init__(configuration)
        except (loading.ConfigException, OSError) as error:
            raise _config_error(
                str(folder), error, "run in a pod with a service account, or give --kubeconfig"
            ) from error

    async def _look(self) -> None:
        token = self._token.read_text(encoding="ascii").strip()
        if not token.isprintable() or not token:
            raise ValueError(f"{self._token} holds no token")
        self._configuration.api_key["BearerToken"] = f"Bearer {token}"
        if self._doubted:
            self._trust_again()
            self._doubted = False


class FileAccess(Access):
    """A kubeconfig file; made by `open_file`."""

    def __init__(self, path: Path, configuration: Configuration, context: str | None = None) -> None:
        super().__init__(configuration)
        self._path = path
        self._context = context
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open_file(cls, path: Path, context: str | None = None) -> "FileAccess":
        """Reads a context of a kubeconfig: the named one, or the current. Raises ConfigError."""
        configuration = _new_configuration()
        await _load_file(path, configuration, context)
        try:
            return cls(path, configuration, context)
        except OSError as error:  # ssl.SSLError is one: the files are not certificates
            raise _config_error(str(path), error, "name certificate files that can be read") from error

    async def _look(self) -> None:
        """Reads once for all requests that wait, and keeps reading when they give up.

        Otherwise a plugin that hangs would leave a process behind for each request.
        """
        if self._doubted and self._reading is None:
            self._reading = asyncio.create_task(self._read())
        if self._reading is not None:
            reading = self._reading
            await asyncio.wait([reading])
            reading.result()

    async def _read(self) -> None:
        try:
            await _load_file(self._path, self._configuration, self._context)
            self._trust_again()
            self._doubted = False
        finally:
            self._reading = None


async def find_access(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> Access:
    """The kubeconfig's server if one is named, else the one that this pod belongs to. Raises ConfigError."""
    return await FileAccess.open_file(kubeconfig) if kubeconfig else PodAccess(SERVICE_ACCOUNT, environment)


async def find_users_access(
    kubeconfig: Path | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> Access:
    """The server that kubectl would use: by the named file, $KUBECONFIG, or ~/.kube/config; else as in a Pod.

    As with kubectl, several files may be named, separated by colons, and missing ones are ignored.
    Raises ConfigError.
    """
    named = kubeconfig or environment.get("KUBECONFIG")
    path = Path(named) if named else Path.home() / ".kube" / "config"
    if not named and not path.exists() and "KUBERNETES_SERVICE_HOST" in environment:
        return PodAccess(SERVICE_ACCOUNT, environment)
    return await FileAccess.open_file(path, context)


async def _load_file(path: Path, configuration: Configuration, context: str | None = None) -> None:
    loading = import_part("kubernetes.aio.config.kube_config")
    try:
        _expect_mappings(path)
        # As the loader does for files, so that the paths of certificates may be relative to the kubeconfig.
        await loading.load_kube_config(
            str(path), context=context, client_configuration=configuration, persist_config=False
        )
    except (loading.ConfigException, OSError, yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _config_error(str(path), error, "check it with `kubectl config view`") from error


def _expect_mappings(path: Path) -> None:
    """Raises clear errors: the loader only warns of a missing file, and gives `KeyError: 0` if it is not a mapping."""
    files = [Path(each).expanduser() for each in str(path).split(os.pathsep) if each]
    for file in [each for each in files if each.exists()] or files[:1]:
        if not isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict):
            raise TypeError("the file is not a YAML mapping")


def _new_configuration() -> Configuration:
    return import_part("kubernetes.aio.client.configuration").Configuration()


def _config_error(source: str, error: Exception, advice: str) -> ConfigError:
    return ConfigError(source, [Problem("Kubernetes access", f"{cut(str(error)) or type(error).__name__}: {advice}")])
