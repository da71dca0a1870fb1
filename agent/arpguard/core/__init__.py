"""Decisions: pure functions of values; no IO, no clock, no logging."""
