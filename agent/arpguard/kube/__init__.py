"""This agent's side of the Kubernetes API: what it reads by lists and watches, and what it writes."""
