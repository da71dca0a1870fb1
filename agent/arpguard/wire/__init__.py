"""Codecs: bytes to values and back; no IO."""
