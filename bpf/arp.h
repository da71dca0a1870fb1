/* SPDX-License-Identifier: Apache-2.0 */
/* ARP for IPv4 over Ethernet (RFC 826): from bytes to facts, and from facts to a reply.
 *
 * Pure functions over memory: no maps, no context.
 */
#ifndef ARPGUARD_ARP_H
#define ARPGUARD_ARP_H

#include "facts.h"

#define ARP_BODY_LEN 28
#define ARP_FRAME_LEN (ETH_HEADER_LEN + ARP_BODY_LEN)

/* Values of ARP fields (linux/if_arp.h), in network order. */
#define HTYPE_ETHER BE16(1)
#define HTYPE_IEEE802 BE16(6)
#define PTYPE_IPV4 BE16(0x0800)
#define HLEN_PLEN BE16(0x0604)

static __always_inline __be32 be32_load(const __u16 *w)
{
	return (__u32)w[0] | (__u32)w[1] << 16; /* both of BPF's byte orders that bcc builds for are little-endian */
}

static __always_inline void be32_store(__u16 *w, __be32 value)
{
	w[0] = (__u16)value;
	w[1] = (__u16)(value >> 16);
}

static __always_inline void map_ipv4(__be32 *to, __be32 addr)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = V4_MAPPED;
	to[3] = addr;
}

/* Reads what it takes to know whether the ARP body at `body` is of any concern; ARP_BODY_LEN bytes of it are there.
 * Returns 0 when it is none that Linux would act on (arp_rcv(), arp_process()). */
static __always_inline int arp_parse(struct facts *f, const __u16 *body)
{
	f->op = __builtin_bswap16(body[3]);
	if (body[1] != PTYPE_IPV4 || body[2] != HLEN_PLEN)
		return 0;
	if (body[0] != HTYPE_ETHER && body[0] != HTYPE_IEEE802)
		return 0;
	if (f->op != OP_REQUEST && f->op != OP_REPLY)
		return 0;
	map_ipv4(f->spa, be32_load(body + 7));
	map_ipv4(f->tpa, be32_load(body + 12));
	return 1;
}

/* Reads the rest. */
static __always_inline void arp_examine(struct facts *f, const __u16 *body)
{
	f->sha = mac_load(body + 4);
	f->tha = mac_load(body + 9);
	f->group = MAC_BROADCAST;
	f->odd = body[0] != HTYPE_ETHER;
}

/* The reply to a request (RFC 826 "Packet Reception"), from `mac`: the first ARP_FRAME_LEN bytes of an untagged frame.
 * BENCH builds write the request again with as many stores: BPF_PROG_TEST_RUN does not reset the frame
 * between repeats, and a reply would take another path than the one to be measured. */
static __always_inline void arp_build_reply(__u16 *r, const struct facts *f, __u64 mac)
{
#ifdef BENCH
	const __u64 eth_dst = f->eth_dst, tha = f->tha;
	const __be32 spa = f->spa[3], tpa = f->tpa[3];
	const __be16 op = BE16(OP_REQUEST);

	mac = f->sha;
#else
	const __u64 eth_dst = f->sha, tha = f->sha;
	const __be32 spa = f->tpa[3], tpa = f->spa[3];
	const __be16 op = BE16(OP_REPLY);
#endif
	mac_store(r, eth_dst);
	mac_store(r + 3, mac);
	r[6] = ETHERTYPE_ARP;
	r[7] = HTYPE_ETHER;
	r[8] = PTYPE_IPV4;
	r[9] = HLEN_PLEN;
	r[10] = op;
	mac_store(r + 11, mac);
	be32_store(r + 14, spa);
	mac_store(r + 16, tha);
	be32_store(r + 19, tpa);
}

#endif
