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

/* What is kept of a request while its frame is being overwritten. */
struct arp_asked {
	struct mac eth_dst, sha, tha;
	__be32 spa, tpa;
};

/* The first 42 bytes of an untagged frame, as 16-bit words. */
struct arp_frame {
	__u16 w[ARP_FRAME_LEN / 2];
};

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

/* Reads the ARP body that starts at `body`, of which ARP_BODY_LEN bytes are there.
 * Returns 0 when it is none that Linux would act on (arp_rcv(), arp_process()). */
static __always_inline int arp_parse(struct facts *f, const __u16 *eth, const __u16 *body)
{
	f->op = __builtin_bswap16(body[3]);
	if (body[1] != PTYPE_IPV4 || body[2] != HLEN_PLEN)
		return 0;
	if (body[0] != HTYPE_ETHER && body[0] != HTYPE_IEEE802)
		return 0;
	if (f->op != OP_REQUEST && f->op != OP_REPLY)
		return 0;
	f->odd = body[0] != HTYPE_ETHER;
	f->flaw = 0;
	f->eth_dst = (const struct mac *)eth;
	f->eth_src = (const struct mac *)(eth + 3);
	f->sha = (const struct mac *)(body + 4);
	map_ipv4(f->spa.addr, be32_load(body + 7));
	f->tha = (const struct mac *)(body + 9);
	map_ipv4(f->tpa.addr, be32_load(body + 12));
	f->group.w[0] = f->group.w[1] = f->group.w[2] = 0xffff; /* broadcast */
	return 1;
}

static __always_inline void arp_keep(struct arp_asked *asked, const struct facts *f)
{
	asked->eth_dst = *f->eth_dst;
	asked->sha = *f->sha;
	asked->tha = *f->tha;
	asked->spa = f->spa.addr[3];
	asked->tpa = f->tpa.addr[3];
}

/* The reply to a request (RFC 826 "Packet Reception"), from `mac`.
 * BENCH builds write the request again with as many stores: BPF_PROG_TEST_RUN does not reset the frame
 * between repeats, and a reply would take another path than the one to be measured. */
static __always_inline void arp_build_reply(struct arp_frame *r, const struct arp_asked *f, const struct mac *mac)
{
#ifdef BENCH
	const struct mac *eth_dst = &f->eth_dst, *tha = &f->tha;
	const __be32 spa = f->spa, tpa = f->tpa;
	const __be16 op = BE16(OP_REQUEST);

	mac = &f->sha;
#else
	const struct mac *eth_dst = &f->sha, *tha = &f->sha;
	const __be32 spa = f->tpa, tpa = f->spa;
	const __be16 op = BE16(OP_REPLY);
#endif
	r->w[0] = eth_dst->w[0];
	r->w[1] = eth_dst->w[1];
	r->w[2] = eth_dst->w[2];
	r->w[3] = r->w[11] = mac->w[0];
	r->w[4] = r->w[12] = mac->w[1];
	r->w[5] = r->w[13] = mac->w[2];
	r->w[6] = ETHERTYPE_ARP;
	r->w[7] = HTYPE_ETHER;
	r->w[8] = PTYPE_IPV4;
	r->w[9] = HLEN_PLEN;
	r->w[10] = op;
	be32_store(&r->w[14], spa);
	r->w[16] = tha->w[0];
	r->w[17] = tha->w[1];
	r->w[18] = tha->w[2];
	be32_store(&r->w[19], tpa);
}

#endif
