"""What a network device does to frames before the guard sees them, by ethtool's ioctl (linux/ethtool.h)."""

import array
import fcntl
import socket
import struct

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
