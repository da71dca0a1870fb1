/* SPDX-License-Identifier: Apache-2.0 */
/* From a frame to facts: where the ARP body or the neighbour discovery message is, and what it says.
 *
 * Linux reads through priority tags (VID 0), however deep they are nested (__netif_receive_skb_core()), and through
 * extension headers of IPv6.
 */
#ifndef ARPGUARD_FRAME_H
#define ARPGUARD_FRAME_H

#include "arp.h"
#include "ndp.h"

#define VLAN_TAG_LEN 4

#define MAX_TAGS 8
#define MAX_EXTENSIONS 8

/* Masks that all offsets of these headers fit in: the verifier has to see how far they can be. */
#define MAX_TAG_OFFSET (2 * MAX_TAGS * VLAN_TAG_LEN - VLAN_TAG_LEN)
#define MAX_OFFSET 0x7fff /* 8 extension headers of 2048 bytes, and what stands before them */

/* Next headers (IANA "Assigned Internet Protocol Numbers"). */
#define NEXT_HOP_BY_HOP 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_DESTINATION 60

/* In the second half of a fragment header (RFC 8200 4.5). */
#define FRAGMENT_OFFSET BE32(0x0000fff8)
#define FRAGMENT_MORE BE32(0x00000001)

/* Neither ARP nor neighbour discovery: passes, and is not even counted. */
#define NO_CONCERN REASON_COUNT
/* The same, of another EtherType than IP's: it may be a frame of vouching. */
#define OTHER_TYPE (REASON_COUNT + 1)

/* The bytes of a frame: directly readable up to `end`, and at tc those behind it through `skb`; 0 at XDP. */
struct view {
	void *data, *end;
	struct __sk_buff *skb;
	__u32 length;
};

/* Offsets from the start of the frame. */
struct place {
	__u32 ip; /* of the IPv6 header; 0: it is ARP */
	__u32 body;
	__u32 end; /* of the IPv6 packet, as its header tells */
	__u8 tags;
	__u8 extensions; /* headers between that of IPv6 and the message */
};

/* The end of a frame is known to who reads it. */
#define NO_END (~0ull)

/* Four bytes before `end` as they are; negative: they are not there. */
static __always_inline __s64 word_at(const struct view *v, __u64 offset, __u64 end)
{
	__u32 *word = v->data + offset;
	__u32 copy;

	if (offset + sizeof(copy) > end)
		return -1;
	if ((void *)(word + 1) <= v->end)
		return *word;
	if (v->skb && !bpf_skb_load_bytes(v->skb, offset, &copy, sizeof(copy)))
		return copy;
	return -1;
}

static __always_inline int is_vlan(__be16 ethertype)
{
	return ethertype == ETHERTYPE_8021Q || ethertype == ETHERTYPE_8021AD;
}

static __always_inline int is_extension(__u8 next)
{
	return next == NEXT_HOP_BY_HOP || next == NEXT_ROUTING || next == NEXT_FRAGMENT || next == NEXT_DESTINATION;
}

/* Where a packet ends by its second word. If that says 0 before a hop-by-hop header, where the frame does: Linux takes
 * it for a jumbogram (ip6_rcv_core()). */
static __always_inline __u32 packet_end(const struct place *p, const struct view *v, __u32 sizes)
{
	__u32 payload = __builtin_bswap16((__u16)sizes);

	if (!payload && (__u8)(sizes >> 16) == NEXT_HOP_BY_HOP)
		return v->length;
	return p->ip + IPV6_HEADER_LEN + payload;
}

/* Finds the solicitation or advertisement in the IPv6 packet at `p->ip`.
 * One that is fragmented cannot be read. Receivers ignore it, unless configured otherwise (RFC 6980 5,
 * suppress_frag_ndisc); fragments but the first say nothing. */
static __always_inline __u8 locate_nd(struct place *p, const struct view *v)
{
	__u64 offset = p->ip + IPV6_HEADER_LEN, end = NO_END;
	__s64 word, sizes = word_at(v, p->ip + 4, end);
	__u8 next = (__u8)(sizes >> 16), type;
	int i;

	if (sizes < 0 || (next != NEXT_ICMPV6 && !is_extension(next)))
		return NO_CONCERN;
	word = word_at(v, p->ip, end);
	if (word < 0 || (word & 0xf0) != 0x60)
		return NO_CONCERN;
	p->end = packet_end(p, v, sizes);
	for (i = 0; i < MAX_EXTENSIONS; i++) {
		if (!is_extension(next))
			break;
		word = word_at(v, offset, end);
		if (word < 0)
			return end == NO_END ? NO_CONCERN : REASON_UNWALKABLE;
		offset += 8;
		if (next != NEXT_FRAGMENT)
			offset += (word >> 8 & 0xff) * 8;
		else if (word & FRAGMENT_OFFSET)
			return NO_CONCERN;
		else if (word & FRAGMENT_MORE)
			end = p->end;
		offset = opaque(offset) & MAX_OFFSET;
		next = (__u8)word;
	}
	if (is_extension(next))
		return REASON_UNWALKABLE;
	if (next != NEXT_ICMPV6)
		return NO_CONCERN;
	word = word_at(v, offset, end);
	type = (__u8)word;
	if (word >= 0 && type != OP_SOLICIT && type != OP_ADVERTISE)
		return NO_CONCERN;
	if (end != NO_END)
		return REASON_UNWALKABLE;
	if (word < 0)
		return NO_CONCERN;
	p->body = offset;
	p->extensions = i;
	return REASON_UNSET;
}

/* Whether a frame of this EtherType may be ARP or neighbour discovery. */
static __always_inline int is_read(__be16 ethertype)
{
	return ethertype == ETHERTYPE_ARP || ethertype == ETHERTYPE_IPV6 || is_vlan(ethertype);
}

/* Fills `p`. Returns REASON_UNSET when there is something to judge, else why there is not. IPv4 is recognised first:
 * most frames are IPv4. */
static __always_inline __u8 locate(struct place *p, const struct view *v)
{
	__be16 *ethertype = v->data + ETH_HEADER_LEN - 2, type;
	__u64 walked = 0;
	__s64 word;
	int i;

	if ((void *)(ethertype + 1) > v->end || *ethertype == ETHERTYPE_IPV4)
		return NO_CONCERN;
	type = *ethertype;
	if (!is_read(type))
		return OTHER_TYPE;
	for (i = 0; i < MAX_TAGS; i++) {
		if (!is_vlan(type))
			break;
		word = word_at(v, ETH_HEADER_LEN + walked, NO_END);
		if (word < 0)
			return REASON_NOT_ARP;
		if (word & BE16(0x0fff))
			return REASON_OTHER_VLAN;
		/* What is added to the length of the tag is 0, as was just seen; but the verifier does not know that,
		 * and so it looks at the code behind this loop once, and not once for each number of tags. */
		walked += VLAN_TAG_LEN + (opaque(word) & BE16(0x0fff));
		walked = opaque(walked & MAX_TAG_OFFSET);
		type = (__be16)(word >> 16);
	}
	p->tags = walked / VLAN_TAG_LEN;
	p->body = ETH_HEADER_LEN + walked;
	if (is_vlan(type))
		return REASON_UNWALKABLE;
	if (type == ETHERTYPE_ARP)
		return REASON_UNSET;
	if (type != ETHERTYPE_IPV6)
		return REASON_NOT_ARP;
	p->ip = p->body;
	return locate_nd(p, v);
}

/* Whether a frame in which `locate` found nothing to judge, and said so by `reason`, may be of yet another type. */
static __always_inline int is_other_type(__u8 reason)
{
	return reason == OTHER_TYPE || reason == REASON_NOT_ARP;
}

/* Where the payload of such a frame is if it is of this EtherType, perhaps behind one tag; 0: it is not. */
static __always_inline __u32 payload_of(const struct view *v, __be16 type)
{
	__u32 offset = ETH_HEADER_LEN;
	__s64 word = word_at(v, offset - sizeof(__u32), NO_END);

	if (word >= 0 && is_vlan((__be16)(word >> 16))) {
		word = word_at(v, offset, NO_END);
		offset += VLAN_TAG_LEN;
	}
	return word >= 0 && (__be16)(word >> 16) == type ? offset : 0;
}

/* What was read of a frame. Of `arp` and `nd.ip` one is a null pointer, and tells which family it is of: the
 * verifier keeps track of pointers. */
struct seen {
	struct place place;
	struct facts facts;
	const __u16 *eth, *arp;
	struct nd_message nd;
	__u32 length; /* of the frame */
};

/* Reads what s->place tells of, as far as it takes to know whether it is of any concern. */
static __always_inline __u8 read_facts(struct seen *s, void *data, void *end)
{
	void *body = data + (opaque(s->place.body) & MAX_OFFSET), *ip;

	if (data + ETH_HEADER_LEN > end)
		return REASON_NOT_ARP;
	s->eth = data;
	if (!s->place.ip) {
		if (body + ARP_BODY_LEN > end)
			return REASON_NOT_ARP;
		s->arp = body;
		return arp_parse(&s->facts, body) ? REASON_UNSET : REASON_NOT_ARP;
	}
	ip = data + (opaque(s->place.ip) & MAX_OFFSET);
	if (ip + IPV6_HEADER_LEN > end || body + ND_MESSAGE_LEN > end)
		return REASON_NOT_ND;
	s->nd.ip = ip;
	s->nd.body = body;
	s->nd.end = end;
	s->nd.there = s->length - s->place.body;
	s->nd.length = s->place.end - s->place.body;
	s->nd.extensions = s->place.extensions;
	nd_parse(&s->facts, &s->nd);
	return REASON_UNSET;
}

/* Reads the rest: a VIP is concerned. */
static __always_inline void examine(struct seen *s)
{
	struct facts *f = &s->facts;

	f->eth_dst = mac_load(s->eth);
	f->eth_src = f->sha = mac_load(s->eth + 3);
	f->tha = f->group = 0;
	f->odd = f->flaw = 0;
	if (s->nd.ip)
		nd_examine(f, &s->nd);
	else if (s->arp)
		arp_examine(f, s->arp);
}

static __always_inline __u32 untagged_length(const struct seen *s)
{
	return s->length - s->place.tags * VLAN_TAG_LEN;
}

#endif
