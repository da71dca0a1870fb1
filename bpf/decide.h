/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict table (docs/verdicts.md), as code. Pure: facts, entries and times in, decisions out.
 *
 * tests/reference says the same in Python; tests/bpf compares the two on random frames.
 *
 * Answering is strict: what RFC 826 and RFC 5227 ask for, and nothing else.
 * Suppression is lenient: whatever Linux could answer for a VIP this node may not answer for is dropped.
 */
#ifndef ARPGUARD_DECIDE_H
#define ARPGUARD_DECIDE_H

#include "vouch.h"

struct decision {
	__u8 verdict;
	__u8 reason;
};

#define DECIDE(v, r) ((struct decision){.verdict = (v), .reason = (r)})

/* Whether an entry was made in another epoch than the node's. Static ownership is of none: held, in epoch 0. */
static __always_inline int is_stale(const struct entry *e, const struct control *c)
{
	if (!e->epoch && (e->flags & ENTRY_HOLD))
		return 0;
	return e->epoch != c->epoch;
}

/* A fence further ahead than what moves it can have moved it is a mistake: it counts as passed. */
static __always_inline int has_passed(__u64 fence_ns, __u64 furthest_ns, __u64 now_ns)
{
	return now_ns >= fence_ns || fence_ns - now_ns > furthest_ns;
}

/* Why an owned entry may not be answered now; REASON_UNSET when it may. `now_ns` is CLOCK_BOOTTIME. */
static __always_inline __u8 refusal(const struct entry *e, const struct control *c, const struct grants *g,
				    __u64 now_ns)
{
	if (is_stale(e, c))
		return REASON_STALE_EPOCH;
	if (e->flags & ENTRY_HOLD)
		return REASON_UNSET;
	if (has_passed(c->fence_ns, c->lease_ns, now_ns))
		return REASON_FENCED;
	if (is_bound(c, g) && has_passed(g->fence_ns, g->window_ns, now_ns))
		return REASON_UNVOUCHED;
	return REASON_UNSET;
}

/* Only fenced entries that are of this epoch need to know the time. */
static __always_inline int needs_clock(const struct entry *e, const struct control *c)
{
	return e->kind == KIND_OWNED && e->epoch == c->epoch && !(e->flags & ENTRY_HOLD);
}

/* Whether there can be an entry for an address of the frame. One load, so that first and span belong together. */
static __always_inline int may_be_vip(const struct facts *f, const struct control *c, const __be32 *addr)
{
	__u64 vips4;

	if (is_nd(f))
		return c->strictest6 && !addr_is_zero(addr) && !ipv6_is_special(addr);
	vips4 = *(const volatile __u64 *)&c->vips4;
	return addr[3] && __builtin_bswap32(addr[3]) - (__u32)vips4 <= (__u32)(vips4 >> 32);
}

static __always_inline __u8 not_owner_reason(__u8 kind)
{
	if (kind == KIND_FOREIGN)
		return REASON_FOREIGN;
	return kind == KIND_EXTERNAL ? REASON_EXTERNAL : REASON_UNCLAIMED;
}

/* Whether a frame asks for its tpa. An announcement only looks like a request (RFC 5227 2.5); neighbour discovery has
 * a message of its own for that. */
static __always_inline int is_question(const struct facts *f)
{
	if (is_nd(f))
		return f->op == OP_SOLICIT;
	return f->op == OP_REQUEST && f->tpa[3] != f->spa[3] && !ipv4_is_special(f->tpa[3]);
}

/* Whether there is no host to reply to: a group, or none; 0.0.0.0 and :: only probe. */
static __always_inline int is_bad_sender(const struct facts *f)
{
	if (mac_is_group(f->sha) || !f->sha || mac_is_group(f->eth_src))
		return 1;
	return is_nd(f) ? ipv6_is_special(f->spa) : ipv4_is_special(f->spa[3]);
}

/* A request or probe whose tpa is a VIP. */
static __always_inline struct decision decide_request(const struct facts *f, const struct entry *e,
						      const struct control *c, const struct grants *g, __u64 now_ns)
{
	__u64 link, own;
	__u8 refused;

	if (e->kind == KIND_DELEGATED)
		return DECIDE(VERDICT_PASS, REASON_DELEGATED);
	if (e->kind != KIND_OWNED)
		return DECIDE(VERDICT_SUPPRESS, not_owner_reason(e->kind));
	refused = refusal(e, c, g, now_ns);
	if (refused)
		return DECIDE(VERDICT_SUPPRESS, refused);
	/* What is not answered here is dropped all the same: the kernel, too, may carry the VIP, and would answer. */
	link = mac_load(e->link_mac);
	own = mac_load(e->answer_mac);
	if (!link || !own)
		return DECIDE(VERDICT_SUPPRESS, REASON_NO_LINK);
	if (f->flaw)
		return DECIDE(VERDICT_SUPPRESS, f->flaw);
	if (f->sha == own || f->sha == link)
		return DECIDE(VERDICT_SUPPRESS, REASON_OWN_ECHO);
	if (is_bad_sender(f))
		return DECIDE(VERDICT_SUPPRESS, REASON_BAD_SENDER);
	/* A frame to one host has no group: `group` is zero then, and no group address. */
	if (mac_is_group(f->eth_dst)) {
		if (f->eth_dst != f->group)
			return DECIDE(VERDICT_SUPPRESS, REASON_NOT_STRICT);
	} else if (f->eth_dst != own && f->eth_dst != link) {
		return DECIDE(VERDICT_SUPPRESS, REASON_OTHER_HOST);
	}
	if (f->odd || f->tags > 1)
		return DECIDE(VERDICT_SUPPRESS, REASON_NOT_STRICT);
	if (f->sha != f->eth_src)
		return DECIDE(VERDICT_ANSWER, REASON_ANSWERED_THIRD_PARTY);
	return DECIDE(VERDICT_ANSWER, REASON_ANSWERED);
}

/* A request or probe whose tpa has no entry, and is in a closed range. One to another MAC than the link's is a guest's
 * (a macvlan): this node's kernel reads no such frame. */
static __always_inline struct decision decide_unknown(const struct facts *f, const struct entry *range)
{
	if (!mac_is_group(f->eth_dst) && f->eth_dst != mac_load(range->link_mac))
		return DECIDE(VERDICT_PASS, REASON_GUEST);
	return DECIDE(VERDICT_SUPPRESS, REASON_UNKNOWN);
}

/* Any incoming frame whose spa is a VIP. One that the kernel does not believe does not count as a claim. */
static __always_inline struct decision decide_claim(const struct facts *f, const struct entry *e)
{
	__u64 link = mac_load(e->link_mac), own = mac_load(e->answer_mac), owner = mac_load(e->owner_mac);

	if (f->flaw && f->flaw != REASON_NOT_STRICT)
		return DECIDE(VERDICT_PASS, REASON_ND_INVALID_CLAIM);
	/* A hub or an access point may echo this node's own frames: no conflict (RFC 5227 2.1.1), and no news either. */
	if (f->sha && (f->sha == own || f->sha == link))
		return e->kind == KIND_DELEGATED ? DECIDE(VERDICT_PASS, REASON_DELEGATED)
						 : DECIDE(VERDICT_SUPPRESS, REASON_OWN_ECHO);
	if (e->kind == KIND_DELEGATED)
		return DECIDE(VERDICT_REPORT, REASON_DELEGATED_CLAIM);
	if (e->kind == KIND_OWNED)
		return DECIDE(VERDICT_CONFLICT, REASON_CONFLICT);
	if (owner)
		return f->sha == owner ? DECIDE(VERDICT_PASS, REASON_OWNER_CLAIM)
				       : DECIDE(VERDICT_CONFLICT, REASON_CONFLICT);
	if (e->kind == KIND_UNCLAIMED)
		return DECIDE(VERDICT_REPORT, REASON_UNCLAIMED_CLAIM);
	return DECIDE(VERDICT_REPORT, REASON_UNVERIFIED_CLAIM);
}

/* A claim that is let through so that the kernel can learn from it, but has the form of a request for the
 * VIP, which some kernels (accept_local, proxy_arp) would answer: it passes as the reply of the same meaning. */
static __always_inline int claim_needs_disarming(const struct facts *f, const struct entry *e)
{
	return f->op == OP_REQUEST && f->spa[3] == f->tpa[3] && e->kind != KIND_DELEGATED;
}

/* Whether an outgoing frame only tells whose the spa is. */
static __always_inline int is_announcement(const struct facts *f)
{
	if (is_nd(f))
		return f->op == OP_ADVERTISE;
	return f->op == OP_REPLY || f->spa[3] == f->tpa[3];
}

/* Any outgoing frame whose spa is a VIP, or in a closed range. */
static __always_inline struct decision decide_egress(const struct facts *f, const struct entry *e,
						     const struct control *c, const struct grants *g, __u64 now_ns)
{
	if (e->kind == KIND_DELEGATED)
		return DECIDE(VERDICT_PASS, REASON_EGRESS_DELEGATED);
	if (e->kind == KIND_OWNED && !refusal(e, c, g, now_ns))
		return DECIDE(VERDICT_PASS, REASON_EGRESS_OWNER);
	/* The kernel itself speaks as the link's MAC; as another one a guest does. */
	if (e->kind == KIND_CLOSED && f->sha != mac_load(e->link_mac))
		return DECIDE(VERDICT_PASS, REASON_GUEST);
	/* Only this node's own request may leave in the link's name: a guest's would teach others a wrong MAC for it. */
	if (is_announcement(f) || f->sha != mac_load(e->link_mac))
		return DECIDE(VERDICT_SUPPRESS,
			      e->kind == KIND_CLOSED ? REASON_EGRESS_UNKNOWN : REASON_EGRESS_NOT_OWNER);
	if (addr_is_zero(e->primary))
		return DECIDE(VERDICT_SUPPRESS, REASON_EGRESS_NO_SOURCE);
	return DECIDE(VERDICT_REWRITE, REASON_EGRESS_REWRITTEN);
}

#endif
