"""Why an agent stops, and what it then removes; does not need Kubernetes."""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from arpguard.dataplane import clsact
from arpguard.dataplane.attach import release_all

DEFAULT_NAMESPACE = "arpguard"


class End(Enum):
    """Why the agent stops."""

    REMOVED = "its DaemonSet is gone"
    REPLACED = "its pod is replaced"
    STOPPED = "shutdown requested"


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """How to reach the cluster. `configmap`: NAMESPACE/NAME, or empty. Without a kubeconfig: by the Pod's account."""

    kubeconfig: Path | None
    configmap: str

    @property
    def place(self) -> tuple[str, str]:
        """The namespace, and the ConfigMap's name."""
        namespace, _, name = self.configmap.rpartition("/")
        return namespace or os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE, name


async def remove_guard(pin_dir: Path) -> None:
    """Detaches everything under a locked folder, and in this network namespace."""
    release_all(pin_dir)
    await clsact.delete_all()
