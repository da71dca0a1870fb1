/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's part of a program run, in user space: frames in memory of their own, and helpers that change them.
 *
 * Each does what net/core/filter.c does as far as the programs can tell; tests compare whole frames with those that
 * the kernel leaves. Whatever moves a frame frees what it moved from.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

__u64 clock_ns = 1, clock_jiffies;
__u32 clock_reads;

static __u32 linear(const struct __sk_buff *skb)
{
	return skb->data_end - skb->data;
}

/* Memory of this size, and never none. */
static void *block(size_t size)
{
	void *memory = malloc(size ? size : 1);

	if (!memory)
		abort();
	return memory;
}

static __u8 *byte_at(const struct __sk_buff *skb, __u32 offset)
{
	return offset < linear(skb) ? (__u8 *)skb->data + offset : skb->rest + (offset - linear(skb));
}

void skb_read(const struct __sk_buff *skb, __u8 *to)
{
	memcpy(to, (__u8 *)skb->data, linear(skb));
	memcpy(to + linear(skb), skb->rest, skb->len - linear(skb));
}

/* Moves it into new memory: `length` bytes, of which so many are linear. */
static void skb_lay(struct __sk_buff *skb, const __u8 *bytes, __u32 length, __u32 linear_length)
{
	__u8 *head = block(linear_length), *rest = block(length - linear_length);

	memcpy(head, bytes, linear_length);
	memcpy(rest, bytes + linear_length, length - linear_length);
	skb->data = (unsigned long)head;
	skb->data_end = skb->data + linear_length;
	skb->rest = rest;
	skb->len = length;
}

static void skb_relay(struct __sk_buff *skb, __u32 length, __u32 linear_length)
{
	__u8 *bytes = block(length > skb->len ? length : skb->len);
	struct __sk_buff old = *skb;

	memset(bytes, 0, length > skb->len ? length : skb->len);
	skb_read(skb, bytes);
	skb_lay(skb, bytes, length, linear_length);
	skb_free(&old);
	free(bytes);
}

void skb_make(struct __sk_buff *skb, const __u8 *bytes, __u32 length, __u32 linear_length)
{
	memset(skb, 0, sizeof(*skb));
	skb_lay(skb, bytes, length, linear_length < length ? linear_length : length);
}

void skb_free(struct __sk_buff *skb)
{
	free((void *)skb->data);
	free(skb->rest);
}

/* ---- helpers at tc --------------------------------------------------------------------------------------------- */

__u64 bpf_ktime_get_boot_ns(void)
{
	clock_reads++;
	return clock_ns;
}

__u64 bpf_jiffies64(void)
{
	return clock_jiffies;
}

long bpf_skb_load_bytes(const struct __sk_buff *skb, __u32 offset, void *to, __u32 length)
{
	__u32 i;

	if ((__u64)offset + length > skb->len)
		return -EFAULT;
	for (i = 0; i < length; i++)
		((__u8 *)to)[i] = *byte_at(skb, offset + i);
	return 0;
}

long bpf_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length, __u64 flags)
{
	__u32 i;

	if ((__u64)offset + length > skb->len)
		return -EFAULT;
	for (i = 0; i < length; i++)
		*byte_at(skb, offset + i) = ((const __u8 *)from)[i];
	return 0;
}

long bpf_skb_pull_data(struct __sk_buff *skb, __u32 length)
{
	if (length > skb->len || skb->ungainly)
		return -ENOMEM;
	skb_relay(skb, skb->len, length > linear(skb) ? length : linear(skb));
	return 0;
}

/* A frame that is made longer or shorter is linear afterwards. */
long bpf_skb_change_tail(struct __sk_buff *skb, __u32 length, __u64 flags)
{
	skb_relay(skb, length, length);
	skb->summed = skb->summed && length < skb->len;
	return 0;
}

long bpf_skb_change_type(struct __sk_buff *skb, __u32 type)
{
	skb->pkt_type = type;
	return 0;
}

long bpf_skb_vlan_pop(struct __sk_buff *skb)
{
	skb->vlan_present = skb->vlan_tci = 0;
	return 0;
}

/* A sum has 32 bits, and bcc's header takes it for an int. This one has all of them set but one. */
int bpf_csum_update(struct __sk_buff *skb, __u32 sum)
{
	return skb->summed ? 0xfffffffe : -ENOTSUP;
}

static __u32 folded(__u64 sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __u64 words(const void *bytes, __u32 size, __u32 flip)
{
	__u64 sum = 0;
	__u32 word;
	__u32 i;

	for (i = 0; i < size; i += sizeof(word)) {
		memcpy(&word, (const __u8 *)bytes + i, sizeof(word));
		sum += word ^ flip;
	}
	return sum;
}

/* As in kernels before 6.13, which do not fold it: half of the sums have the highest bit set. */
int bpf_csum_diff(const __be32 *from, __u32 from_size, const __be32 *to, __u32 to_size, __u32 seed)
{
	__u64 sum = words(from, from_size, 0xffffffff) + words(to, to_size, 0) + seed;

	while (sum >> 32)
		sum = (__u32)sum + (sum >> 32);
	return sum;
}

/* `from` is 0 and `to` a difference: inet_proto_csum_replace_by_diff(). */
long bpf_l4_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags)
{
	__u16 sum;

	if (from || flags != BPF_F_PSEUDO_HDR || bpf_skb_load_bytes(skb, offset, &sum, sizeof(sum)))
		return -EFAULT;
	sum = ~folded((__u64)(__u16)~sum + to);
	return bpf_skb_store_bytes(skb, offset, &sum, sizeof(sum), 0);
}

static __u32 redirected_to;

long bpf_redirect(__u32 ifindex, __u64 flags)
{
	redirected_to = flags ? 0 : ifindex;
	return TC_ACT_REDIRECT;
}

__u32 take_redirection(void)
{
	__u32 ifindex = redirected_to;

	redirected_to = 0;
	return ifindex;
}

/* ---- XDP ------------------------------------------------------------------------------------------------------- */

static void xdp_lay(struct xdp_md *ctx, const __u8 *meta, __u32 meta_length, const __u8 *bytes, __u32 length)
{
	__u8 *memory = block(meta_length + length);

	memcpy(memory, meta, meta_length);
	memcpy(memory + meta_length, bytes, length);
	ctx->memory = memory;
	ctx->data_meta = (unsigned long)memory;
	ctx->data = ctx->data_meta + meta_length;
	ctx->data_end = ctx->data + length;
}

void xdp_make(struct xdp_md *ctx, __u32 meta, const __u8 *bytes, __u32 length)
{
	xdp_lay(ctx, (const __u8 *)&meta, sizeof(meta), bytes, length);
}

void xdp_free(struct xdp_md *ctx)
{
	free(ctx->memory);
}

/* Takes `front` bytes away, and makes the rest `length` bytes long; what is new is 0. */
static void xdp_relay(struct xdp_md *ctx, __u32 front, __u32 length)
{
	__u32 left = ctx->data_end - ctx->data - front, meta = ctx->data - ctx->data_meta;
	__u8 *bytes = block(length > left ? length : left), *old = ctx->memory;

	memset(bytes, 0, length > left ? length : left);
	memcpy(bytes, (__u8 *)ctx->data + front, left);
	xdp_lay(ctx, (__u8 *)ctx->data_meta, meta, bytes, length);
	free(bytes);
	free(old);
}

long bpf_xdp_adjust_head(struct xdp_md *ctx, int delta)
{
	__u32 length = ctx->data_end - ctx->data;

	if (delta < 0 || delta + 14 > (int)length)
		return -EINVAL;
	xdp_relay(ctx, delta, length - delta);
	return 0;
}

long bpf_xdp_adjust_tail(struct xdp_md *ctx, int delta)
{
	long length = (long)(ctx->data_end - ctx->data) + delta;

	if (length < 14)
		return -EINVAL;
	xdp_relay(ctx, 0, length);
	return 0;
}
