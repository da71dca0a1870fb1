/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel half and the agent share: map keys and values, events, numbers.
 * agent/arpguard/dataplane/layout.py and agent/arpguard/verdict.py mirror this file;
 * tests/bpf/test_layout.py compares them.
 */
#ifndef ARPGUARD_H
#define ARPGUARD_H

/* What happens to a frame. In observe mode it is what would have happened. */
enum verdict {
	VERDICT_UNSET = 0,
	VERDICT_PASS = 1,     /* passes unchanged */
	VERDICT_ANSWER = 2,   /* turned into the reply and sent back */
	VERDICT_SUPPRESS = 3, /* dropped */
	VERDICT_REWRITE = 4,  /* egress: spa replaced by the link's primary address */
	VERDICT_CONFLICT = 5, /* a foreign claim: reported and dropped */
	VERDICT_REPORT = 6,   /* passes unchanged, and is reported */
};

/* Why. One list for C, Python, metrics and documentation. Zero is never counted. */
enum reason {
	REASON_UNSET = 0,
	/* No guarded VIP is concerned. */
	REASON_NOT_GUARDED = 1,
	REASON_OTHER_VLAN = 2,
	REASON_NOT_ARP = 3,
	REASON_UNWALKABLE = 4,
	REASON_UNCONFIGURED = 5,
	/* Ingress: a request or probe for a VIP. */
	REASON_ANSWERED = 6,
	REASON_ANSWERED_THIRD_PARTY = 7,
	REASON_FENCED = 8,
	REASON_STALE_EPOCH = 9,
	REASON_FOREIGN = 10,
	REASON_EXTERNAL = 11,
	REASON_UNCLAIMED = 12,
	REASON_DELEGATED = 13,
	REASON_BAD_SENDER = 14,
	REASON_NOT_STRICT = 15,
	REASON_OTHER_HOST = 16,
	REASON_NO_LINK = 17,
	/* Ingress: a frame that claims a VIP as its sender. */
	REASON_OWN_ECHO = 18,
	REASON_OWNER_CLAIM = 19,
	REASON_UNVERIFIED_CLAIM = 20,
	REASON_UNCLAIMED_CLAIM = 21,
	REASON_DELEGATED_CLAIM = 22,
	REASON_CONFLICT = 23,
	/* Egress: a frame of this node that claims a VIP as its sender. */
	REASON_EGRESS_OWNER = 24,
	REASON_EGRESS_DELEGATED = 25,
	REASON_EGRESS_NOT_OWNER = 26,
	REASON_EGRESS_REWRITTEN = 27,
	REASON_EGRESS_NO_SOURCE = 28,
	/* Neighbour discovery only. */
	REASON_NOT_ND = 29,
	REASON_ND_INVALID = 30,
	REASON_ND_CHECKSUM = 31,
	REASON_ND_INVALID_CLAIM = 32,
	/* An address that no entry is about, in a closed range. */
	REASON_UNKNOWN = 33,
	REASON_EGRESS_UNKNOWN = 34,
	REASON_GUEST = 35,
	/* Ingress: as REASON_FENCED, of the voucher's fence. */
	REASON_UNVOUCHED = 36,
	REASON_COUNT = 37,
};

/* Which host may answer for a VIP on a link; of ranges, whether addresses without an entry are suppressed. */
enum kind {
	KIND_UNSET = 0,
	KIND_OWNED = 1,
	KIND_FOREIGN = 2,
	KIND_EXTERNAL = 3,
	KIND_UNCLAIMED = 4,
	KIND_DELEGATED = 5,
	KIND_CLOSED = 6, /* ranges only: suppressed */
	KIND_OPEN = 7,	 /* ranges only: an exception, such as the node's own address */
};

enum mode {
	MODE_INHERIT = 0, /* entries only: as control.mode says */
	MODE_OBSERVE = 1,
	MODE_ENFORCE = 2,
};

enum hook {
	HOOK_UNSET = 0,
	HOOK_TC_INGRESS = 1,
	HOOK_XDP = 2,
	HOOK_TC_EGRESS = 3,
};

/* What came of a frame of vouching (docs/vouching.md). Only pings and grants that are as they should be concern this
 * node's kernel: all others pass on. */
enum vouched {
	VOUCHED_PING = 0,	/* turned round, as a pong */
	VOUCHED_GRANT = 1,	/* taken */
	VOUCHED_PONG = 2,	/* for a voucher on this node */
	VOUCHED_UNREADABLE = 3, /* short, of another version or type, to a group, or of another VLAN */
	VOUCHED_OTHER_TERM = 4, /* of none that this link has, or a grant of one on trial */
	VOUCHED_FORGED = 5,	/* its MAC is not of the term's key */
	VOUCHED_BAD_STAMP = 6,	/* a grant whose stamp is 0, or from the future */
	VOUCHED_COUNT = 7,
};

/* Answers need no fence; in epoch 0, which is static ownership, no epoch either. */
#define ENTRY_HOLD 0x01

/* IPv4 addresses are v4-mapped (::ffff:a.b.c.d), so that one map serves both families. */
struct entry_key {
	__u32 ifindex;
	__be32 addr[4];
};

/* All addresses of a link that begin with `prefixlen - 32` bits of addr; the longest one decides (LPM). */
struct range_key {
	__u32 prefixlen;
	struct entry_key at;
};

#define MAX_RANGES 256

struct entry {
	__u64 epoch;
	__u32 slot; /* the entry's row in the counters map; no two entries or ranges share one */
	__u8 kind;
	__u8 mode;
	__u8 flags;
	__u8 pad[3];
	__u8 link_mac[6];   /* the link's own; zero: not known, nothing is answered */
	__u8 answer_mac[6]; /* what to answer with: the link's, or a virtual one */
	__u8 owner_mac[6];  /* of the owner elsewhere; zero: not known */
	/* The link's primary address of the VIP's family and scope: replaces a foreign VIP in outgoing requests; 0: none. */
	__be32 primary[4];
	__u8 pad2[4];
};

/* Times are CLOCK_BOOTTIME nanoseconds.
 * Consecutive values differ in at most one of epoch, fence_ns and term (the writer sees to it), and each field is
 * written by one store. Before and after the epoch or the term changes, programs that may have seen another value have
 * ended: none can see one of these three fields of one value with another of a later one.
 * `term` is written before any link has it in `vouching`, and changed only when none has it any more, and no program
 * that may have seen it there still runs. */
struct control {
	__u64 fence_ns; /* no fenced entry is answered at or after this instant */
	__u64 epoch;	/* only entries of this epoch are answered */
	__u64 lease_ns; /* a fence further ahead than this is a mistake, and counts as passed */
	__u8 mode;
	__u8 strictest;	  /* MODE_ENFORCE if any entry enforces, whatever the node's mode */
	__u8 strictest6;  /* the same of IPv6 entries and closed ranges only; 0: there is none */
	__u8 closed;	  /* whether there is any range */
	__u32 generation; /* of the configuration; 0: never written */
	/* All guarded IPv4 addresses, those of closed ranges among them, lie in [first, first + span], host order:
	 * first | span << 32. Spares most frames their lookups. Widened before an entry is added, narrowed after one is
	 * deleted. */
	__u64 vips4;
	__u64 term; /* by its number, the one in which a grant binds this node to its voucher's fence; 0: none does */
	__be16 ethertype; /* of frames of vouching; 0: there are none */
	__u8 pad[6];
};

#define MAX_VOUCHING 64

/* Whose frames of vouching a link takes: those of one term, under its key. One that is not control.term is on trial:
 * its pings are turned round, and no grant is taken. */
struct vouching {
	__u64 term;	 /* its number, never 0 */
	__u64 key[2];	 /* of SipHash */
	__u64 window_ns; /* how long a grant counts from its stamp on: d - m */
};

/* What came of it; only programs write it. Bound: bound_term is control.term. Then fence_ns counts, too. */
struct grants {
	__u64 fence_ns; /* the voucher's fence: no fenced entry is answered at or after this instant */
	__u64 bound_term;
	__u64 window_ns; /* a fence further ahead than this is a mistake, and counts as passed */
	__u64 pinged_ns; /* when the latest ping came */
};

/* Decisions by reason. [0]: carried out, [1]: only observed. */
struct counters {
	__u64 frames[2][REASON_COUNT];
	__u64 window;	/* the stretch of time that `reported` is about */
	__u64 reported; /* a bit for each reason that had its event in it */
};

/* Per CPU. Events produced == sent + limited + lost. */
struct totals {
	__u64 frames[2][REASON_COUNT];
	__u64 sent;    /* events in the ring buffer */
	__u64 limited; /* kept back by the rate limit */
	__u64 lost;    /* the ring buffer was full */
	/* Events for each reason in a stretch of time: its number << 16 | how many. */
	__u64 reported[REASON_COUNT];
	__u64 vouched[VOUCHED_COUNT];
};

struct event {
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u32 ifindex;
	__be32 vip[4]; /* the VIP the decision is about */
	__be32 spa[4];
	__be32 tpa[4];
	__u8 sha[6];
	__u8 tha[6];
	__u8 eth_src[6];
	__u8 eth_dst[6];
	__u16 op; /* host order */
	__u8 verdict;
	__u8 reason;
	__u8 hook;
	__u8 mode;
	__u8 kind;
	__u8 pad[5];
};

#endif
