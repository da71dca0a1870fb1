/* SPDX-License-Identifier: Apache-2.0 */
/* ARP for IPv4 over Ethernet (RFC 826): from bytes to facts, and from facts to a reply.
 *
 * Pure functions over memory: no maps, no context. Facts keep network order (__be) as on the wire.
 * Bytes are moved as 16-bit words: packed structs would be copied byte by byte.
 */
#ifndef ARPGUARD_ARP_H
#define ARPGUARD_ARP_H

#include "arpguard.h"

#define ETH_HEADER_LEN 14
#define VLAN_TAG_LEN 4
#define ARP_BODY_LEN 28
#define ARP_FRAME_LEN (ETH_HEADER_LEN + ARP_BODY_LEN)
#define ETH_MIN_LEN 60 /* IEEE 802.3 minimum without the frame check sequence */

/* Linux removes any number of nested VID-0 tags; this is how many are read through here. */
#define MAX_TAGS 8

#define BE16(x) ((__be16)__builtin_bswap16(x))
#define BE32(x) ((__be32)__builtin_bswap32(x))

/* Values of EtherType and ARP fields (linux/if_ether.h, linux/if_arp.h), in network order. */
#define ETHERTYPE_ARP BE16(0x0806)
#define ETHERTYPE_8021Q BE16(0x8100)
#define ETHERTYPE_8021AD BE16(0x88a8)
#define HTYPE_ETHER BE16(1)
#define HTYPE_IEEE802 BE16(6)
#define PTYPE_IPV4 BE16(0x0800)
#define HLEN_PLEN BE16(0x0604)
#define OP_REQUEST BE16(1)
#define OP_REPLY BE16(2)

struct mac {
	__u16 w[3];
};

/* The hardware addresses are looked at where they are: most frames are of no concern, and need no copy. */
struct arp_facts {
	const struct mac *eth_dst, *eth_src, *sha, *tha;
	__be32 spa, tpa;
	__be16 htype, op;
	__u16 tags; /* VLAN tags with VID 0 read through, in the frame or beside it */
};

/* What is kept of a request while its frame is being overwritten. */
struct arp_asked {
	struct mac eth_dst, sha, tha;
	__be32 spa, tpa;
};

/* The first 42 bytes of an untagged frame, as 16-bit words. */
struct arp_frame {
	__u16 w[ARP_FRAME_LEN / 2];
};

static __always_inline int mac_is_group(const struct mac *m)
{
	return ((const __u8 *)m->w)[0] & 1;
}

static __always_inline int mac_is_broadcast(const struct mac *m)
{
	return (m->w[0] & m->w[1] & m->w[2]) == 0xffff;
}

static __always_inline int mac_is_zero(const struct mac *m)
{
	return !(m->w[0] | m->w[1] | m->w[2]);
}

static __always_inline int mac_equal(const struct mac *a, const struct mac *b)
{
	return !((a->w[0] ^ b->w[0]) | (a->w[1] ^ b->w[1]) | (a->w[2] ^ b->w[2]));
}

static __always_inline void mac_load(struct mac *m, const __u8 *bytes)
{
	const __u16 *w = (const __u16 *)bytes;

	m->w[0] = w[0];
	m->w[1] = w[1];
	m->w[2] = w[2];
}

static __always_inline __be32 be32_load(const __u16 *w)
{
	return (__u32)w[0] | (__u32)w[1] << 16; /* both of BPF's byte orders that bcc builds for are little-endian */
}

static __always_inline void be32_store(__u16 *w, __be32 value)
{
	w[0] = (__u16)value;
	w[1] = (__u16)(value >> 16);
}

static __always_inline int is_vlan(__be16 ethertype)
{
	return ethertype == ETHERTYPE_8021Q || ethertype == ETHERTYPE_8021AD;
}

/* Not a host's address, so neither a sender that can be replied to nor a VIP: multicast, loopback, limited
 * broadcast (arp_process() drops such targets; RFC 1122 3.2.1.3). 0.0.0.0 is a probe's sender, and no target. */
static __always_inline int ipv4_is_special(__be32 addr)
{
	__u8 first = (__u8)addr;

	return (first & 0xf0) == 0xe0 || first == 127 || addr == 0xffffffff;
}

/* Reads the ARP body that starts at `body`, of which ARP_BODY_LEN bytes are there.
 * Returns 0 when it is none that Linux would act on (arp_rcv(), arp_process()). */
static __always_inline int arp_parse(struct arp_facts *f, const __u16 *eth, const __u16 *body)
{
	f->htype = body[0];
	f->op = body[3];
	if (body[1] != PTYPE_IPV4 || body[2] != HLEN_PLEN)
		return 0;
	if (f->htype != HTYPE_ETHER && f->htype != HTYPE_IEEE802)
		return 0;
	if (f->op != OP_REQUEST && f->op != OP_REPLY)
		return 0;
	f->eth_dst = (const struct mac *)eth;
	f->eth_src = (const struct mac *)(eth + 3);
	f->sha = (const struct mac *)(body + 4);
	f->spa = be32_load(body + 7);
	f->tha = (const struct mac *)(body + 9);
	f->tpa = be32_load(body + 12);
	return 1;
}

static __always_inline void arp_keep(struct arp_asked *asked, const struct arp_facts *f)
{
	asked->eth_dst = *f->eth_dst;
	asked->sha = *f->sha;
	asked->tha = *f->tha;
	asked->spa = f->spa;
	asked->tpa = f->tpa;
}

/* The reply to a request (RFC 826 "Packet Reception"), from `mac`.
 * BENCH builds write the request again with as many stores: BPF_PROG_TEST_RUN does not reset the frame
 * between repeats, and a reply would take another path than the one to be measured. */
static __always_inline void arp_build_reply(struct arp_frame *r, const struct arp_asked *f, const struct mac *mac)
{
#ifdef BENCH
	const struct mac *eth_dst = &f->eth_dst, *tha = &f->tha;
	const __be32 spa = f->spa, tpa = f->tpa;
	const __be16 op = OP_REQUEST;

	mac = &f->sha;
#else
	const struct mac *eth_dst = &f->sha, *tha = &f->sha;
	const __be32 spa = f->tpa, tpa = f->spa;
	const __be16 op = OP_REPLY;
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
