"""The running agent: wires together everything below it, and owns the state."""
