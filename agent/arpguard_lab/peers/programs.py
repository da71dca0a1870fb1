"""Announcers on the lab's nodes: how each is started, and whether a node holds the VIP."""

import os
import shutil
import sys
from pathlib import Path

from arpguard.addresses import Address
from arpguard_lab.topology import Host, HostProcess, states_of

ROUTER_ID = 51
VMAC = f"00:00:5e:00:01:{ROUTER_ID:02x}"  # RFC 5798 7.3
VMAC_DEVICE = f"vrrp.{ROUTER_ID}"
KEEPALIVED = "keepalived"
INSTANCE = "lab"
ADVERTISEMENT_S = 0.2
ANNOUNCEMENT_MS = 500
REFUSED = "failed to send"  # what an announcer says when tc egress drops its frame
_SYSTEM = ("/usr/sbin", "/sbin")

_KEEPALIVED_CONF = """
global_defs {{
  router_id {name}
  vrrp_garp_master_delay 1
  vrrp_garp_master_refresh 1
  vrrp_notify_fifo {fifo}
  fifo_write_vrrp_states_on_reload
  {scheduling}
}}
vrrp_instance {instance} {{
  interface eth0
  {options}
  state BACKUP
  version 3
  virtual_router_id {router_id}
  priority {priority}
  advert_int {interval}
  virtual_ipaddress {{
    {vip}
  }}
}}
"""


class Keepalived(HostProcess):
    """The real program, with one VRRP instance; it and its child end together."""

    own_group = True
    scheduling = "vrrp_rt_priority 50"  # before ordinary tasks

    def __init__(
        self,
        host: Host,
        folder: Path,
        vip: Address,
        priority: int,
        *,
        vmac: bool,
        interval_s: float = ADVERTISEMENT_S,
        router_id: int = ROUTER_ID,
    ) -> None:
        """`priority`: the highest is master; `vmac`: the VIP is on a macvlan with the MAC of the virtual router."""
        super().__init__(host, folder, KEEPALIVED)
        self._program = find(KEEPALIVED)
        self._pid_files = {option: folder / f"{host.name}-keepalived.{option}" for option in ("pid", "vrrp_pid")}
        self._vip = vip
        self.device = VMAC_DEVICE if vmac else "eth0"
        self._config = folder / f"{host.name}-keepalived.conf"

        text = _KEEPALIVED_CONF.format(
            name=host.name,
            instance=INSTANCE,
            options="use_vmac" if vmac else "",
            router_id=router_id,
            priority=priority,
            interval=interval_s,
            scheduling=self.scheduling,
            vip=f"{vip}/{vip.max_prefixlen}",
            fifo=states_of(host, folder),
        )

        self._config.write_text(text, encoding="utf-8")

    def words(self) -> list[str]:
        """In the foreground, VRRP only, nothing shared with another keepalived on this machine."""
        words = [self._program or KEEPALIVED, "--dont-fork", "--vrrp", "--log-console", "--log-detail", "--no-syslog"]
        words += ["--use-file", str(self._config)]
        return [*words, *(f"--{option}={path}" for option, path in self._pid_files.items())]

    def start(self) -> None:
        """Without what one that was killed left: it takes a child that is not quite gone for a daemon that runs."""
        for path in self._pid_files.values():
            path.unlink(missing_ok=True)
        super().start()

    def holds(self) -> bool:
        """Whether the VIP is on the node."""
        return holds(self.host, self._vip)


class _Announcer(HostProcess):
    """A module of `arpguard_lab.peers`, run with the link, arguments of its own, and the VIP."""

    module = ""
    arguments: tuple[str, ...] = ()

    def __init__(self, host: Host, folder: Path, vip: Address) -> None:
        super().__init__(host, folder, f"{self.module.replace('_', '-')}-like")
        self._vip = vip

    def words(self) -> list[str]:
        """Its command line."""
        return [sys.executable, "-m", f"arpguard_lab.peers.{self.module}", "eth0", *self.arguments, str(self._vip)]


class MetalLbLike(_Announcer):
    """See `arpguard_lab.peers.metallb`."""

    module = "metallb"


class KubeVipLike(_Announcer):
    """See `arpguard_lab.peers.kube_vip`."""

    module = "kube_vip"
    arguments = (str(ANNOUNCEMENT_MS),)


def find(program: str) -> str | None:
    """Where a program is installed, also if only root's PATH has that."""
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM)))


def holds(host: Host, vip: Address) -> bool:
    """Whether a VIP is on any link of a node."""
    return bool(host.netns.run("ip", "-oneline", "addr", "show", "to", f"{vip}"))
