"""Who may answer in a cluster: heartbeats, claims, and the kernel's fence and entries. Pure: events in, effects out."""
