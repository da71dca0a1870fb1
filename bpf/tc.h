/* SPDX-License-Identifier: Apache-2.0 */
/* What is particular to frames at tc: bytes that are not linear, a tag beside the frame, and how frames are changed.
 *
 * No maps. Numbers returned are return codes of programs, or 0 and something else for errors.
 */
#ifndef ARPGUARD_TC_H
#define ARPGUARD_TC_H

#include "frame.h"
#include "vouch.h"

#define PACKET_OTHERHOST 3 /* linux/if_packet.h */

/* Makes what is to be read of the frame directly readable: a driver may leave only the Ethernet header linear. */
static __always_inline int make_linear(struct __sk_buff *skb, const struct seen *s)
{
	__u32 want = s->place.body + (s->place.ip ? ND_MAX_LEN : ARP_BODY_LEN);

	if (s->length < want)
		want = s->length;
	if ((void *)(long)skb->data + (opaque(want) & MAX_OFFSET) <= (void *)(long)skb->data_end)
		return 0;
	return bpf_skb_pull_data(skb, want);
}

/* Reads the tag that the kernel or the NIC took out of the frame, if it did; returns whether its VID is not 0. */
static __always_inline int read_tag_beside(const struct __sk_buff *skb, struct seen *s)
{
	if (!skb->vlan_present)
		return 0;
	s->facts.tags++;
	return skb->vlan_tci & 0x0fff;
}

static __always_inline struct view view_tc(struct __sk_buff *skb)
{
	return (struct view){
	    .data = (void *)(long)skb->data, .end = (void *)(long)skb->data_end, .skb = skb, .length = skb->len};
}

/* Reads what was found; what the kernel would read in bytes that cannot be made linear is unknown. */
static __always_inline __u8 read_tc(struct __sk_buff *skb, struct seen *s)
{
	if (make_linear(skb, s))
		return REASON_UNWALKABLE;
	return read_facts(s, (void *)(long)skb->data, (void *)(long)skb->data_end);
}

static __always_inline int arp_answer_tc(struct __sk_buff *skb, const struct seen *s, __u64 mac)
{
	__u16 reply[ETH_MIN_LEN / 2] = {};
	__u32 len = untagged_length(s) < ETH_MIN_LEN ? ARP_FRAME_LEN : ETH_MIN_LEN;

	arp_build_reply(reply, &s->facts, mac);
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (skb->len != len && bpf_skb_change_tail(skb, len, 0))
		return TC_ACT_SHOT;
	/* Two calls, because the length of a store has to be a constant for older verifiers. */
	if (len == ETH_MIN_LEN ? bpf_skb_store_bytes(skb, 0, reply, ETH_MIN_LEN, 0)
			       : bpf_skb_store_bytes(skb, 0, reply, ARP_FRAME_LEN, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Makes the kernel forget what the NIC has summed up (CHECKSUM_COMPLETE), which is of the frame as it came: a receiver
 * on this machine would verify another one by it. Kernels forget when a frame grows. */
static __always_inline int forget_sum(struct __sk_buff *skb)
{
	/* A sum has 32 bits: in the int of bcc's header one with the highest bit set would look like an error. */
	__s64 (*update)(struct __sk_buff * skb, __u32 sum) = (void *)bpf_csum_update;

	return update(skb, 0) >= 0 && bpf_skb_change_tail(skb, ETH_HEADER_LEN + IPV6_HEADER_LEN, 0);
}

static __always_inline int nd_answer_tc(struct __sk_buff *skb, const struct seen *s, __u64 mac)
{
	struct nd_answer answer;
	__u16 *frame = (__u16 *)answer.words + 1;

	nd_build_answer(frame, &s->facts, mac);
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (forget_sum(skb))
		return TC_ACT_SHOT;
	if (skb->len != ND_ANSWER_LEN && bpf_skb_change_tail(skb, ND_ANSWER_LEN, 0))
		return TC_ACT_SHOT;
	if (bpf_skb_store_bytes(skb, 0, frame, ND_ANSWER_LEN, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Reads a frame of vouching; not 0: it is none that can be read. */
static __always_inline int read_vouch_tc(struct __sk_buff *skb, __u32 payload, struct vouch_frame *f)
{
	void *data = (void *)(long)skb->data;

	if (data + ETH_HEADER_LEN > (void *)(long)skb->data_end || mac_is_group(mac_load(data)))
		return -1;
	if (skb->vlan_present && (payload > ETH_HEADER_LEN || skb->vlan_tci & 0x0fff))
		return -1;
	return bpf_skb_load_bytes(skb, payload, f, VOUCH_LEN);
}

/* Sends the frame back with `f` in it, tagged as it came. */
static __always_inline int pong_tc(struct __sk_buff *skb, __u32 payload, const struct vouch_frame *f)
{
	void *data = (void *)(long)skb->data;
	__u16 macs[6];

	if (data + ETH_HEADER_LEN > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	mac_store(macs, mac_load(data + 6));
	mac_store(macs + 3, mac_load(data));
	if (bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) || bpf_skb_store_bytes(skb, payload, f, VOUCH_LEN, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Turns the question into its answer, from `mac`, and sends it back. */
static __always_inline int answer_tc(struct __sk_buff *skb, const struct seen *s, __u64 mac)
{
	return s->nd.ip ? nd_answer_tc(skb, s, mac) : arp_answer_tc(skb, s, mac);
}

/* Has the kernel take it for a frame to another host, which it does not read (arp_rcv(), ip6_rcv_core()). Guests on
 * this link (macvlan), taps and ports still get it. */
static __always_inline int hide_tc(struct __sk_buff *skb)
{
	return bpf_skb_change_type(skb, PACKET_OTHERHOST) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Turns the claim into a reply of the same meaning. */
static __always_inline int disarm_tc(struct __sk_buff *skb, struct seen *s)
{
	__u64 sha = s->facts.sha; /* the first 6 of its bytes, on little-endian machines */
	__be16 op = BE16(OP_REPLY);

	if (bpf_skb_store_bytes(skb, s->place.body + 6, &op, sizeof(op), 0) ||
	    bpf_skb_store_bytes(skb, s->place.body + 18, &sha, 6, 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

/* Puts `primary` in the place of the spa. */
static __always_inline int rewrite_tc(struct __sk_buff *skb, const struct seen *s, __be32 *primary)
{
	__u32 body = s->place.body;
	__be32 old[4];
	__u32 changed; /* kernels before 6.13 use all of its bits */

	if (!s->nd.ip)
		return bpf_skb_store_bytes(skb, body + 14, &primary[3], 4, 0) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	addr_copy(old, s->facts.spa);
	changed = bpf_csum_diff(old, 16, primary, 16, 0);
	if (bpf_l4_csum_replace(skb, body + 2, 0, changed, BPF_F_PSEUDO_HDR) ||
	    bpf_skb_store_bytes(skb, s->place.ip + 8, primary, 16, 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

#endif
