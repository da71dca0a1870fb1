"""A node of the lab with something wrong: what the doctor says there, and what comes of its advice."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError
from arpguard_lab import warm
from arpguard_lab.bench import until
from arpguard_lab.cluster import objects
from arpguard_lab.netns import command
from arpguard_lab.topology import NETWORK, Host, Lab

if TYPE_CHECKING:
    from arpguard_lab.apiserver.embedded import Embedded

Json: TypeAlias = dict[str, Any]

VIP_OFFSET = 100  # from the last byte of a ward's address to that of its VIP
DEADLINE_S = 90.0  # an agent whose programs the verifier reads on a busy machine
SHOP = "shop"
_LONG_S = 90.0


class Ward:
    """A fresh node on the lab's switch, a VIP, and what the doctor says there.

    `limits` is what the doctor's command line begins with: what it is kept from.
    """

    def __init__(self, lab: Lab, number: int, config: str = "") -> None:
        self.lab = lab
        self.host = lab.join(f"ward-{number}", number)
        self.vip = IPv4Address(f"{NETWORK}.{number + VIP_OFFSET}")
        self.agent = lab.agent(self.host)
        self.configured = bool(config)
        self.server: Embedded | None = None
        self.limits: tuple[str, ...] = ()
        self.foreign: Fd | None = None  # the link of another program
        self._stack = ExitStack()
        if config:
            self.configure(config)

    def configure(self, config: str) -> None:
        """Gives doctor and agent this configuration; `{vip}` and `{node}` in it are the ward's."""
        self.agent.configure(config.replace("{vip}", str(self.vip)).replace("{node}", self.host.name))

    def sh(self, *lines: str) -> None:
        """Runs shell lines on the node; `{vip}` in them is the VIP."""
        self._run(self.host, lines)

    def outside(self, *lines: str) -> None:
        """Runs shell lines on the lab's client, a host of no cluster."""
        self._run(self.lab.client, lines)

    def serve(self, *documents: Json) -> None:
        """Starts an API server on the node that has these objects."""
        from arpguard_lab.apiserver.embedded import running  # noqa: PLC0415 - 9 MB, and few traps are about one
        from arpguard_lab.apiserver.server import Options  # noqa: PLC0415

        self.server = self.host.netns.call(lambda: self._stack.enter_context(running(Options(tls=False))))
        self.server.do(lambda it: it.load([objects.namespace(SHOP), objects.namespace("kube-system"), *documents]))
        self.server.do(lambda it: it.write_kubeconfig(self.kubeconfig, "admin"))

    @property
    def kubeconfig(self) -> Path:
        """Where `serve` says how its server is reached."""
        return self.agent.config.with_suffix(".kubeconfig")

    def doctor(self, *words: str) -> str:
        """What `arpguard doctor` prints; DataPlaneError when it does not come to a verdict."""
        own = ["--pin-dir", str(self.agent.pin_dir), "--address", self.agent.api]
        own = ["--config", str(self.agent.config)] if self.configured else own
        own += ["--kubeconfig", str(self.kubeconfig)] if self.server else []
        asked = [sys.executable, "-m", "arpguard", "doctor", "--node-name", self.host.name, *own, *words]
        done = warm.run([*self.host.netns.prefix(), *self.limits, *asked], timeout=_LONG_S)
        if done.returncode not in (0, 1) or done.stderr:
            raise DataPlaneError(f"the doctor failed ({done.returncode}): {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def check(self, name: str) -> Json:
        """One check's result."""
        found: list[Json] = [each for each in json.loads(self.doctor("-o", "json"))["checks"] if each["check"] == name]
        return found[0]

    def take_advice(self, before: Json) -> None:
        """Runs what `--fix-hints` prints; for what is not bad, the commands of a check's findings."""
        if before["verdict"] == "bad":
            self.sh(self.doctor("--fix-hints"))
        else:
            self.sh(*(line for finding in before["findings"] for line in finding["commands"]))

    def start_agent(self) -> None:
        """Starts the node's agent, and waits until it guards."""
        self.agent.start()
        self.agent.wait_for()

    def stop_agent(self) -> None:
        """Stops it; the guard stays."""
        self.agent.kill(signal.SIGTERM)

    def _run(self, host: Host, lines: Sequence[str]) -> None:
        script = "\n".join(["set -e", *lines]).replace("{vip}", str(self.vip))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        kubeconfig = f"KUBECONFIG={self.kubeconfig}"
        command(*host.netns.prefix(), "env", f"PATH={path}", kubeconfig, "sh", "-c", script)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_agent()
        for pid in _processes_of(self.agent.config):
            os.kill(pid, signal.SIGTERM)
        until(lambda: not _processes_of(self.agent.config), DEADLINE_S, f"no agent is left on {self.host.name}")
        if self.foreign is not None:
            self.foreign.close()
        self._stack.close()


def _processes_of(config: Path) -> list[int]:
    """Agents that were started with a configuration, also those that a hint has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # gone
            continue
        if b"agent" in words and os.fsencode(config) in words:
            found.append(int(folder.name))
    return found


Deed: TypeAlias = Callable[[Ward], None]


@dataclass(frozen=True, slots=True)
class Trap:
    """`lay` makes it; `mend` None: the doctor's own commands do. What the check has to say: `grade`, then `cured`."""

    check: str
    what: str
    lay: Deed
    mend: Deed | None = None
    config: str = ""
    grade: str = "bad"
    cured: str = "ok"
    needs_tcx: bool = False


def treat(lab: Lab, number: int, trap: Trap) -> tuple[str, str, str]:
    """Lays a trap on a node of its own, and has it found and fixed: what the check said before and after, and saw."""
    with Ward(lab, number, trap.config) as ward:
        trap.lay(ward)
        before = ward.check(trap.check)
        if trap.mend is None:
            ward.take_advice(before)
        else:
            trap.mend(ward)
        after = ""

        def is_well() -> bool:
            nonlocal after
            after = str(ward.check(trap.check)["verdict"])
            return after == trap.cured

        with suppress(DataPlaneError):
            until(is_well, DEADLINE_S, "the check passes")
        seen = next(each["seen"] for each in before["findings"] if each["verdict"] == before["verdict"])
        return before["verdict"], after, seen
