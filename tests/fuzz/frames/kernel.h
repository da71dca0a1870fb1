/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as hooks have them, in user space, and the clocks that programs read. */
#ifndef ARPGUARD_USER_SPACE_KERNEL_H
#define ARPGUARD_USER_SPACE_KERNEL_H

#include <uapi/linux/bpf.h>
#include <uapi/linux/pkt_cls.h>

extern __u64 clock_ns, clock_jiffies;
extern __u32 clock_reads; /* how often a program asked for the time */

/* A frame at tc whose first `linear` bytes can be read directly. */
void skb_make(struct __sk_buff *skb, const __u8 *bytes, __u32 length, __u32 linear);
void skb_read(const struct __sk_buff *skb, __u8 *to);
void skb_free(struct __sk_buff *skb);

/* A frame at XDP behind 4 bytes of metadata. */
void xdp_make(struct xdp_md *ctx, __u32 meta, const __u8 *bytes, __u32 length);
void xdp_free(struct xdp_md *ctx);

/* The link that bpf_redirect() was called with since this was called last; 0: none. */
__u32 take_redirection(void);

#endif
