"""Records the objects of real announcers for tests/kube/recorded: every version of each, as the API server sends it.

    PYTHONPATH=tests python -m neighbours.record FOLDER [--row TEXT]

Makes the Service `shop/web` with 192.0.2.40 on nodes worker-1 to worker-3, kills the announcer of the node that
announces it, and starts it again. FOLDER/<announcer>/ has one file for each object as it was after each change,
numbered in the order in which the server wrote them; renewals that name the same node are left out.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from neighbours.announcers import SHOP, KeepalivedKind, MetalLbDelegated, node_of
from neighbours.controlplane import BINARIES, ControlPlane, missing
from neighbours.scene import Street, a_street, end_by_signals, pins
from neighbours.table import ROWS, name_of

NAME, ADDRESS = "web", IPv4Address("192.0.2.40")
_SETTLE_S = 90.0
_WATCHING_S = 5.0  # until kubectl watches
OUR_DOMAIN = "arpguard.io/"
# What differs in each write of a Lease.
_RENEWED = {"spec": ("renewTime",), "metadata": ("resourceVersion", "managedFields")}
_KINDS = ("servicel2statuses.metallb.io", "leases.coordination.k8s.io", "services", "events")


class Recorder:
    """`kubectl get --watch` of one kind, kept in a file."""

    def __init__(self, plane: ControlPlane, kind: str, folder: Path) -> None:
        self.path = folder / f"{kind.partition('.')[0]}.watch"
        words = [BINARIES / "kubectl", f"--kubeconfig={plane.admin}", "get", kind, "--all-namespaces", "--watch"]
        words += ["--output-watch-events", "--output=json", "--show-managed-fields"]
        with self.path.open("wb") as out:
            self._process = subprocess.Popen([*plane.place.prefix(), *map(str, words)], stdout=out)

    def stop(self) -> list[dict]:
        """All events."""
        self._process.terminate()
        self._process.wait()
        decoder, text, found = json.JSONDecoder(), self.path.read_text(encoding="utf-8"), []
        while text := text.lstrip():
            event, end = decoder.raw_decode(text)
            found.append(event)
            text = text[end:]
        return found


def record(street: Street, folder: Path) -> None:
    """What is written about the Service, from its beginning over a takeover to the return of the first node."""
    kind = street.kind
    street.tend_until(lambda: street.announcing() is not None, _SETTLE_S)
    recorders = [Recorder(kind.plane, each, street.lab.folder) for each in _KINDS if _is_served(kind.plane, each)]
    time.sleep(_WATCHING_S)
    kind.mode = ""  # of the Service that is recorded: nothing of arpguard's stands in it
    kind.publish_one(NAME, ADDRESS)
    street.tend_until(lambda: street.who(ADDRESS)[ADDRESS], _SETTLE_S)
    time.sleep(5)
    owner = street.host_of(street.who(ADDRESS)[ADDRESS][0])
    print(f"{kind.name}: {node_of(owner)} announces; killed", flush=True)
    kind.end(owner, signal.SIGKILL)
    street.tend_until(lambda: False, kind.patience_s)
    print(
        f"{kind.name}: {[street.lab.who(mac) for mac in street.who(ADDRESS)[ADDRESS]]} answer; started again",
        flush=True,
    )
    kind.start(owner)
    street.tend_until(lambda: False, kind.patience_s)
    print(f"{kind.name}: {[street.lab.who(mac) for mac in street.who(ADDRESS)[ADDRESS]]} answer", flush=True)
    events = [event for each in recorders for event in each.stop() if _is_about(event["object"])]
    into = folder / kind.name.replace(" ", "-").replace(",", "")
    into.mkdir(parents=True, exist_ok=True)
    for path in into.glob("*.json"):
        path.unlink()
    for number, event in enumerate(_news(events)):
        body = event["object"]
        path = into / f"{number:02}-{event['type'].lower()}-{body['kind'].lower()}.json"
        path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def _news(events: list[dict]) -> Iterator[dict]:
    """In the order of the server's writes, which all kinds share."""
    last: dict[str, dict] = {}
    for event in sorted(events, key=lambda event: int(event["object"]["metadata"]["resourceVersion"])):
        body = event["object"]
        kept = {part: _without(body.get(part), names) for part, names in _RENEWED.items()}
        said = {"type": event["type"].replace("ADDED", "MODIFIED"), **body, **kept}
        if last.get(body["metadata"]["uid"]) != said:
            last[body["metadata"]["uid"]] = said
            yield event


def _without(part: dict | None, names: tuple[str, ...]) -> dict:
    return {name: value for name, value in (part or {}).items() if name not in names}


def _is_served(plane: ControlPlane, kind: str) -> bool:
    return kind.partition(".")[0] in plane.kubectl("api-resources", "-o=name")


def _is_about(body: dict) -> bool:
    if body.get("reportingComponent", "").startswith(OUR_DOMAIN):
        return False  # the guard's own Event: the address is outside its ranges
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    return (
        (metadata.get("namespace"), metadata["name"]) == (SHOP, NAME)
        or body.get("involvedObject", {}).get("name") == NAME
        or labels.get("metallb.io/service-name") == NAME
        or metadata["name"] in ("plndr-svcs-lock", f"kubevip-{NAME}")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--row", action="append", default=[], help="only announcers whose name has this")
    asked = parser.parse_args()
    if (why := missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    end_by_signals()
    silent = (KeepalivedKind, MetalLbDelegated)  # of which there is nothing, or nothing more, to record
    rows = [make for make in ROWS if getattr(make, "func", make) not in silent]
    with tempfile.TemporaryDirectory(prefix="arpguard-record-") as temporary, pins() as pin_root:
        for number, make in enumerate(rows):
            if not asked.row or any(text in name_of(make) for text in asked.row):
                with a_street(Path(temporary, str(number)), pin_root, make) as street:
                    record(street, asked.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
