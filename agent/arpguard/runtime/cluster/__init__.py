"""The agent's side towards the cluster: objects in, this node's part in the claim protocol, Events and Leases out.

`leaving` and `conflicts` are for agents without a cluster, too, and import nothing of the Kubernetes client.
"""
