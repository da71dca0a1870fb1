"""Which node may answer: heartbeats, claims, and the kernel's fence and entries. Pure: events in, effects out."""
