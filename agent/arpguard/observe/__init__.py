"""What this node is doing, as Prometheus reads it."""
