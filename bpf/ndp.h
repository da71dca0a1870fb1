/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbour discovery (RFC 4861) over Ethernet (RFC 2464): from bytes to facts, and from facts to an advertisement.
 *
 * Pure functions over memory: no maps, no context.
 */
#ifndef ARPGUARD_NDP_H
#define ARPGUARD_NDP_H

#include "facts.h"

#define IPV6_HEADER_LEN 40
#define NEXT_ICMPV6 58 /* IANA "Assigned Internet Protocol Numbers" */

#define ND_MESSAGE_LEN 24 /* up to the first option */
#define ND_MAX_LEN 512	  /* a longer message is not read to its end */
#define ND_ANSWER_LEN (ETH_HEADER_LEN + IPV6_HEADER_LEN + ND_MESSAGE_LEN + 8)

#define ND_HOP_LIMIT 255
#define ND_SOURCE_LINK_LAYER 1
#define ND_TARGET_LINK_LAYER 2
#define ND_SOLICITED BE32(0x40000000)
#define ND_OVERRIDE BE32(0x20000000)

/* A message, where it is: of the IPv6 header and of the message up to its first option all bytes can be read, of what
 * follows those up to `end`. */
struct nd_message {
	const __be32 *ip, *body;
	void *end;
	__s32 there;  /* bytes from `body` to the end of the frame */
	__s32 length; /* as the headers tell */
	__u8 extensions;
};

/* An answer behind two bytes that do not belong to it, which align the addresses. */
struct nd_answer {
	__be32 words[(2 + ND_ANSWER_LEN) / 4];
};

/* RFC 1071, over 32-bit words; of two's complement machines of both byte orders. */
static __always_inline __u16 checksum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}

static __always_inline __u64 addr_sum(const __be32 *a)
{
	return (__u64)a[0] + a[1] + a[2] + a[3];
}

/* What is summed beside the message (RFC 8200 8.1). */
static __always_inline __u64 pseudo_sum(const __be32 *src, const __be32 *dst, __u32 length)
{
	return addr_sum(src) + addr_sum(dst) + BE32(length) + BE32(NEXT_ICMPV6);
}

/* Where frames to a group go, given its last four bytes (RFC 2464 7). */
static __always_inline __u64 mac_of_group(__be32 low)
{
	return 0x3333 | (__u64)low << 16;
}

/* ff02::1:ff00:0/104 (RFC 4291 2.7.1) */
static __always_inline int is_solicited_node(const __be32 *a)
{
	return a[0] == BE32(0xff020000) && !a[1] && a[2] == BE32(1) && (__u8)a[3] == 0xff;
}

/* Reads what it takes to know whether a message is of any concern. */
static __always_inline void nd_parse(struct facts *f, const struct nd_message *m)
{
	const __be32 *target = m->body + 2;

	f->op = (__u8)m->body[0];
	addr_copy(f->spa, f->op == OP_SOLICIT ? m->ip + 2 : target);
	addr_copy(f->tpa, f->op == OP_SOLICIT ? target : m->ip + 6);
}

struct nd_options {
	__u64 mac;	  /* in the first link-layer address of the kind asked for */
	__u64 sum;	  /* of their bytes */
	__u64 link_layer; /* length of the first link-layer address of the kind asked for, in units of 8 bytes */
	__u64 bad;	  /* one has no length, or is longer than the message */
};

/* All bits if `x` is 0 or less, else none. */
static __always_inline __u64 if_none(__s64 x)
{
	return opaque((__s64)(opaque(x) - 1) >> 63);
}

/* Reads the options, unit by unit: all have a length in units of 8 bytes (RFC 4861 4.6), and of each kind the first
 * one counts (ndisc_parse_options()).
 * The verifier follows every branch of the loop on its own, and the code behind the loop once for each state in which
 * it can be left. So the loop uses masks instead of branches, and `forgotten` hides what differs from unit to unit.
 * `unit` has a hidden 0 added, which makes it a pointer of its own to the verifier: else the bounds check of each unit
 * would say something new about every pointer into the message. */
static __always_inline void nd_read_options(struct nd_options *o, const struct nd_message *m, __u32 length, __u8 wanted)
{
	const __be32 *unit = (void *)m->body + ND_MESSAGE_LEN + (forgotten(0, length) & 4);
	__s64 units = (length - ND_MESSAGE_LEN) / 8, left = 0;
	__u64 begins, counts, size, bad = 0;
	int i;

	for (i = 0; i < (ND_MAX_LEN - ND_MESSAGE_LEN) / 8; i++, unit += 2) {
		if (i >= units)
			break;
		if ((void *)(unit + 2) > m->end)
			break;
		o->sum += (__u64)unit[0] + unit[1];
		begins = if_none(left);
		size = begins & unit[0] >> 8 & 0xff;
		bad |= begins & (if_none(size) | if_none(units - i - size + 1));
		counts = begins & ~bad & if_none((__u8)unit[0] ^ wanted) & if_none(o->link_layer);
		o->link_layer |= counts & size;
		o->mac |= counts & (unit[0] >> 16 | (__u64)unit[1] << 16);
		left = forgotten(left + size - 1, length);
	}
	o->bad = forgotten(bad | (i ^ units) | length % 8, length);
	o->link_layer = forgotten(o->link_layer, length);
}

/* Why no host may believe or answer it: RFC 4861 7.1.1 and 7.1.2, as ndisc_rcv() and what it calls have them.
 * REASON_NOT_STRICT: it was not read to its end. */
static __always_inline __u8 nd_flaw(const struct facts *f, const struct nd_message *m, const struct nd_options *o)
{
	const __be32 *dst = m->ip + 6, *target = m->body + 2;
	int dad = f->op == OP_SOLICIT && addr_is_zero(f->spa);

	if (m->ip[1] >> 24 != ND_HOP_LIMIT || (__u8)(m->body[0] >> 8))
		return REASON_ND_INVALID;
	if (m->length < ND_MESSAGE_LEN || m->length > m->there || ipv6_is_multicast(target))
		return REASON_ND_INVALID;
	if (dad && !is_solicited_node(dst))
		return REASON_ND_INVALID;
	if (f->op == OP_ADVERTISE && ipv6_is_multicast(dst) && m->body[1] & ND_SOLICITED)
		return REASON_ND_INVALID;
	if (m->length > ND_MAX_LEN)
		return REASON_NOT_STRICT;
	if (o->bad || o->link_layer > 1 || (dad && o->link_layer))
		return REASON_ND_INVALID;
	return checksum_fold(pseudo_sum(m->ip + 2, dst, m->length) + o->sum) ? REASON_ND_CHECKSUM : REASON_UNSET;
}

/* Whether a solicitation is one that no host sends, though a kernel may answer it: to none of the destinations that
 * RFC 4861 7.2.2 and 7.2.4 name, or to a group without a word on where to answer (4.3). */
static __always_inline int nd_is_odd(const struct facts *f, const struct nd_message *m, const struct nd_options *o)
{
	const __be32 *dst = m->ip + 6, *target = m->body + 2;

	if (m->extensions)
		return 1;
	if (addr_equal(dst, target))
		return 0;
	if (!o->link_layer && !addr_is_zero(f->spa))
		return 1;
	if (is_solicited_node(dst))
		return ((dst[3] ^ target[3]) & BE32(0x00ffffff)) != 0;
	return dst[0] != BE32(0xff020000) || dst[1] || dst[2] || dst[3] != BE32(1);
}

/* Reads the rest. */
static __always_inline void nd_examine(struct facts *f, const struct nd_message *m)
{
	__s32 readable = m->length < m->there ? m->length : m->there;
	const __be32 *dst = m->ip + 6, *b = m->body;
	__u8 wanted = f->op == OP_SOLICIT ? ND_SOURCE_LINK_LAYER : ND_TARGET_LINK_LAYER;
	struct nd_options o = {.sum = (__u64)b[0] + b[1] + b[2] + b[3] + b[4] + b[5]};

	if (readable >= ND_MESSAGE_LEN && readable <= ND_MAX_LEN)
		nd_read_options(&o, m, readable, forgotten(wanted, readable));
	if (o.link_layer)
		f->sha = o.mac;
	if (ipv6_is_multicast(dst))
		f->group = mac_of_group(dst[3]);
	f->odd = forgotten(nd_is_odd(f, m, &o), m->length);
	f->flaw = forgotten(nd_flaw(f, m, &o), m->length);
}

/* The advertisement that answers a solicitation, from `mac` (RFC 4861 7.2.4): to all nodes if :: asked.
 * BENCH builds write a solicitation with as many stores, as arp_build_reply() does. */
static __always_inline void nd_build_answer(__u16 *r, const struct facts *f, __u64 mac)
{
#ifdef BENCH
	const __be32 *src = f->spa;
	const __u16 head = OP_SOLICIT, option = BE16(ND_SOURCE_LINK_LAYER << 8 | 1);
	__be32 dst[4] = {BE32(0xff020000), 0, BE32(1), f->tpa[3] | BE32(0xff000000)}, flags = 0;
	__u64 eth_dst = mac_of_group(dst[3]);

	mac = f->sha;
#else
	const __be32 *src = f->tpa;
	const __u16 head = OP_ADVERTISE, option = BE16(ND_TARGET_LINK_LAYER << 8 | 1);
	__be32 dst[4] = {BE32(0xff020000), 0, 0, BE32(1)}, flags = ND_OVERRIDE;
	__u64 eth_dst = mac_of_group(dst[3]);

	if (!addr_is_zero(f->spa)) {
		addr_copy(dst, f->spa);
		flags |= ND_SOLICITED;
		eth_dst = f->sha;
	}
#endif
	__u64 sum = pseudo_sum(src, dst, ND_MESSAGE_LEN + 8) + head + flags + addr_sum(f->tpa) + option +
		    (mac & 0xffffffff) + (mac >> 32);
	__be32 *ip = (__be32 *)&r[ETH_HEADER_LEN / 2];

	mac_store(r, eth_dst);
	mac_store(r + 3, mac);
	r[6] = ETHERTYPE_IPV6;
	ip[0] = BE32(6 << 28);
	ip[1] = BE32((ND_MESSAGE_LEN + 8) << 16 | NEXT_ICMPV6 << 8 | ND_HOP_LIMIT);
	addr_copy(ip + 2, src);
	addr_copy(ip + 6, dst);
	ip[10] = head | (__u32)checksum_fold(sum) << 16;
	ip[11] = flags;
	addr_copy(ip + 12, f->tpa);
	r[39] = option;
	mac_store(r + 40, mac);
}

#endif
