"""The adapter to this node's kernel: programs, maps, links, and raw sockets."""
