// SPDX-License-Identifier: Apache-2.0
/* The three programs: ingress_tc, ingress_xdp, egress_tc.
 *
 * Each one parses, looks up, decides, counts, and acts. Each has a twin, try_*, which is the same code over the
 * same maps but counts and reports nothing: it returns what was decided, for BPF_PROG_TEST_RUN, and is never attached.
 *
 * Map access is in this file only: bcc rewrites map operations in the main file and nowhere else. The compiler gets
 * sizes, which are in no instruction: on a node the loader makes the maps in the sizes that are configured.
 *   MAX_ENTRIES  size of the entries map
 *   RING_BYTES   size of the event ring buffer, a power of two
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/pkt_cls.h>

#include "decide.h"
#include "tc.h"
#include "xdp.h"

/* At most one event per entry, reason and CPU in a window of 256 jiffies: 1.02 s at HZ=250, 0.26 s at HZ=1000.
 * Jiffies, because no other clock is free to read. */
#define EVENT_WINDOW_SHIFT 8

/* And so many per reason and CPU: with thousands of VIPs a flood would drown the agent in events, and those of other
 * reasons among them. */
#define EVENTS_IN_WINDOW 512

BPF_F_TABLE("hash", struct entry_key, struct entry, entries, MAX_ENTRIES, BPF_F_NO_PREALLOC);
/* Closed ranges, and the exceptions in them. */
BPF_F_TABLE("lpm_trie", struct range_key, struct entry, ranges, MAX_RANGES, BPF_F_NO_PREALLOC);
/* Rows of entries, and behind them those of ranges. */
BPF_F_TABLE("percpu_array", __u32, struct counters, counters, MAX_ENTRIES + MAX_RANGES, 0);
BPF_F_TABLE("percpu_array", __u32, struct totals, totals, 1, 0);
/* Per CPU, because such a map is written in whole words, each by one store (bpf_long_memcpy()). */
BPF_F_TABLE("percpu_array", __u32, struct control, control, 1, 0);
/* By link. */
BPF_F_TABLE("hash", __u32, struct vouching, vouching, MAX_VOUCHING, BPF_F_NO_PREALLOC);
/* One for all CPUs: a grant counts wherever it came in. */
BPF_F_TABLE("array", __u32, struct grants, grants, 1, 0);

/* BPF_RINGBUF_OUTPUT with a size in bytes, which bcc has no macro for. */
struct events_table_t {
	int key;
	u32 leaf;
	void *(*ringbuf_reserve)(u64);
	void (*ringbuf_discard)(void *, u64);
	void (*ringbuf_submit)(void *, u64);
	int (*ringbuf_output)(void *, u64, u64);
	u32 max_entries;
};
__attribute__((section("maps/ringbuf"))) struct events_table_t events = {.max_entries = RING_BYTES};

/* What all steps need to know about the frame at hand. */
struct at {
	struct seen seen;
	const struct control *control;
	const struct grants *grants;
	__u64 now_ns; /* CLOCK_BOOTTIME, or 0 while it was not needed */
	__u32 ifindex;
	__u32 trace; /* decisions so far, of a twin, which counts and reports nothing */
	__u8 hook;
};

/* A decision in 9 bits; the newest is lowest. */
static __always_inline void trace(struct at *at, __u8 verdict, __u8 reason)
{
	at->trace = at->trace << 9 | (verdict & 7) << 6 | (reason & 63);
}

/* What a twin returns: decisions, and the return code of the program in the lowest byte. */
static __always_inline int traced(const struct at *at, int code)
{
	return at->trace << 8 | (code & 0xff);
}

static __always_inline __u8 mode_of(const struct at *at, const struct entry *e)
{
	return e->mode ? e->mode : at->control->mode;
}

static __always_inline struct totals *count_total(__u8 reason, int observed)
{
	__u32 zero = 0;
	struct totals *t = totals.lookup(&zero);

	if (t && reason < REASON_COUNT)
		t->frames[observed][reason]++;
	return t;
}

static __always_inline void report(const struct at *at, const struct entry_key *key, const struct entry *e,
				   struct decision d, struct totals *t)
{
	const struct facts *f = &at->seen.facts;
	struct event *ev = events.ringbuf_reserve(sizeof(*ev));

	if (!ev) {
		t->lost++;
		return;
	}
	t->sent++;
	ev->time_ns = at->now_ns ? at->now_ns : bpf_ktime_get_boot_ns();
	ev->ifindex = key->ifindex;
	addr_copy(ev->vip, key->addr);
	addr_copy(ev->spa, f->spa);
	addr_copy(ev->tpa, f->tpa);
	mac_store(ev->sha, f->sha);
	mac_store(ev->tha, f->tha);
	mac_store(ev->eth_src, f->eth_src);
	mac_store(ev->eth_dst, f->eth_dst);
	ev->op = f->op;
	ev->verdict = d.verdict;
	ev->reason = d.reason;
	ev->hook = at->hook;
	ev->mode = mode_of(at, e);
	ev->kind = e->kind;
	ev->pad[0] = ev->pad[1] = ev->pad[2] = ev->pad[3] = ev->pad[4] = 0;
	events.ringbuf_submit(ev, 0);
}

/* Whether there may be one more event for a reason in this window. */
static __always_inline int has_room(struct totals *t, __u64 reason, __u64 window)
{
	__u64 *reported = &t->reported[reason];

	if (*reported >> 16 != window)
		*reported = window << 16;
	if ((*reported & 0xffff) >= EVENTS_IN_WINDOW)
		return 0;
	++*reported;
	return 1;
}

/* Counts a decision about an entry, reports it unless the rate limit says no,
 * and returns the verdict that is to be carried out: in observe mode everything passes. */
static __always_inline __u8 conclude(struct at *at, const struct entry_key *key, const struct entry *e,
				     struct decision d, int explain)
{
	int observed = mode_of(at, e) != MODE_ENFORCE;
	__u64 window, bit, reason;
	__u32 slot = e->slot;
	struct counters *c;
	struct totals *t;

	/* Else the verifier would look at all that follows once for each decision. */
	d = DECIDE(forgotten(d.verdict, slot), forgotten(d.reason, slot));
	if (explain) {
		trace(at, d.verdict, d.reason);
		return observed ? VERDICT_PASS : d.verdict;
	}
	reason = opaque(d.reason); /* so that one register has what was compared and is used */
	t = count_total(d.reason, observed);
	c = counters.lookup(&slot);
	if (c && t && reason < REASON_COUNT) {
		bit = 1ull << reason;
		c->frames[observed][reason]++;
		window = bpf_jiffies64() >> EVENT_WINDOW_SHIFT;
		if (c->window != window) {
			c->window = window;
			c->reported = 0;
		}
		if (c->reported & bit || !has_room(t, reason, window)) {
			t->limited++;
		} else {
			c->reported |= bit;
			report(at, key, e, d, t);
		}
	}
	return observed ? VERDICT_PASS : d.verdict;
}

/* What the hook has to do with the frame. */
/* ACT_HIDE drops it for this node's kernel only, where the hook can. */
enum act { ACT_NEXT, ACT_DROP, ACT_HIDE, ACT_ANSWER, ACT_DISARM, ACT_REWRITE };

static __always_inline enum act nothing_guarded(struct at *at, __u8 reason, int explain)
{
	if (explain)
		trace(at, VERDICT_PASS, reason);
	else
		count_total(reason, 0);
	return ACT_NEXT;
}

/* The entry of an address in the frame; `key` becomes its key. */
static __always_inline struct entry *find_entry(const struct at *at, struct entry_key *key, const __be32 *addr)
{
	key->ifindex = at->ifindex;
	addr_copy(key->addr, addr);
	return entries.lookup(key);
}

/* The closed range that an address without an entry is in; `key` becomes its key. */
static __always_inline struct entry *find_closed(const struct at *at, struct range_key *key, const __be32 *addr)
{
	struct entry *e;

	if (!at->control->closed)
		return 0;
	key->prefixlen = 8 * sizeof(key->at);
	key->at.ifindex = at->ifindex;
	addr_copy(key->at.addr, addr);
	e = ranges.lookup(key);
	return e && e->kind == KIND_CLOSED ? e : 0;
}

/* Whether there is an entry or a closed range for an address. */
static __always_inline int is_guarded(const struct at *at, const __be32 *addr)
{
	struct range_key key;

	return find_entry(at, &key.at, addr) || find_closed(at, &key, addr);
}

/* The entry of an address, looked up after the frame was examined: for neighbour discovery that is the second time.
 * A lookup can miss an entry that the agent is replacing: the kernel links the new one at the head of its bucket, and
 * then unlinks the old one. The second lookup is repeated, so that the program misses no more than with one lookup. */
static __always_inline struct entry *find_again(const struct at *at, struct entry_key *key, const __be32 *addr)
{
	struct entry *e = find_entry(at, key, addr);

	return !e && is_nd(&at->seen.facts) ? find_entry(at, key, addr) : e;
}

/* Judges an incoming frame; ACT_ANSWER leaves in `mac` what to answer with.
 * The sender is judged before the target: a conflicting packet is never answered (RFC 5227 2.5).
 * In neighbour discovery it looks up each address twice: before it examines the message, because that takes long and
 * most messages concern no VIP, and after, for the entry. In between it holds no entry, and hides from the verifier
 * which address has one: otherwise the verifier would follow the walk over the options once for each combination. */
static __always_inline enum act judge_ingress(struct at *at, __u64 *mac, int explain)
{
	const struct facts *f = &at->seen.facts;
	__u64 claims = may_be_vip(f, at->control, f->spa);
	__u64 asks = is_question(f) && may_be_vip(f, at->control, f->tpa);
	__u64 act = ACT_NEXT, guarded = 0;
	struct range_key key;
	struct entry *e;
	__u8 verdict;

	if (is_nd(f)) {
		claims = claims && find_entry(at, &key.at, f->spa);
		asks = asks && is_guarded(at, f->tpa);
	}
	if (!claims && !asks)
		return nothing_guarded(at, REASON_NOT_GUARDED, explain);
	claims = forgotten(claims, at->ifindex);
	asks = forgotten(asks, at->ifindex);
	examine(&at->seen);

	e = claims ? find_again(at, &key.at, f->spa) : 0;
	if (e) {
		guarded = 1;
		verdict = conclude(at, &key.at, e, decide_claim(f, e), explain);
		if (verdict == VERDICT_CONFLICT || verdict == VERDICT_SUPPRESS)
			return ACT_DROP;
		if (mode_of(at, e) == MODE_ENFORCE && claim_needs_disarming(f, e))
			act = ACT_DISARM;
	}
	act = forgotten(act, at->ifindex);

	e = asks ? find_again(at, &key.at, f->tpa) : 0;
	if (e) {
		if (needs_clock(e, at->control))
			at->now_ns = bpf_ktime_get_boot_ns();
		verdict = conclude(at, &key.at, e, decide_request(f, e, at->control, at->grants, at->now_ns), explain);
		*mac = mac_load(e->answer_mac);
		if (verdict == VERDICT_SUPPRESS)
			return ACT_DROP;
		return verdict == VERDICT_ANSWER ? ACT_ANSWER : act;
	}
	e = asks ? find_closed(at, &key, f->tpa) : 0;
	if (e)
		return conclude(at, &key.at, e, decide_unknown(f, e), explain) == VERDICT_SUPPRESS ? ACT_HIDE : act;
	return guarded ? act : nothing_guarded(at, REASON_NOT_GUARDED, explain);
}

static __always_inline enum act judge_egress(struct at *at, __be32 *primary, int explain)
{
	const struct facts *f = &at->seen.facts;
	struct range_key key;
	struct entry *e;
	__u8 verdict;

	if (!may_be_vip(f, at->control, f->spa) || (is_nd(f) && !is_guarded(at, f->spa)))
		return nothing_guarded(at, REASON_NOT_GUARDED, explain);
	examine(&at->seen);
	e = find_again(at, &key.at, f->spa);
	if (!e)
		e = find_closed(at, &key, f->spa);
	if (!e)
		return nothing_guarded(at, REASON_NOT_GUARDED, explain);
	if (needs_clock(e, at->control))
		at->now_ns = bpf_ktime_get_boot_ns();
	verdict = conclude(at, &key.at, e, decide_egress(f, e, at->control, at->grants, at->now_ns), explain);
	addr_copy(primary, e->primary);
	if (verdict == VERDICT_SUPPRESS)
		return ACT_DROP;
	return verdict == VERDICT_REWRITE ? ACT_REWRITE : ACT_NEXT;
}

/* A frame with more nested VID-0 tags or extension headers than anybody needs cannot be read, and the kernel might
 * answer it. */
static __always_inline enum act unreadable(struct at *at, __u8 reason, int explain)
{
	int enforced;

	if (reason != REASON_UNWALKABLE)
		return nothing_guarded(at, reason, explain);
	enforced = (at->seen.place.ip ? at->control->strictest6 : at->control->strictest) == MODE_ENFORCE;
	if (explain)
		trace(at, VERDICT_SUPPRESS, reason);
	else
		count_total(reason, !enforced);
	return enforced ? ACT_DROP : ACT_NEXT;
}

/* Fills at->control and at->grants; REASON_UNCONFIGURED while the agent has not written the first yet. */
static __always_inline __u8 find_control(struct at *at)
{
	__u32 zero = 0;

	at->control = control.lookup(&zero);
	at->grants = grants.lookup(&zero);
	return at->control && at->grants && at->control->generation ? REASON_UNSET : REASON_UNCONFIGURED;
}

/* ---- vouching ---------------------------------------------------------------------------------------------- */

/* Where the payload of a frame of vouching is, and the control value that says so; 0: it is none. */
static __always_inline __u32 find_vouching(const struct view *view, __u8 reason, const struct control **c)
{
	__u32 zero = 0;

	if (!is_other_type(reason))
		return 0;
	*c = control.lookup(&zero);
	return *c && (*c)->ethertype ? payload_of(view, (*c)->ethertype) : 0;
}

static __always_inline void count_vouched(__u8 what)
{
	__u32 zero = 0;
	struct totals *t = totals.lookup(&zero);

	if (t && what < VOUCHED_COUNT)
		t->vouched[what]++;
}

/* What comes of a frame on a link; VOUCHED_PING leaves the pong in `f`. */
static __always_inline __u8 vouch(struct vouch_frame *f, __u32 ifindex, const struct control *c)
{
	struct vouching *v = vouching.lookup(&ifindex);
	__u8 what = vouch_examine(f, v);
	struct grants *g;
	__u32 zero = 0;
	__u64 now_ns;

	if (!v || (what != VOUCHED_PING && what != VOUCHED_GRANT))
		return what;
	g = grants.lookup(&zero);
	if (!g)
		return VOUCHED_OTHER_TERM;
	now_ns = bpf_ktime_get_boot_ns();
	if (what == VOUCHED_GRANT)
		return take_grant(g, f, v, c, now_ns);
	g->pinged_ns = now_ns;
	make_pong(f, v, c, g, now_ns);
	return VOUCHED_PING;
}

static __always_inline int vouch_at_tc(struct __sk_buff *skb, __u32 payload, const struct control *c)
{
	struct vouch_frame f;
	__u8 what = read_vouch_tc(skb, payload, &f) ? VOUCHED_UNREADABLE : vouch(&f, skb->ifindex, c);

	count_vouched(what);
	if (what == VOUCHED_PING)
		return pong_tc(skb, payload, &f);
	return what == VOUCHED_GRANT ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

static __always_inline int vouch_at_xdp(struct xdp_md *ctx, __u32 payload, const struct control *c)
{
	struct vouch_frame f;
	__u8 what = read_vouch_xdp(ctx, payload, &f) ? VOUCHED_UNREADABLE : vouch(&f, ctx->ingress_ifindex, c);

	count_vouched(what);
	if (what == VOUCHED_PING)
		return pong_xdp(ctx, payload, &f);
	return what == VOUCHED_GRANT ? XDP_DROP : XDP_PASS;
}

/* ---- programs ---------------------------------------------------------------------------------------------- */

/* What is known of a frame before it is read. */
static __always_inline void begin(struct at *at, const struct place *place, const struct view *view, __u32 ifindex)
{
	at->seen.place = *place;
	at->seen.facts.tags = place->tags;
	at->seen.length = view->length;
	at->seen.arp = 0;
	at->seen.nd.ip = 0;
	at->now_ns = 0;
	at->ifindex = ifindex;
	at->trace = 0;
	/* From here on it is in memory, where the verifier forgets what it knows of small numbers: else it would look
	 * at all that follows once for each combination of them. */
	asm volatile("" : : "r"(at) : "memory");
}

/* `reason`: why there is nothing to read, so far. */
static __always_inline __u8 prepare_tc(struct __sk_buff *skb, struct at *at, __u8 reason)
{
	if (find_control(at))
		return REASON_UNCONFIGURED;
	if (read_tag_beside(skb, &at->seen))
		return REASON_OTHER_VLAN;
	return reason ? reason : read_tc(skb, &at->seen);
}

static __always_inline int ingress_at_tc(struct __sk_buff *skb, struct at *at, __u8 reason, int explain)
{
	__u64 mac = 0;
	enum act act;

	reason = prepare_tc(skb, at, reason);
	act = reason ? unreadable(at, reason, explain) : judge_ingress(at, &mac, explain);
	if (act == ACT_DROP)
		return TC_ACT_SHOT;
	if (act == ACT_HIDE)
		return explain ? TC_ACT_SHOT : hide_tc(skb);
	if (act == ACT_ANSWER)
		return answer_tc(skb, &at->seen, mac);
	return act == ACT_DISARM ? disarm_tc(skb, &at->seen) : TC_ACT_UNSPEC;
}

static __always_inline int egress_at_tc(struct __sk_buff *skb, struct at *at, __u8 reason, int explain)
{
	__be32 primary[4] = {};
	enum act act;

	reason = prepare_tc(skb, at, reason);
	act = reason ? unreadable(at, reason, explain) : judge_egress(at, primary, explain);
	if (act == ACT_DROP)
		return TC_ACT_SHOT;
	return act == ACT_REWRITE ? rewrite_tc(skb, &at->seen, primary) : TC_ACT_UNSPEC;
}

/* Runs at a hook of tc; `explain` makes a twin of the program. A test run is always on the loopback device of its
 * namespace, unless its context names another one; so skb->mark tells twins which link is meant.
 * Nothing is prepared before a frame is known to be of concern: ordinary traffic would pay for every store. */
static __always_inline int run_tc(struct __sk_buff *skb, __u8 hook, int explain)
{
	struct view view = view_tc(skb);
	struct place place = {};
	const struct control *c;
	struct at at;
	__u32 payload;
	int code;
	__u8 reason = locate(&place, &view);

	if (hook == HOOK_TC_INGRESS && !explain) {
		payload = find_vouching(&view, reason, &c);
		if (payload)
			return vouch_at_tc(skb, payload, c);
	}
	if (reason == NO_CONCERN || reason == OTHER_TYPE)
		return explain ? TC_ACT_UNSPEC & 0xff : TC_ACT_UNSPEC;
	at.hook = hook;
	begin(&at, &place, &view, explain ? skb->mark : skb->ifindex);
	code =
	    hook == HOOK_TC_EGRESS ? egress_at_tc(skb, &at, reason, explain) : ingress_at_tc(skb, &at, reason, explain);
	return explain ? traced(&at, code) : code;
}

static __always_inline int ingress_at_xdp(struct xdp_md *ctx, struct at *at, const struct view *view, __u8 reason,
					  int explain)
{
	__u64 mac = 0;
	enum act act;

	if (find_control(at))
		reason = REASON_UNCONFIGURED;
	else if (!reason)
		reason = read_facts(&at->seen, view->data, view->end);
	act = reason ? unreadable(at, reason, explain) : judge_ingress(at, &mac, explain);
	if (act == ACT_DROP || act == ACT_HIDE)
		return XDP_DROP;
	if (act == ACT_ANSWER)
		return answer_xdp(ctx, &at->seen, mac);
	return act == ACT_DISARM ? disarm_xdp(ctx, &at->seen) : XDP_PASS;
}

/* XDP test runs cannot name every device in their context, so 4 bytes of metadata name the twin's link. */
static __always_inline __u32 link_in_metadata(const struct xdp_md *ctx)
{
	__u32 *ifindex = (void *)(long)ctx->data_meta;

	return (void *)(ifindex + 1) <= (void *)(long)ctx->data ? *ifindex : 0;
}

static __always_inline int run_xdp(struct xdp_md *ctx, int explain)
{
	struct view view = view_xdp(ctx);
	struct place place = {};
	const struct control *c;
	struct at at;
	__u32 payload;
	int code;
	__u8 reason = locate(&place, &view);

	if (!explain) {
		payload = find_vouching(&view, reason, &c);
		if (payload)
			return vouch_at_xdp(ctx, payload, c);
	}
	if (reason == NO_CONCERN || reason == OTHER_TYPE)
		return XDP_PASS;
	at.hook = HOOK_XDP;
	begin(&at, &place, &view, explain ? link_in_metadata(ctx) : ctx->ingress_ifindex);
	code = ingress_at_xdp(ctx, &at, &view, reason, explain);
	return explain ? traced(&at, code) : code;
}

int ingress_tc(struct __sk_buff *skb)
{
	return run_tc(skb, HOOK_TC_INGRESS, 0);
}

int egress_tc(struct __sk_buff *skb)
{
	return run_tc(skb, HOOK_TC_EGRESS, 0);
}

int ingress_xdp(struct xdp_md *ctx)
{
	return run_xdp(ctx, 0);
}

int try_ingress_tc(struct __sk_buff *skb)
{
	return run_tc(skb, HOOK_TC_INGRESS, 1);
}

int try_egress_tc(struct __sk_buff *skb)
{
	return run_tc(skb, HOOK_TC_EGRESS, 1);
}

int try_ingress_xdp(struct xdp_md *ctx)
{
	return run_xdp(ctx, 1);
}
