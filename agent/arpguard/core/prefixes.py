"""Which of many networks an address is in, without looking at each network."""

from collections.abc import Iterable

from arpguard.addresses import Address, Network


class Prefixes:
    """A set of networks. A search takes one look for each prefix length in the set, not for each network."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks: dict[tuple[int, int, int], Network] = {}
        for network in networks:
            host_bits = network.max_prefixlen - network.prefixlen
            key = network.version, network.prefixlen, int(network.network_address) >> host_bits
            self._networks[key] = network
        self._lengths = {
            version: sorted({length for found, length, _ in self._networks if found == version}, reverse=True)
            for version in (4, 6)
        }

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prefixes) and self._networks.keys() == other._networks.keys()

    __hash__ = None  # type: ignore[assignment]

    def containing(self, address: Address) -> tuple[Network, ...]:
        """The networks that the address is in, the smallest first."""
        version, number, bits = address.version, int(address), address.max_prefixlen
        keys = ((version, length, number >> (bits - length)) for length in self._lengths[version])
        return tuple(self._networks[key] for key in keys if key in self._networks)
