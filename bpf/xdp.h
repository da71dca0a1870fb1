/* SPDX-License-Identifier: Apache-2.0 */
/* What is particular to frames at XDP: how they are changed. No maps. */
#ifndef ARPGUARD_XDP_H
#define ARPGUARD_XDP_H

#include "frame.h"
#include "vouch.h"

static __always_inline struct view view_xdp(const struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return (struct view){.data = data, .end = end, .length = end - data};
}

/* Makes the frame `length` bytes long, and takes its tag away. */
static __always_inline int resize_xdp(struct xdp_md *ctx, const struct seen *s, __u32 length)
{
	int more = length - untagged_length(s);

	if (s->place.tags && bpf_xdp_adjust_head(ctx, VLAN_TAG_LEN))
		return -1;
	return more ? bpf_xdp_adjust_tail(ctx, more) : 0;
}

static __always_inline int arp_answer_xdp(struct xdp_md *ctx, const struct seen *s, __u64 mac)
{
	__u32 length = untagged_length(s) < ETH_MIN_LEN ? ARP_FRAME_LEN : ETH_MIN_LEN;
	__u16 *padding;
	void *data;
	int i;

	if (resize_xdp(ctx, s, length))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	if (data + ARP_FRAME_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	arp_build_reply(data, &s->facts, mac);
	if (data + ETH_MIN_LEN <= (void *)(long)ctx->data_end) {
		padding = data + ARP_FRAME_LEN;
#pragma unroll
		for (i = 0; i < (ETH_MIN_LEN - ARP_FRAME_LEN) / 2; i++)
			padding[i] = 0;
	}
	return XDP_TX;
}

static __always_inline int nd_answer_xdp(struct xdp_md *ctx, const struct seen *s, __u64 mac)
{
	void *data;

	if (resize_xdp(ctx, s, ND_ANSWER_LEN))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	if (data + ND_ANSWER_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	nd_build_answer(data, &s->facts, mac);
	return XDP_TX;
}

/* The payload of a frame of vouching; null: it is not all there. */
static __always_inline __u32 *vouch_in_xdp(const struct xdp_md *ctx, __u32 payload)
{
	void *body = (void *)(long)ctx->data + (opaque(payload) & MAX_OFFSET);

	return body + VOUCH_LEN <= (void *)(long)ctx->data_end ? body : 0;
}

/* Reads a frame of vouching; not 0: it is none that can be read. */
static __always_inline int read_vouch_xdp(const struct xdp_md *ctx, __u32 payload, struct vouch_frame *f)
{
	void *data = (void *)(long)ctx->data;
	const __u32 *body = vouch_in_xdp(ctx, payload);

	if (!body || data + ETH_HEADER_LEN > (void *)(long)ctx->data_end || mac_is_group(mac_load(data)))
		return -1;
	vouch_copy((__u32 *)f, body);
	return 0;
}

/* Sends the frame back with `f` in it, tagged as it came. */
static __always_inline int pong_xdp(const struct xdp_md *ctx, __u32 payload, const struct vouch_frame *f)
{
	void *data = (void *)(long)ctx->data;
	__u32 *body = vouch_in_xdp(ctx, payload);
	__u64 dst;

	if (!body || data + ETH_HEADER_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	dst = mac_load(data);
	mac_store(data, mac_load(data + 6));
	mac_store(data + 6, dst);
	vouch_copy(body, (const __u32 *)f);
	return XDP_TX;
}

/* Turns the question into its answer, from `mac`, and sends it back. */
static __always_inline int answer_xdp(struct xdp_md *ctx, const struct seen *s, __u64 mac)
{
	return s->nd.ip ? nd_answer_xdp(ctx, s, mac) : arp_answer_xdp(ctx, s, mac);
}

/* Turns the claim into a reply of the same meaning. */
static __always_inline int disarm_xdp(struct xdp_md *ctx, const struct seen *s)
{
	__u16 *body = (void *)(long)ctx->data + (opaque(s->place.body) & MAX_OFFSET);

	if ((void *)(body + ARP_BODY_LEN / 2) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	body[3] = BE16(OP_REPLY);
	body[9] = body[4];
	body[10] = body[5];
	body[11] = body[6];
	return XDP_PASS;
}

#endif
