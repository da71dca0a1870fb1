"""The running agent towards the kernel of its node: what it is told, what it reports, and what it listens to."""
