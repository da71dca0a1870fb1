"""Which neighbours there are, and how they come from the Go module proxy. `make neighbours` builds them once."""

CONTAINERD = "2.4.2"
KUBERNETES = "1.36.3"
METALLB = ("0.14.9", "0.15.3", "0.16.1", "0.16.2")
# The proxy lacks frr-k8s 0.0.27, which MetalLB 0.16.2 needs for BGP alone: an older one stands in for it (build.py).
STUBBED = ("0.16.2",)
WHOLE = tuple(version for version in METALLB if version not in STUBBED)
FRR_K8S = "0.0.25"
KUBE_VIP = "1.2.2"
