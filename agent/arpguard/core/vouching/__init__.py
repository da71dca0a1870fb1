"""Vouching (docs/vouching.md), pure: what a voucher does, without sockets, clocks and the API server."""
