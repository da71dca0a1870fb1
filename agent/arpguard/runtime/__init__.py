"""The running agent: wires everything below it together, and owns the state."""
