/* SPDX-License-Identifier: Apache-2.0 */
/* Frames by which another node vouches for this one (docs/vouching.md): from bytes to a frame, whether it is one of the
 * term that this link has, and what comes of it.
 *
 * Pure functions over memory: no maps, no context. agent/arpguard/wire/vouching.py reads and builds the same.
 */
#ifndef ARPGUARD_VOUCH_H
#define ARPGUARD_VOUCH_H

#include "facts.h"

#define VOUCH_VERSION 1
#define VOUCH_PING 1
#define VOUCH_PONG 2
#define VOUCH_GRANT 3
#define VOUCH_BOUND 0x01 /* in a pong: this node is bound to the term */

/* What stands behind the EtherType. All is little-endian, as are the machines that the programs are built for. */
struct vouch_frame {
	__u64 head; /* version, type and flags, from the lowest byte on, and zero */
	__u64 term;
	__u64 number;
	__u64 stamp_ns; /* of a pong, and of its grant: this node's clock when the ping came */
	__u64 right_ns; /* of a pong: control.fence_ns */
	__u64 reserved;
	__u64 mac;
};

#define VOUCH_LEN sizeof(struct vouch_frame)
#define VOUCH_WORDS (VOUCH_LEN / sizeof(__u32))
#define VOUCH_HEAD(type, flags) (VOUCH_VERSION | (type) << 8 | (flags) << 16)

/* By words of 32 bits, because that is how a payload is aligned behind its tags. */
static __always_inline void vouch_copy(__u32 *to, const __u32 *from)
{
	int i;

#pragma unroll
	for (i = 0; i < VOUCH_WORDS; i++)
		to[i] = from[i];
}

/* ---- SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF") -------------------------------------- */

struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotated(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v1 = rotated(s->v1, 13) ^ s->v0;
	s->v0 = rotated(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotated(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotated(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotated(s->v1, 17) ^ s->v2;
	s->v2 = rotated(s->v2, 32);
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

/* Of all that stands before the MAC. */
static __always_inline __u64 vouch_mac(const struct vouch_frame *f, const __u64 *key)
{
	struct sip s = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull, key[0] ^ 0x6c7967656e657261ull,
			key[1] ^ 0x7465646279746573ull};

	sip_word(&s, f->head);
	sip_word(&s, f->term);
	sip_word(&s, f->number);
	sip_word(&s, f->stamp_ns);
	sip_word(&s, f->right_ns);
	sip_word(&s, f->reserved);
	sip_word(&s, (VOUCH_LEN - sizeof(f->mac)) << 56);
	s.v2 ^= 0xff;
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* ---- what comes of a frame ------------------------------------------------------------------------------------- */

static __always_inline __u8 vouch_type(const struct vouch_frame *f)
{
	return (__u8)(f->head >> 8);
}

/* VOUCHED_PING or VOUCHED_GRANT if it is one of the term `v`, which may be none; else what it is instead. */
static __always_inline __u8 vouch_examine(const struct vouch_frame *f, const struct vouching *v)
{
	__u8 type = vouch_type(f);

	if ((__u8)f->head != VOUCH_VERSION)
		return VOUCHED_UNREADABLE;
	if (type == VOUCH_PONG)
		return VOUCHED_PONG;
	if (type != VOUCH_PING && type != VOUCH_GRANT)
		return VOUCHED_UNREADABLE;
	if (!v || f->term != v->term)
		return VOUCHED_OTHER_TERM;
	if (f->mac != vouch_mac(f, v->key))
		return VOUCHED_FORGED;
	return type == VOUCH_PING ? VOUCHED_PING : VOUCHED_GRANT;
}

/* Whether this node is bound to its present term, if there is one. */
static __always_inline int is_bound(const struct control *c, const struct grants *g)
{
	return c->term && g->bound_term == c->term;
}

/* What becomes of a ping. BENCH builds write a ping again, with as many stores: BPF_PROG_TEST_RUN does not reset the
 * frame between repeats. */
#ifdef BENCH
#define VOUCH_TURNED VOUCH_PING
#else
#define VOUCH_TURNED VOUCH_PONG
#endif

/* Makes a ping its pong. */
static __always_inline void make_pong(struct vouch_frame *f, const struct vouching *v, const struct control *c,
				      const struct grants *g, __u64 now_ns)
{
	f->head = VOUCH_HEAD(VOUCH_TURNED, c->term == v->term && is_bound(c, g) ? VOUCH_BOUND : 0);
	f->stamp_ns = now_ns;
	f->right_ns = c->fence_ns;
	f->reserved = 0;
	f->mac = vouch_mac(f, v->key);
}

/* Moves the voucher's fence forward, and then binds this node to it. Returns what came of the grant.
 * A fence that this term has had already stays if it is later, for grants may come late, or again; but not one that is
 * a mistake. */
static __always_inline __u8 take_grant(struct grants *g, const struct vouch_frame *f, const struct vouching *v,
				       const struct control *c, __u64 now_ns)
{
	volatile struct grants *in_order = g;
	__u64 fence_ns = f->stamp_ns + v->window_ns;

	if (c->term != v->term)
		return VOUCHED_OTHER_TERM;
	if (!f->stamp_ns || f->stamp_ns > now_ns)
		return VOUCHED_BAD_STAMP;
	if (g->bound_term == v->term && g->fence_ns > fence_ns && g->fence_ns <= now_ns + v->window_ns)
		fence_ns = g->fence_ns;
	in_order->window_ns = v->window_ns;
	in_order->fence_ns = fence_ns;
	in_order->bound_term = v->term;
	return VOUCHED_GRANT;
}

#endif
