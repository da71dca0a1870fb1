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

#include "frame.h"
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
	struct arp_facts facts;
	const struct control *control;
	__u64 now_ns; /* CLOCK_BOOTTIME, or 0 while nobody needed it */
	__u32 ifindex;
	__u32 trace; /* decisions so far, of a twin */
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

static __always_inline void key_of(struct entry_key *key, __u32 ifindex, __be32 addr)
{
	key->ifindex = ifindex;
	key->addr[0] = 0;
	key->addr[1] = 0;
	key->addr[2] = BE32(0x0000ffff);
	key->addr[3] = addr;
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
	const struct arp_facts *f = &at->facts;
	struct event *ev = events.ringbuf_reserve(sizeof(*ev));

	if (!ev) {
		t->lost++;
		return;
	}
	t->sent++;
	ev->time_ns = at->now_ns ? at->now_ns : bpf_ktime_get_boot_ns();
	ev->ifindex = key->ifindex;
	ev->vip[0] = ev->spa[0] = ev->tpa[0] = 0;
	ev->vip[1] = ev->spa[1] = ev->tpa[1] = 0;
	ev->vip[2] = ev->spa[2] = ev->tpa[2] = BE32(0x0000ffff);
	ev->vip[3] = key->addr[3];
	ev->spa[3] = f->spa;
	ev->tpa[3] = f->tpa;
	*(struct mac *)ev->sha = *f->sha;
	*(struct mac *)ev->tha = *f->tha;
	*(struct mac *)ev->eth_src = *f->eth_src;
	*(struct mac *)ev->eth_dst = *f->eth_dst;
	ev->op = __builtin_bswap16(f->op);
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
	__u64 window, bit = 1ull << d.reason;
	__u32 slot = e->slot;
	struct counters *c;
	struct totals *t;

	if (at->explain) {
		trace(at, d.verdict, d.reason);
		return observed ? VERDICT_PASS : d.verdict;
	}
	t = count_total(d.reason, observed);
	c = counters.lookup(&slot);
	if (c && t && d.reason < REASON_COUNT) {
		c->frames[observed][d.reason]++;
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

/* Judges an incoming frame; ACT_ANSWER leaves in `mac` what to answer with.
 * The sender is judged before the target: a conflicting packet is never answered (RFC 5227 2.5). */
static __always_inline enum act judge_ingress(struct at *at, struct mac *mac)
{
	const struct arp_facts *f = &at->facts;
	struct entry *claimed = 0, *e = 0;
	struct entry_key spa_key, tpa_key;
	enum act act = ACT_NEXT;
	__u64 concerned;
	__u8 verdict;

	if (f->spa && may_be_vip(at->control, f->spa)) {
		key_of(&spa_key, at->ifindex, f->spa);
		claimed = entries.lookup(&spa_key);
	}
	if (is_question(f) && may_be_vip(at->control, f->tpa)) {
		key_of(&tpa_key, at->ifindex, f->tpa);
		e = entries.lookup(&tpa_key);
	}
	concerned = claimed ? 1 : 0;
	/* Keeps the optimiser from joining the two tests into one OR of pointers, which the verifier refuses. */
	asm volatile("" : "+r"(concerned));
	if (!concerned && !e)
		return nothing_guarded(at, REASON_NOT_GUARDED);

	if (claimed) {
		verdict = conclude(at, &spa_key, claimed, decide_claim(f, claimed));
		if (verdict == VERDICT_CONFLICT || verdict == VERDICT_SUPPRESS)
			return ACT_DROP;
		if (mode_of(at, claimed) == MODE_ENFORCE && claim_needs_disarming(f, claimed))
			act = ACT_DISARM;
	}
	if (e) {
		if (needs_clock(e, at->control))
			at->now_ns = bpf_ktime_get_boot_ns();
		verdict = conclude(at, &tpa_key, e, decide_request(f, e, at->control, at->now_ns));
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
	const struct arp_facts *f = &at->facts;
	struct entry *e = 0;
	struct entry_key key;
	__u8 verdict;

	key_of(&key, at->ifindex, f->spa);
	if (f->spa && may_be_vip(at->control, f->spa))
		e = entries.lookup(&key);
	if (!e)
		return nothing_guarded(at, REASON_NOT_GUARDED);
	if (needs_clock(e, at->control))
		at->now_ns = bpf_ktime_get_boot_ns();
	verdict = conclude(at, &key, e, decide_egress(f, e, at->control, at->now_ns));
	*primary = e->primary[3];
	if (verdict == VERDICT_SUPPRESS)
		return ACT_DROP;
	return verdict == VERDICT_REWRITE ? ACT_REWRITE : ACT_NEXT;
}

/* A frame with more nested VID-0 tags than anybody needs cannot be read, and the kernel might answer it. */
static __always_inline enum act unreadable(struct at *at, __u8 reason)
{
	int enforced = at->control && at->control->strictest == MODE_ENFORCE;

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

/* ---- tc ---------------------------------------------------------------------------------------------------- */

/* Makes the start of the frame directly readable: a driver may leave only the Ethernet header linear. */
static __always_inline void make_linear(struct __sk_buff *skb)
{
	__u32 want = skb->len < FRAME_HEAD_LEN ? skb->len : FRAME_HEAD_LEN;

	if ((void *)(long)skb->data + want > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, want);
}

/* The tag that the kernel or the NIC took out of the frame (skb->vlan_tci). */
static __always_inline __u8 metadata_tag(const struct __sk_buff *skb, struct arp_facts *f)
{
	if (skb->vlan_present) {
		if (skb->vlan_tci & 0x0fff)
			return REASON_OTHER_VLAN;
		f->tags = 1;
	}
	return REASON_UNSET;
}

static __always_inline __u8 parse_tc(struct __sk_buff *skb, struct at *at)
{
	__u8 reason = metadata_tag(skb, &at->facts);

	if (reason)
		return reason;
	make_linear(skb);
	return frame_parse(&at->facts, (void *)(long)skb->data, (void *)(long)skb->data_end);
}

/* Tags read through that are still in the frame, not beside it. */
static __always_inline __u32 tags_in_frame(const struct __sk_buff *skb, const struct at *at)
{
	return at->facts.tags - (skb->vlan_present ? 1 : 0);
}

static __always_inline int answer_tc(struct __sk_buff *skb, const struct at *at, const struct mac *mac)
{
	struct arp_asked asked;
	__u16 reply[ETH_MIN_LEN / 2] = {};
	__u32 untagged = skb->len - tags_in_frame(skb, at) * VLAN_TAG_LEN;
	__u32 len = untagged < ETH_MIN_LEN ? ARP_FRAME_LEN : ETH_MIN_LEN;

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

static __always_inline int disarm_tc(struct __sk_buff *skb, struct at *at)
{
	struct mac sha = *at->facts.sha;
	__be16 op = OP_REPLY;
	__u32 body = ETH_HEADER_LEN + tags_in_frame(skb, at) * VLAN_TAG_LEN;
	if (bpf_skb_store_bytes(skb, body + 6, &op, sizeof(op), 0) ||
	    bpf_skb_store_bytes(skb, body + 18, &sha, sizeof(sha), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

static __always_inline int run_ingress_tc(struct __sk_buff *skb, struct at *at)
{
	struct mac mac = {};
	enum act act;
	__u8 reason;

	/* The kernel has already taken one VLAN tag out of the frame: anything else is not for us. */
	if (skb->protocol != ETHERTYPE_ARP && !is_vlan(skb->protocol))
		return TC_ACT_UNSPEC;
	reason = find_control(at);
	if (!reason)
		reason = parse_tc(skb, at);
	act = reason ? unreadable(at, reason) : judge_ingress(at, &mac);
	if (act == ACT_DROP)
		return TC_ACT_SHOT;
	if (act == ACT_ANSWER)
		return answer_tc(skb, at, &mac);
	return act == ACT_DISARM ? disarm_tc(skb, at) : TC_ACT_UNSPEC;
}

static __always_inline int run_egress_tc(struct __sk_buff *skb, struct at *at)
{
	void *data = (void *)(long)skb->data;
	__be32 primary = 0;
	__u16 *type = data + ETH_HEADER_LEN - 2;
	enum act act;
	__u8 reason;
	__u32 spa;

	/* skb->protocol is what the sender says; only the frame itself tells what leaves. */
	if ((void *)(type + 1) <= (void *)(long)skb->data_end && *type != ETHERTYPE_ARP && !is_vlan(*type))
		return TC_ACT_UNSPEC;
	reason = find_control(at);
	if (!reason)
		reason = parse_tc(skb, at);
	act = reason ? unreadable(at, reason) : judge_egress(at, &primary);
	if (act == ACT_DROP)
		return TC_ACT_SHOT;
	if (act == ACT_REWRITE) {
		spa = ETH_HEADER_LEN + tags_in_frame(skb, at) * VLAN_TAG_LEN + 14;
		if (bpf_skb_store_bytes(skb, spa, &primary, sizeof(primary), 0))
			return TC_ACT_SHOT;
	}
	return TC_ACT_UNSPEC;
}

/* ---- XDP --------------------------------------------------------------------------------------------------- */

static __always_inline int answer_xdp(struct xdp_md *ctx, const struct at *at, const struct mac *mac)
{
	struct arp_asked asked;
	int len, i;
	void *data;
	__u16 *padding;

	arp_keep(&asked, &at->facts);
	if (at->facts.tags && bpf_xdp_adjust_head(ctx, VLAN_TAG_LEN))
		return XDP_DROP;
	len = (int)(ctx->data_end - ctx->data);
	i = (len < ETH_MIN_LEN ? ARP_FRAME_LEN : ETH_MIN_LEN) - len;
	if (i && bpf_xdp_adjust_tail(ctx, i))
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

static __always_inline int disarm_xdp(struct xdp_md *ctx, const struct at *at)
{
	__u32 offset = ETH_HEADER_LEN + (at->facts.tags & (2 * MAX_TAGS - 1)) * VLAN_TAG_LEN;
	__u16 *body = (void *)(long)ctx->data + offset;

	if ((void *)(body + ARP_BODY_LEN / 2) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	body[3] = OP_REPLY;
	body[9] = body[4];
	body[10] = body[5];
	body[11] = body[6];
	return XDP_PASS;
}

static __always_inline int run_ingress_xdp(struct xdp_md *ctx, struct at *at)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 *type = data + ETH_HEADER_LEN - 2;
	struct mac mac = {};
	enum act act;
	__u8 reason;

	if ((void *)(type + 1) > end || (*type != ETHERTYPE_ARP && !is_vlan(*type)))
		return XDP_PASS;
	reason = find_control(at);
	if (!reason)
		reason = frame_parse(&at->facts, data, end);
	act = reason ? unreadable(at, reason) : judge_ingress(at, &mac);
	if (act == ACT_DROP)
		return XDP_DROP;
	if (act == ACT_ANSWER)
		return answer_xdp(ctx, at, &mac);
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
