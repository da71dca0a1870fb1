"""The agent's client of the Kubernetes API: what it lists and watches, and what it writes."""
