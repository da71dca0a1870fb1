"""Which neighbours there are, and how they come from the Go module proxy. `make neighbours` builds them once."""

CONTAINERD = "2.4.2"
KUBERNETES = "1.36.3"
METALLB = ("0.14.9", "0.15.3", "0.16.1")
KUBE_VIP = "1.2.2"
