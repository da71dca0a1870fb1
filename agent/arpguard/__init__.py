"""arpguard: at most one node answers for a virtual IP."""

__version__ = "0.1.0"
