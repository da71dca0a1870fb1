"""Other programs that answer for VIPs: the real keepalived, and announcers that speak as MetalLB and kube-vip do."""
