"""The running agent: `startup` brings the guard up, `wiring` builds the agent, and its parts own the state."""
