"""A lab of network namespaces that shows the problem and the cure on real ARP."""
