"""The agent's cluster side: objects come in, this node takes part in the claim protocol, Events and Leases go out."""
