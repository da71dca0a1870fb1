/* SPDX-License-Identifier: Apache-2.0 */
/* bpf/arpguard.c, compiled for user space, and maps for it. */
#include <string.h>

#include "programs.h"

#include "arpguard.c"

struct world world;

static struct entry *entries_lookup(const struct entry_key *key)
{
	__u32 i;

	world.lookups++;
	for (i = 0; i < world.entries; i++)
		if (!memcmp(&world.keys[i], key, sizeof(*key)))
			return &world.values[i];
	return 0;
}

static struct counters *counters_lookup(const __u32 *slot)
{
	return *slot < MAX_ENTRIES ? &world.counters[*slot] : 0;
}

static struct totals *totals_lookup(const __u32 *key)
{
	return *key ? 0 : &world.totals;
}

static struct control *control_lookup(const __u32 *key)
{
	return *key ? 0 : &world.control;
}

static struct event event;

static void *reserve(u64 size)
{
	return size == sizeof(event) ? &event : 0;
}

static void submit(void *reserved, u64 flags)
{
	world.events += reserved == &event;
}

static int run_at_tc(struct __sk_buff *skb, const struct arrival *a)
{
	if (a->hook == HOOK_TC_EGRESS)
		return a->twin ? try_egress_tc(skb) : egress_tc(skb);
	return a->twin ? try_ingress_tc(skb) : ingress_tc(skb);
}

static void run_tc_program(const struct arrival *a, const __u8 *frame, struct departure *d)
{
	struct __sk_buff skb;

	skb_make(&skb, frame, a->length, a->linear);
	skb.ifindex = skb.mark = LINK;
	skb.vlan_present = a->tagged;
	skb.vlan_tci = a->tagged ? a->tag : 0;
	skb.summed = a->summed;
	skb.ungainly = a->ungainly;
	d->code = run_at_tc(&skb, a);
	d->length = skb.len;
	d->tagged = skb.vlan_present;
	d->redirected = take_redirection();
	skb_read(&skb, d->frame);
	skb_free(&skb);
}

static void run_xdp_program(const struct arrival *a, const __u8 *frame, struct departure *d)
{
	struct xdp_md ctx = {.ingress_ifindex = LINK};

	xdp_make(&ctx, LINK, frame, a->length);
	d->code = a->twin ? try_ingress_xdp(&ctx) : ingress_xdp(&ctx);
	d->length = ctx.data_end - ctx.data;
	d->tagged = d->redirected = 0;
	memcpy(d->frame, (__u8 *)ctx.data, d->length);
	xdp_free(&ctx);
}

void run_program(const struct arrival *a, const __u8 *frame, struct departure *d)
{
	events.ringbuf_reserve = reserve;
	events.ringbuf_submit = submit;
	(a->hook == HOOK_XDP ? run_xdp_program : run_tc_program)(a, frame, d);
}
