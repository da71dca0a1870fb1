// SPDX-License-Identifier: Apache-2.0
/* The three programs: ingress_tc, ingress_xdp, egress_tc.
 *
 * Each one parses, looks up, decides, counts, and acts. Each has a twin, try_*, which is the same code over the
 * same maps but counts and reports nothing: it returns what was decided, for BPF_PROG_TEST_RUN, and is never attached. Map access is in this file only: bcc rewrites map
 * operations in the main file and nowhere else. The loader defines:
 *   MAPS         directory in bpffs that the maps are pinned in, as a string
 *   MAX_ENTRIES  size of the entries and counters maps
 *   RING_BYTES   size of the event ring buffer, a power of two
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/pkt_cls.h>

#include "arp.h"
#include "frame.h"
#include "ndp.h"
#include "decide.h"

/* At most one event per entry, reason and CPU in a window of 256 jiffies: 1.02 s at HZ=250, 0.26 s at HZ=1000.
 * Jiffies, because no other clock is free to read. */
#define EVENT_WINDOW_SHIFT 8

BPF_TABLE_PINNED("hash", struct entry_key, struct entry, entries, MAX_ENTRIES, MAPS "/entries", BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("percpu_array", __u32, struct counters, counters, MAX_ENTRIES, MAPS "/counters", 0);
BPF_TABLE_PINNED("percpu_array", __u32, struct totals, totals, 1, MAPS "/totals", 0);
/* Per CPU, because such a map is written in whole words, each by one store (bpf_long_memcpy()). */
BPF_TABLE_PINNED("percpu_array", __u32, struct control, control, 1, MAPS "/control", 0);

/* BPF_RINGBUF_OUTPUT with a pin, which bcc has no macro for. */
struct events_table_t {
	int key;
	u32 leaf;
	void *(*ringbuf_reserve)(u64);
	void (*ringbuf_discard)(void *, u64);
	void (*ringbuf_submit)(void *, u64);
	int (*ringbuf_output)(void *, u64, u64);
	u32 max_entries;
};
__attribute__((section("maps/ringbuf:" MAPS "/events"))) struct events_table_t events = {.max_entries = RING_BYTES};

/* What all steps need to know about the frame at hand. */
struct at {
	struct facts facts;
	struct nd_message nd; /* where the facts come from, if it is neighbour discovery */
	struct place place;
	const struct control *control;
	__u64 now_ns; /* CLOCK_BOOTTIME, or 0 while nobody needed it */
	__u32 ifindex;
	__u32 length; /* of the frame */
	__u32 trace;  /* decisions so far, of a twin */
	__u8 hook;
	__u8 explain;
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
	const struct facts *f = &at->facts;
	struct event *ev = events.ringbuf_reserve(sizeof(*ev));

	if (!ev) {
		t->lost++;
		return;
	}
	t->sent++;
	ev->time_ns = at->now_ns ? at->now_ns : bpf_ktime_get_boot_ns();
	ev->ifindex = key->ifindex;
	addr_copy(ev->vip, key->addr);
	addr_copy(ev->spa, f->spa.addr);
	addr_copy(ev->tpa, f->tpa.addr);
	*(struct mac *)ev->sha = *f->sha;
	*(struct mac *)ev->tha = *f->tha;
	*(struct mac *)ev->eth_src = *f->eth_src;
	*(struct mac *)ev->eth_dst = *f->eth_dst;
	ev->op = f->op;
	ev->verdict = d.verdict;
	ev->reason = d.reason;
	ev->hook = at->hook;
	ev->mode = mode_of(at, e);
	ev->kind = e->kind;
	ev->pad[0] = ev->pad[1] = ev->pad[2] = ev->pad[3] = ev->pad[4] = 0;
	events.ringbuf_submit(ev, 0);
}

/* Counts a decision about an entry, reports it unless the rate limit says no,
 * and returns the verdict that is to be carried out: in observe mode everything passes. */
static __always_inline __u8 conclude(struct at *at, const struct entry_key *key, const struct entry *e,
				     struct decision d)
{
	int observed = mode_of(at, e) != MODE_ENFORCE;
	__u64 window, bit, reason = opaque(d.reason); /* so that one register has what was compared and is used */
	__u32 slot = e->slot;
	struct counters *c;
	struct totals *t;

	if (at->explain) {
		trace(at, d.verdict, d.reason);
		return observed ? VERDICT_PASS : d.verdict;
	}
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
		if (c->reported & bit) {
			t->limited++;
		} else {
			c->reported |= bit;
			report(at, key, e, d, t);
		}
	}
	return observed ? VERDICT_PASS : d.verdict;
}

/* What the hook has to do with the frame. */
enum act { ACT_NEXT, ACT_DROP, ACT_ANSWER, ACT_DISARM, ACT_REWRITE };

static __always_inline enum act nothing_guarded(struct at *at, __u8 reason)
{
	if (at->explain)
		trace(at, VERDICT_PASS, reason);
	else
		count_total(reason, 0);
	return ACT_NEXT;
}

static __always_inline struct entry *find_entry(struct at *at, struct entry_key *key)
{
	return may_be_vip(&at->facts, at->control, key->addr) ? entries.lookup(key) : 0;
}

/* Reads what only matters once a VIP is concerned. The pointer tells the family: of it the verifier keeps track. */
static __always_inline void examine(struct at *at)
{
	if (at->nd.ip)
		nd_examine(&at->facts, &at->nd);
}

/* Judges an incoming frame; ACT_ANSWER leaves in `mac` what to answer with.
 * The sender is judged before the target: a conflicting packet is never answered (RFC 5227 2.5). */
static __always_inline enum act judge_ingress(struct at *at, struct mac *mac)
{
	struct facts *f = &at->facts;
	struct entry *claimed = find_entry(at, &f->spa), *e = 0;
	enum act act = ACT_NEXT;
	__u64 concerned;
	__u8 verdict;

	if (is_question(f))
		e = find_entry(at, &f->tpa);
	concerned = claimed ? 1 : 0;
	/* Keeps the optimiser from joining the two tests into one OR of pointers, which the verifier refuses. */
	asm volatile("" : "+r"(concerned));
	if (!concerned && !e)
		return nothing_guarded(at, REASON_NOT_GUARDED);
	examine(at);

	if (claimed) {
		verdict = conclude(at, &f->spa, claimed, decide_claim(f, claimed));
		if (verdict == VERDICT_CONFLICT || verdict == VERDICT_SUPPRESS)
			return ACT_DROP;
		if (mode_of(at, claimed) == MODE_ENFORCE && claim_needs_disarming(f, claimed))
			act = ACT_DISARM;
	}
	if (e) {
		if (needs_clock(e, at->control))
			at->now_ns = bpf_ktime_get_boot_ns();
		verdict = conclude(at, &f->tpa, e, decide_request(f, e, at->control, at->now_ns));
		mac_load(mac, e->answer_mac);
		if (verdict == VERDICT_SUPPRESS)
			return ACT_DROP;
		if (verdict == VERDICT_ANSWER)
			return ACT_ANSWER;
	}
	return act;
}

static __always_inline enum act judge_egress(struct at *at, __be32 *primary)
{
	struct facts *f = &at->facts;
	struct entry *e = find_entry(at, &f->spa);
	__u8 verdict;

	if (!e)
		return nothing_guarded(at, REASON_NOT_GUARDED);
	examine(at);
	if (needs_clock(e, at->control))
		at->now_ns = bpf_ktime_get_boot_ns();
	verdict = conclude(at, &f->spa, e, decide_egress(f, e, at->control, at->now_ns));
	addr_copy(primary, e->primary);
	if (verdict == VERDICT_SUPPRESS)
		return ACT_DROP;
	return verdict == VERDICT_REWRITE ? ACT_REWRITE : ACT_NEXT;
}

/* A frame with more nested VID-0 tags or extension headers than anybody needs cannot be read, and the kernel might
 * answer it. */
static __always_inline enum act unreadable(struct at *at, __u8 reason)
{
	__u8 strictest = !at->control ? MODE_INHERIT : at->place.ip ? at->control->strictest6 : at->control->strictest;
	int enforced = strictest == MODE_ENFORCE;

	if (reason != REASON_UNWALKABLE)
		return nothing_guarded(at, reason);
	if (at->explain)
		trace(at, VERDICT_SUPPRESS, reason);
	else
		count_total(reason, !enforced);
	return enforced ? ACT_DROP : ACT_NEXT;
}

/* Fills at->control; REASON_UNCONFIGURED while the agent has not written it yet. */
static __always_inline __u8 find_control(struct at *at)
{
	__u32 zero = 0;

	at->control = control.lookup(&zero);
	return at->control && at->control->generation ? REASON_UNSET : REASON_UNCONFIGURED;
}

/* Fills at->facts from what was found at at->place. */
static __always_inline __u8 read_facts(struct at *at, void *data, void *end)
{
	struct nd_message *nd = &at->nd;
	void *body = data + (opaque(at->place.body) & MAX_OFFSET);

	if (data + ETH_HEADER_LEN > end)
		return REASON_NOT_ARP;
	at->facts.tags = at->place.tags;
	at->facts.spa.ifindex = at->facts.tpa.ifindex = at->ifindex;
	if (!at->place.ip) {
		if (body + ARP_BODY_LEN > end)
			return REASON_NOT_ARP;
		return arp_parse(&at->facts, data, body) ? REASON_UNSET : REASON_NOT_ARP;
	}
	nd->ip = data + (opaque(at->place.ip) & MAX_OFFSET);
	nd->body = body;
	if ((void *)nd->ip + IPV6_HEADER_LEN > end || body + ND_MESSAGE_LEN > end)
		return REASON_NOT_ND;
	nd->end = end;
	nd->there = at->length - at->place.body;
	nd->length = at->place.end - at->place.body;
	nd->extensions = at->place.extensions;
	nd_parse(&at->facts, nd, data);
	return REASON_UNSET;
}

static __always_inline __u32 untagged_length(const struct at *at)
{
	return at->length - at->place.tags * VLAN_TAG_LEN;
}

/* ---- tc ---------------------------------------------------------------------------------------------------- */

/* Makes what is to be read of the frame directly readable: a driver may leave only the Ethernet header linear. */
static __always_inline int make_linear(struct __sk_buff *skb, const struct place *p)
{
	__u32 want = p->body + (p->ip ? ND_MAX_LEN : ARP_BODY_LEN);

	if (skb->len < want)
		want = skb->len;
	if ((void *)(long)skb->data + (opaque(want) & MAX_OFFSET) <= (void *)(long)skb->data_end)
		return 0;
	return bpf_skb_pull_data(skb, want);
}

/* The tag that the kernel or the NIC took out of the frame (skb->vlan_tci). */
static __always_inline int is_other_vlan(const struct __sk_buff *skb)
{
	return skb->vlan_present && skb->vlan_tci & 0x0fff;
}

static __always_inline __u8 read_tc(struct __sk_buff *skb, struct at *at)
{
	struct frame fr = {
	    .data = (void *)(long)skb->data, .end = (void *)(long)skb->data_end, .skb = skb, .length = skb->len};
	__u16 *type = fr.data + ETH_HEADER_LEN - 2;
	__u8 reason;

	if ((void *)(type + 1) > fr.end)
		return NO_CONCERN;
	if (*type != ETHERTYPE_ARP && *type != ETHERTYPE_IPV6 && !is_vlan(*type))
		return NO_CONCERN;
	reason = locate(&at->place, &fr, *type);
	if (reason == NO_CONCERN)
		return reason;
	at->length = fr.length;
	if (find_control(at))
		return REASON_UNCONFIGURED;
	if (is_other_vlan(skb))
		return REASON_OTHER_VLAN;
	if (reason)
		return reason;
	if (make_linear(skb, &at->place))
		return REASON_UNWALKABLE;
	reason = read_facts(at, (void *)(long)skb->data, (void *)(long)skb->data_end);
	at->facts.tags += skb->vlan_present ? 1 : 0;
	return reason;
}

static __always_inline int arp_answer_tc(struct __sk_buff *skb, const struct at *at, const struct mac *mac)
{
	struct arp_asked asked;
	__u16 reply[ETH_MIN_LEN / 2] = {};
	__u32 len = untagged_length(at) < ETH_MIN_LEN ? ARP_FRAME_LEN : ETH_MIN_LEN;

	arp_keep(&asked, &at->facts);
	arp_build_reply((struct arp_frame *)reply, &asked, mac);
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (skb->len != len && bpf_skb_change_tail(skb, len, 0))
		return TC_ACT_SHOT;
	/* Two calls, because the length of a store has to be a constant for older verifiers. */
	if (len == ETH_MIN_LEN ? bpf_skb_store_bytes(skb, 0, reply, ETH_MIN_LEN, 0)
			       : bpf_skb_store_bytes(skb, 0, reply, ARP_FRAME_LEN, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(at->ifindex, 0);
}

static __always_inline int nd_answer_tc(struct __sk_buff *skb, const struct at *at, const struct mac *mac)
{
	struct nd_answer answer;
	__u16 *frame = (__u16 *)answer.words + 1;

	nd_build_answer(frame, &at->facts, &at->nd.sha, mac);
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (skb->len != ND_ANSWER_LEN && bpf_skb_change_tail(skb, ND_ANSWER_LEN, 0))
		return TC_ACT_SHOT;
	/* A receiver on this machine verifies the checksum, and must not do so by the sum of the solicitation. */
	if (bpf_skb_store_bytes(skb, 0, frame, ND_ANSWER_LEN, BPF_F_RECOMPUTE_CSUM))
		return TC_ACT_SHOT;
	return bpf_redirect(at->ifindex, 0);
}

static __always_inline int disarm_tc(struct __sk_buff *skb, struct at *at)
{
	struct mac sha = *at->facts.sha;
	__be16 op = BE16(OP_REPLY);

	if (bpf_skb_store_bytes(skb, at->place.body + 6, &op, sizeof(op), 0) ||
	    bpf_skb_store_bytes(skb, at->place.body + 18, &sha, sizeof(sha), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

static __always_inline int run_ingress_tc(struct __sk_buff *skb, struct at *at)
{
	__u8 reason = read_tc(skb, at);
	struct mac mac = {};
	enum act act;

	if (reason == NO_CONCERN)
		return TC_ACT_UNSPEC;
	act = reason ? unreadable(at, reason) : judge_ingress(at, &mac);
	if (act == ACT_DROP)
		return TC_ACT_SHOT;
	if (act == ACT_ANSWER)
		return at->place.ip ? nd_answer_tc(skb, at, &mac) : arp_answer_tc(skb, at, &mac);
	return act == ACT_DISARM ? disarm_tc(skb, at) : TC_ACT_UNSPEC;
}

/* Puts `primary` in the place of the spa. */
static __always_inline int rewrite_tc(struct __sk_buff *skb, struct at *at, __be32 *primary)
{
	__u32 body = at->place.body;
	__s64 changed;

	if (!at->place.ip)
		return bpf_skb_store_bytes(skb, body + 14, &primary[3], 4, 0);
	changed = bpf_csum_diff(at->facts.spa.addr, 16, primary, 16, 0);
	if (changed < 0 || bpf_l4_csum_replace(skb, body + 2, 0, changed, BPF_F_PSEUDO_HDR))
		return -1;
	return bpf_skb_store_bytes(skb, at->place.ip + 8, primary, 16, 0);
}

static __always_inline int run_egress_tc(struct __sk_buff *skb, struct at *at)
{
	__u8 reason = read_tc(skb, at);
	__be32 primary[4];
	enum act act;

	if (reason == NO_CONCERN)
		return TC_ACT_UNSPEC;
	act = reason ? unreadable(at, reason) : judge_egress(at, primary);
	if (act == ACT_DROP)
		return TC_ACT_SHOT;
	if (act == ACT_REWRITE && rewrite_tc(skb, at, primary))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

/* ---- XDP --------------------------------------------------------------------------------------------------- */

/* Makes the frame `length` bytes long, and takes its tag away. */
static __always_inline int resize_xdp(struct xdp_md *ctx, const struct at *at, __u32 length)
{
	int more = length - untagged_length(at);

	if (at->place.tags && bpf_xdp_adjust_head(ctx, VLAN_TAG_LEN))
		return -1;
	return more ? bpf_xdp_adjust_tail(ctx, more) : 0;
}

static __always_inline int arp_answer_xdp(struct xdp_md *ctx, const struct at *at, const struct mac *mac)
{
	struct arp_asked asked;
	__u32 length = untagged_length(at) < ETH_MIN_LEN ? ARP_FRAME_LEN : ETH_MIN_LEN;
	__u16 *padding;
	void *data;
	int i;

	arp_keep(&asked, &at->facts);
	if (resize_xdp(ctx, at, length))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	if (data + ARP_FRAME_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	arp_build_reply(data, &asked, mac);
	if (data + ETH_MIN_LEN <= (void *)(long)ctx->data_end) {
		padding = data + ARP_FRAME_LEN;
#pragma unroll
		for (i = 0; i < (ETH_MIN_LEN - ARP_FRAME_LEN) / 2; i++)
			padding[i] = 0;
	}
	return XDP_TX;
}

static __always_inline int nd_answer_xdp(struct xdp_md *ctx, const struct at *at, const struct mac *mac)
{
	void *data;

	if (resize_xdp(ctx, at, ND_ANSWER_LEN))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	if (data + ND_ANSWER_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	nd_build_answer(data, &at->facts, &at->nd.sha, mac);
	return XDP_TX;
}

static __always_inline int disarm_xdp(struct xdp_md *ctx, const struct at *at)
{
	__u16 *body = (void *)(long)ctx->data + (opaque(at->place.body) & MAX_OFFSET);

	if ((void *)(body + ARP_BODY_LEN / 2) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	body[3] = BE16(OP_REPLY);
	body[9] = body[4];
	body[10] = body[5];
	body[11] = body[6];
	return XDP_PASS;
}

static __always_inline __u8 read_xdp(struct xdp_md *ctx, struct at *at)
{
	struct frame fr = {.data = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end};
	__u16 *type = fr.data + ETH_HEADER_LEN - 2;
	__u8 reason;

	fr.length = fr.end - fr.data;

	if ((void *)(type + 1) > fr.end)
		return NO_CONCERN;
	if (*type != ETHERTYPE_ARP && *type != ETHERTYPE_IPV6 && !is_vlan(*type))
		return NO_CONCERN;
	reason = locate(&at->place, &fr, *type);
	if (reason == NO_CONCERN)
		return reason;
	at->length = fr.length;
	if (find_control(at))
		return REASON_UNCONFIGURED;
	return reason ? reason : read_facts(at, fr.data, fr.end);
}

static __always_inline int run_ingress_xdp(struct xdp_md *ctx, struct at *at)
{
	__u8 reason = read_xdp(ctx, at);
	struct mac mac = {};
	enum act act;

	if (reason == NO_CONCERN)
		return XDP_PASS;
	act = reason ? unreadable(at, reason) : judge_ingress(at, &mac);
	if (act == ACT_DROP)
		return XDP_DROP;
	if (act == ACT_ANSWER)
		return at->place.ip ? nd_answer_xdp(ctx, at, &mac) : arp_answer_xdp(ctx, at, &mac);
	return act == ACT_DISARM ? disarm_xdp(ctx, at) : XDP_PASS;
}

/* ---- entry points ------------------------------------------------------------------------------------------- */

int ingress_tc(struct __sk_buff *skb)
{
	struct at at = {.hook = HOOK_TC_INGRESS, .ifindex = skb->ifindex};

	return run_ingress_tc(skb, &at);
}

int egress_tc(struct __sk_buff *skb)
{
	struct at at = {.hook = HOOK_TC_EGRESS, .ifindex = skb->ifindex};

	return run_egress_tc(skb, &at);
}

int ingress_xdp(struct xdp_md *ctx)
{
	struct at at = {.hook = HOOK_XDP, .ifindex = ctx->ingress_ifindex};

	return run_ingress_xdp(ctx, &at);
}

/* A test run is always on the loopback device of its namespace, unless its context names another one; for XDP it
 * cannot name every device. So the twins are told which link is meant: by skb->mark, or by 4 bytes of metadata. */
int try_ingress_tc(struct __sk_buff *skb)
{
	struct at at = {.hook = HOOK_TC_INGRESS, .ifindex = skb->mark, .explain = 1};

	return traced(&at, run_ingress_tc(skb, &at));
}

int try_egress_tc(struct __sk_buff *skb)
{
	struct at at = {.hook = HOOK_TC_EGRESS, .ifindex = skb->mark, .explain = 1};

	return traced(&at, run_egress_tc(skb, &at));
}

int try_ingress_xdp(struct xdp_md *ctx)
{
	__u32 *ifindex = (void *)(long)ctx->data_meta;
	struct at at = {.hook = HOOK_XDP, .explain = 1};

	if ((void *)(ifindex + 1) <= (void *)(long)ctx->data)
		at.ifindex = *ifindex;
	return traced(&at, run_ingress_xdp(ctx, &at));
}
