"""The lab with Kubernetes: agents that follow an API server, what goes wrong with both, and what the wire said.

scenarios.py, planned.py, refused.py   the scenarios; rounds.py: random faults
bench.py, scene.py                     what those are made of: agents, objects, questions
topology.py                            nodes with a second network, on which the API server is
servers.py, double.py, real.py, forwarding.py   the API server: the lab's own, or one that is given
kubeapi.py, objects.py                 the lab's own requests, and the objects it makes
"""
