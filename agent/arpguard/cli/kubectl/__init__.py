"""`kubectl arpguard`: the agents of a cluster, asked through its API server from wherever kubectl works.

    main.py            the parser, and what runs a command
    reach.py           the same command of `arpguard` in the Pods of all nodes at once, and what they say
    asking.py          vips, explain, status, decisions, conflicts, audit: a command's answers side by side
    following.py       decisions --follow: what all nodes decide, in the order of time
    doctor.py, mode.py, bundle.py      doctor of all nodes; the mode of the cluster; a support bundle
    examples.py        the examples in the help

The agents listen on a socket and on loopback only, so they are asked where they run: by `pods/exec`, as
`kubectl exec` does. A forwarded port would reach everything that listens on the node's loopback, because Pods of the
agents are in the node's network, and the API would need a port there that every process on the node can reach.
"""
