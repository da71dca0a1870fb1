"""Who may answer in a cluster: heartbeats, claims, and what the kernel is told. Pure: events in, effects out."""
