"""The lab's own API server as a process of its own, in a namespace of its own."""

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any

import yaml

from arpguard.errors import ArpguardError
from arpguard.units import NS_PER_S
from arpguard_lab import warm
from arpguard_lab.apiserver.manifests import of_rbac
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.kubeapi import Control, KubeApi, connect_directly
from arpguard_lab.cluster.servers import ApiUnderTest, Fault
from arpguard_lab.cluster.topology import API_ADDRESS, API_PORT, KubeLab
from arpguard_lab.interrupts import put_off
from arpguard_lab.oracle import LeaseWrite
from arpguard_lab.topology import Host

HOME = "arpguard"
_ADMIN = "lab"
_START_S = 20.0
_WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Double(ApiUnderTest):
    """`python -m arpguard_lab.apiserver`."""

    is_double = True
    faults = (
        Fault("cut"),
        Fault("stall"),
        Fault("freeze"),
        Fault("swallow", 2),
        Fault("zombie", 0.7),
        Fault("delay", [{"seconds": 0.6}]),
        Fault("fail", -1),
    )

    def __init__(self, lab: KubeLab, manifests: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(lab, HOME)
        self._documents = objects.moved(manifests, HOME, HOME) or objects.access(HOME)
        self._control = Control(lab.folder / "control.sock")
        self._process: warm.Process | None = None
        self._log = lab.folder / "apiserver.log"
        self._revision = 1

    def node_name(self, host: Host) -> str:
        """The host's own name."""
        return host.name

    def start(self) -> None:
        """A new process with an empty store."""
        folder = self.lab.folder
        (folder / "control.sock").unlink(missing_ok=True)

        scene = folder / "scene.yaml"
        scene.write_text(yaml.safe_dump_all([objects.namespace(self.home), *self._documents]), encoding="utf-8")
        rbac = folder / "rbac.yaml"
        rbac.write_text(yaml.safe_dump_all(of_rbac(self._documents)), encoding="utf-8")

        words = [sys.executable, "-m", "arpguard_lab.apiserver", "--listen", f"{API_ADDRESS}:{API_PORT}"]
        words += ["--control", f"unix:{folder / 'control.sock'}", "--kubeconfigs", str(folder / "kubeconfigs")]
        words += ["--load", str(scene), "--rbac", str(rbac), "--client", _ADMIN]
        for host in self.lab.nodes:
            words += ["--client", f"{host.name}={self.home}/{objects.ACCOUNT}"]

        (folder / "kubeconfigs").mkdir(exist_ok=True)
        reading, writing = os.pipe()
        with open(reading, "rb") as said, self._log.open("ab") as log:
            with open(writing, "wb") as out, put_off():
                command = [*self.lab.api.prefix(), *words]
                self._process = warm.popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
            self._wait_until_it_listens(self._process, said)

        self._revision = 1
        for host in self.lab.nodes:
            self.lab.guards[host.name].kubeconfig = folder / "kubeconfigs" / f"{host.name}.yaml"
        self.api = self._client(folder / "kubeconfigs" / f"{_ADMIN}.yaml")

    def _wait_until_it_listens(self, process: warm.Process, said: IO[bytes]) -> None:
        if not select.select([said], [], [], _START_S)[0] or not said.readline():
            process.kill()
            process.wait()
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise ArpguardError(f"the lab's API server did not start: {' '.join(last) or 'its log is empty'}")

    def _client(self, path: Path) -> KubeApi:
        kubeconfig = yaml.safe_load(path.read_text(encoding="utf-8"))
        return KubeApi(kubeconfig, lambda address: self.lab.api.call(lambda: connect_directly(address)))

    def stop(self) -> None:
        """Ends it; what it has written since the journal was last read is kept, if that is."""
        if self._process is not None:
            if self.lab.traces is not None:
                with suppress(ArpguardError, OSError):
                    self.journal()
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def go_down(self) -> None:
        """Drops all connections, and listens no more. What it knows stays."""
        self._control.ask("POST", "down")

    def come_back(self) -> None:
        """Listens again; the watch cache is empty."""
        self._control.ask("POST", "up")

    def snapshot(self) -> int:
        """A backup of all there is; its number."""
        return int(self._control.ask("POST", "snapshots")["snapshot"])

    def restore(self, snapshot: int) -> None:
        """Puts a backup in place of all there is, as of an etcd: revisions go back too, and no client learns of it."""
        self._control.ask("POST", f"restore/{snapshot}")
        self._revision = 1

    def trouble(self, host: Host, fault: Fault | None) -> None:
        """Sets the faults of one client."""
        self._control.ask("PUT", f"faults/{host.name}", {fault.name: fault.value} if fault else {})

    def pace(self, writes_per_s: float) -> bool:
        """By the double itself."""
        self._control.ask("PUT", "pace", {"writes_per_s": writes_per_s})
        return True

    def writes(self) -> dict[str, int]:
        """By client."""
        counted: Counter[str] = Counter()
        for row in self._requests(*_WRITES):
            counted[str(row["client"])] += int(row["count"])
        return {host.name: counted[host.name] for host in self.lab.nodes}

    def claim_writes(self) -> int:
        """By the journal; this reads only its number of rows."""
        rows = self._control.ask("GET", "journal?since=1")
        return sum(str(row["name"]).startswith("vip.") for row in rows)

    def reads(self) -> int:
        """Of all agents."""
        return sum(int(row["count"]) for row in self._requests("get", "list"))

    def secret_reads(self) -> int:
        """Of all agents."""
        return sum(int(row["count"]) for row in self._requests("get") if row["resource"] == "secrets")

    def _requests(self, *verbs: str) -> list[dict[str, Any]]:
        counters = self._control.ask("GET", "counters")
        return [row for row in counters["requests"] if row["verb"] in verbs and row["client"] != _ADMIN]

    def journal(self) -> list[LeaseWrite]:
        """From the store itself, with the times at which it took the writes."""
        rows = self._control.ask("GET", f"journal?since={self._revision}")
        if rows:
            self._revision = int(rows[-1]["revision"])
            if self.lab.traces is not None:
                self.lab.traces.keep(rows)
        return [write for row in rows if (write := lease_write(row)) is not None]


def lease_write(row: dict[str, Any]) -> LeaseWrite | None:
    """A row of the journal; None for a Lease that is not the agents', and for a heartbeat that is deleted.

    No claim is void because a heartbeat is missing: only another epoch in it makes claims void.
    """
    body = row.get("object") or {"metadata": {}, "spec": {}}
    notes = body["metadata"].get("annotations") or {}
    kind, _, rest = str(row["name"]).partition(".")
    if kind == "node" and "object" in row:
        uid, lease_ns = str(body["metadata"].get("uid", "")), body["spec"].get("leaseDurationSeconds", 0) * NS_PER_S
        epoch = str(notes.get(f"{objects.PREFIX}epoch", ""))
        return LeaseWrite(row["time_ns"], node=rest, epoch=epoch, uid=uid, lease_ns=lease_ns)
    if kind == "vip":
        holder = str((body.get("spec") or {}).get("holderIdentity") or "")
        epoch, uid = (str(notes.get(f"{objects.PREFIX}{name}", "")) for name in ("holder-epoch", "holder-uid"))
        return LeaseWrite(row["time_ns"], vip=ip_address(rest.replace("-", ":")), holder=holder, epoch=epoch, uid=uid)
    return None
