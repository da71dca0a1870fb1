/* SPDX-License-Identifier: Apache-2.0 */
/* bpf/arpguard.c, compiled for user space, and maps for it. */
#include <string.h>

#include "programs.h"

#include "arpguard.c"

struct world world;

static struct entry *entries_lookup(const struct entry_key *key)
{
	__u32 i;

	if (++world.lookups == world.missed)
		return 0;
	for (i = 0; i < world.entries; i++)
		if (!memcmp(&world.keys[i], key, sizeof(*key)))
			return &world.values[i];
	return 0;
}

/* Whether the first `bits` of two keys are the same. */
static int same_prefix(const __u8 *a, const __u8 *b, __u32 bits)
{
	__u32 whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole))
		return 0;
	return !rest || !((a[whole] ^ b[whole]) >> (8 - rest));
}

static struct entry *ranges_lookup(const struct range_key *key)
{
	struct entry *found = 0;
	__u32 i, longest = 0;

	world.lookups++;
	for (i = 0; i < world.ranges; i++) {
		const struct range_key *range = &world.range_keys[i];

		if (range->prefixlen < longest || range->prefixlen > key->prefixlen ||
		    !same_prefix((const __u8 *)&range->at, (const __u8 *)&key->at, range->prefixlen))
			continue;
		longest = range->prefixlen;
		found = &world.range_values[i];
	}
	return found;
}

static struct counters *counters_lookup(const __u32 *slot)
{
	return *slot < MAX_ENTRIES + MAX_RANGES_HERE ? &world.counters[*slot] : 0;
}

static struct totals *totals_lookup(const __u32 *key)
{
	return *key ? 0 : &world.totals;
}

static struct control *control_lookup(const __u32 *key)
{
	return *key ? 0 : &world.control;
}

static struct vouching *vouching_lookup(const __u32 *ifindex)
{
	return *ifindex == LINK && world.vouching.term ? &world.vouching : 0;
}

static struct grants *grants_lookup(const __u32 *key)
{
	return *key ? 0 : &world.grants;
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
	d->hidden = skb.pkt_type == PACKET_OTHERHOST;
	d->summed = skb.summed;
	skb_read(&skb, d->frame);
	skb_free(&skb);
}

static void run_xdp_program(const struct arrival *a, const __u8 *frame, struct departure *d)
{
	struct xdp_md ctx = {.ingress_ifindex = LINK};

	xdp_make(&ctx, LINK, frame, a->length);
	d->code = a->twin ? try_ingress_xdp(&ctx) : ingress_xdp(&ctx);
	d->length = ctx.data_end - ctx.data;
	d->tagged = d->redirected = d->hidden = d->summed = 0;
	memcpy(d->frame, (__u8 *)ctx.data, d->length);
	xdp_free(&ctx);
}

void run_program(const struct arrival *a, const __u8 *frame, struct departure *d)
{
	events.ringbuf_reserve = reserve;
	events.ringbuf_submit = submit;
	(a->hook == HOOK_XDP ? run_xdp_program : run_tc_program)(a, frame, d);
}
