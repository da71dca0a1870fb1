"""The agent's cluster side: objects come in, this node plays its part in the claim protocol, Events and Leases go out.

Agents without a cluster use `leaving` and `conflicts`, too: these import nothing of the Kubernetes client.
"""
