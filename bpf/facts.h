/* SPDX-License-Identifier: Apache-2.0 */
/* What a frame says, whatever the family of its addresses.
 *
 * The names of RFC 826 serve neighbour discovery, too (RFC 4861):
 *
 *         ARP    neighbour solicitation (NS)     neighbour advertisement (NA)
 *   spa   spa    IPv6 source; :: claims nothing  target
 *   tpa   tpa    target                          IPv6 destination, which is asked nothing
 *   sha   sha    source link-layer option, or else the Ethernet source; NA: of the target
 *   tha   tha    zero
 *
 * Facts keep network order (__be) as on the wire. Bytes are moved as words: packed structs would be copied bytewise.
 */
#ifndef ARPGUARD_FACTS_H
#define ARPGUARD_FACTS_H

#include "arpguard.h"

#define ETH_HEADER_LEN 14
#define ETH_MIN_LEN 60 /* IEEE 802.3 minimum without the frame check sequence */

#define BE16(x) ((__be16)__builtin_bswap16(x))
#define BE32(x) ((__be32)__builtin_bswap32(x))

/* linux/if_ether.h, in network order. */
#define ETHERTYPE_IPV4 BE16(0x0800)
#define ETHERTYPE_ARP BE16(0x0806)
#define ETHERTYPE_IPV6 BE16(0x86dd)
#define ETHERTYPE_8021Q BE16(0x8100)
#define ETHERTYPE_8021AD BE16(0x88a8)

/* facts.op: ar$op, or the ICMPv6 type; no two are the same number. */
#define OP_REQUEST 1
#define OP_REPLY 2
#define OP_SOLICIT 135
#define OP_ADVERTISE 136

#define V4_MAPPED BE32(0x0000ffff) /* the third word of ::ffff:a.b.c.d (RFC 4291 2.5.5.2) */

/* `x`, hidden from the compiler, which would otherwise leave out masks that the verifier needs to see. */
static __always_inline __u64 opaque(__u64 x)
{
	asm volatile("" : "+r"(x));
	return x;
}

/* `x`, hidden from the verifier where it knows nothing about `by`: it then looks at what follows once, and not once for
 * each value. */
static __always_inline __u64 forgotten(__u64 x, __u64 by)
{
	return opaque(opaque(x) ^ by) ^ by;
}

/* MAC addresses are values: their bytes as they are in memory, in the lower 48 bits.
 * What it takes to tell whether a VIP is concerned is read at once, the rest when one is. */
struct facts {
	__be32 spa[4], tpa[4];
	__u64 eth_dst, eth_src, sha, tha;
	__u64 group; /* the group address that a question of this kind is sent to; 0: it was sent to one host */
	__u16 op;
	__u8 tags; /* VLAN tags with VID 0 read through, in the frame or beside it */
	__u8 odd;  /* in a form that Linux may read, but no host has to answer */
	__u8 flaw; /* why no host may answer it: see nd_flaw() */
};

#define MAC_BROADCAST 0xffffffffffffull

/* By words of 16 bits, because that is how Ethernet and ARP are aligned. */
static __always_inline __u64 mac_load(const void *bytes)
{
	const __u16 *w = bytes;

	return *(__u32 *)w | (__u64)w[2] << 32;
}

static __always_inline void mac_store(void *bytes, __u64 mac)
{
	__u16 *w = bytes;

	w[0] = (__u16)mac;
	w[1] = (__u16)(mac >> 16);
	w[2] = (__u16)(mac >> 32);
}

static __always_inline int mac_is_group(__u64 mac)
{
	return mac & 1;
}

static __always_inline void addr_copy(__be32 *to, const __be32 *from)
{
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
}

static __always_inline int addr_equal(const __be32 *a, const __be32 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}

static __always_inline int addr_is_zero(const __be32 *a)
{
	return !(a[0] | a[1] | a[2] | a[3]);
}

/* Not a host's address, so neither a sender that can be replied to nor a VIP: multicast, loopback, limited
 * broadcast (arp_process() drops such targets; RFC 1122 3.2.1.3). 0.0.0.0 is a probe's sender, and no target. */
static __always_inline int ipv4_is_special(__be32 addr)
{
	__u8 first = (__u8)addr;

	return (first & 0xf0) == 0xe0 || first == 127 || addr == 0xffffffff;
}

static __always_inline int ipv6_is_multicast(const __be32 *a)
{
	return (__u8)a[0] == 0xff;
}

/* The same for IPv6: multicast, ::1, v4-mapped; ip6_rcv_core() drops such senders. */
static __always_inline int ipv6_is_special(const __be32 *a)
{
	return ipv6_is_multicast(a) || (!(a[0] | a[1]) && (a[2] == V4_MAPPED || (!a[2] && a[3] == BE32(1))));
}

static __always_inline int is_nd(const struct facts *f)
{
	return f->op >= OP_SOLICIT;
}

#endif
