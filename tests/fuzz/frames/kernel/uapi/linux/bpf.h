/* SPDX-License-Identifier: Apache-2.0 */
/* What bpf/arpguard.c takes from the kernel and from bcc, for a build in user space; kernel.c has the helpers.
 *
 * A context is as the programs see it, but for pointers, which are whole here. All that can be read directly is
 * memory of its own, exactly as long as it may be read: AddressSanitizer sees every byte too far, and every pointer
 * that is used after a helper has moved the frame.
 */
#ifndef ARPGUARD_USER_SPACE_BPF_H
#define ARPGUARD_USER_SPACE_BPF_H

#define __sk_buff kernel_sk_buff
#define xdp_md kernel_xdp_md
#include <linux/bpf.h>
#undef __sk_buff
#undef xdp_md

typedef __u32 u32;
typedef __u64 u64;
#undef __always_inline
#ifdef CALLED /* not inlined, as the kernel's programs are: that takes half as long to compile */
#define __always_inline inline
#else
#define __always_inline inline __attribute__((always_inline))
#endif

struct __sk_buff {
	unsigned long data, data_end; /* the linear part */
	__u32 len, mark, ifindex, vlan_present, vlan_tci;
	__u32 pkt_type;
	__u8 *rest;	       /* what is behind the linear part */
	__u32 redirected;      /* to which link; 0: not at all */
	__u8 summed, ungainly; /* the NIC has summed it up (CHECKSUM_COMPLETE); it cannot be made linear */
};

struct xdp_md {
	unsigned long data, data_end, data_meta;
	__u32 ingress_ifindex;
	__u8 *memory;
};

__u64 bpf_ktime_get_boot_ns(void);
__u64 bpf_jiffies64(void);
long bpf_skb_load_bytes(const struct __sk_buff *skb, __u32 offset, void *to, __u32 length);
long bpf_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length, __u64 flags);
long bpf_skb_pull_data(struct __sk_buff *skb, __u32 length);
long bpf_skb_change_tail(struct __sk_buff *skb, __u32 length, __u64 flags);
long bpf_skb_change_type(struct __sk_buff *skb, __u32 type);
long bpf_skb_vlan_pop(struct __sk_buff *skb);
int bpf_csum_update(struct __sk_buff *skb, __u32 sum);
int bpf_csum_diff(const __be32 *from, __u32 from_size, const __be32 *to, __u32 to_size, __u32 seed);
long bpf_l4_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags);
long bpf_redirect(__u32 ifindex, __u64 flags);
long bpf_xdp_adjust_head(struct xdp_md *ctx, int delta);
long bpf_xdp_adjust_tail(struct xdp_md *ctx, int delta);

/* bcc's: `name.lookup(key)`; what it does is defined in programs.c. */
#define BPF_F_TABLE(type, key_type, value_type, name, size, flags)                                                     \
	static value_type *name##_lookup(const key_type *key);                                                         \
	static struct {                                                                                                \
		value_type *(*lookup)(const key_type *);                                                               \
	} name = {name##_lookup}
#define section(name) unused

#endif
