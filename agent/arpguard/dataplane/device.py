"""What a network device does to frames before the guard sees them (ethtool, linux/ethtool.h), and how many came in."""

import array
import fcntl
import socket
import struct
from pathlib import Path

_DEVICES = Path("/proc/thread-self/net/dev")  # not /sys/class/net, which may show another namespace
_SIOCETHTOOL = 0x8946
_ETHTOOL_GFLAGS = 0x25
_ETH_FLAG_RXVLAN = 1 << 8


def strips_vlan_tags(name: str) -> bool:
    """Whether the device takes VLAN tags out of received frames, where XDP cannot see them; False if it cannot say."""
    value = array.array("B", struct.pack("=II", _ETHTOOL_GFLAGS, 0))
    request = struct.pack("16sP", name.encode(), value.buffer_info()[0]).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, _SIOCETHTOOL, request)
        except OSError:
            return False
    flags: int = struct.unpack("=II", value.tobytes())[1]
    return bool(flags & _ETH_FLAG_RXVLAN)


def frames_heard(name: str) -> int:
    """How many frames have ever come over a link, of whatever kind; 0 when it is gone."""
    for line in _DEVICES.read_text(encoding="utf-8", errors="replace").splitlines():
        found, _, numbers = line.partition(":")
        if found.strip() == name:
            return int(numbers.split()[1])
    return 0
