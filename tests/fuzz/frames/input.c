/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "input.h"
#include "mutate.h"

#define EPOCH 7
#define HOUR_NS (3600 * 1000000000ull)
#define LEN(array) (sizeof(array) / sizeof(*(array)))

/* Those of tests/support/frames/builders.py and nd_builders.py, which the seeds are made with. */
static const __u8 vips[INPUT_VIPS][16] = {
    {[10] = 0xff, 0xff, 192, 0, 2, 100},
    {[10] = 0xff, 0xff, 192, 0, 2, 101},
    {0x20, 0x01, 0x0d, 0xb8, [14] = 1, 0},
    {0x20, 0x01, 0x0d, 0xb8, [14] = 1, 1},
};
static const __u8 primaries[2][16] = {
    {[10] = 0xff, 0xff, 192, 0, 2, 1},
    {0x20, 0x01, 0x0d, 0xb8, [15] = 1},
};
static const __u8 macs[][6] = {
    {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1}, {0, 0, 0x5e, 0, 1, 7}, {0}, {2, 0, 0, 0, 0, 0xaa},
};

static const __u8 *a_mac(__u8 choice)
{
	return macs[choice % LEN(macs)];
}

static void read_control(__u8 choice, struct control *c)
{
	const __u64 fences[] = {clock_ns + HOUR_NS,
				clock_ns + HOUR_NS,
				clock_ns + 1,
				clock_ns,
				clock_ns + 2 * HOUR_NS,
				clock_ns + 2 * HOUR_NS + 1,
				0,
				~0ull};

	c->generation = 1;
	c->epoch = EPOCH;
	c->lease_ns = 2 * HOUR_NS;
	c->mode = choice & 1 ? MODE_OBSERVE : MODE_ENFORCE;
	c->strictest = choice & 2 ? c->mode : MODE_ENFORCE;
	c->strictest6 = (choice >> 2 & 3) % 3 ? MODE_ENFORCE : choice >> 2 & 1 ? MODE_OBSERVE : MODE_INHERIT;
	c->fence_ns = fences[choice >> 4 & 7];
	c->vips4 = 0xffffffffull << 32;
}

static void read_entry(const __u8 *choice, __u32 vip)
{
	const __u64 epochs[] = {EPOCH, EPOCH, EPOCH - 1, 0};
	struct entry *e = &world.values[world.entries];

	if (!(choice[0] % 8) || (vip >= 2 && !world.control.strictest6)) /* 0 tells that there is none of IPv6 */
		return;
	e->slot = world.entries;
	e->kind = choice[0] % 8 < 4 ? KIND_OWNED : choice[0] % 8 - 2;
	e->mode = choice[1] % 3;
	e->flags = choice[2] & 4 ? ENTRY_HOLD : 0;
	e->epoch = epochs[choice[2] & 3];
	memcpy(e->link_mac, a_mac(choice[3]), 6);
	memcpy(e->answer_mac, a_mac(choice[4]), 6);
	if (choice[5] & 2)
		memcpy(e->owner_mac, macs[4], 6);
	if (choice[5] & 1)
		memcpy(e->primary, primaries[vip / 2], 16);
	world.keys[world.entries].ifindex = LINK;
	memcpy(world.keys[world.entries].addr, vips[vip], 16);
	world.entries++;
}

/* Around a VIP: from one address to all, or all global ones (2000::/3); of IPv6 ones none has the v4-mapped in it. */
static void read_range(__u8 choice, __u32 family)
{
	const __u32 lengths[2][4] = {{160, 156, 152, 128}, {160, 152, 96, 35}};
	struct range_key *key = &world.range_keys[world.ranges];
	struct entry *e = &world.range_values[world.ranges];

	if (!(choice & 3) || (family && !world.control.strictest6))
		return;
	e->slot = MAX_ENTRIES + world.ranges;
	e->kind = (choice & 3) == 1 ? KIND_OPEN : KIND_CLOSED;
	memcpy(e->link_mac, a_mac(choice >> 2 & 7), 6);
	if (choice & 0x20)
		memcpy(e->primary, primaries[family], 16);
	key->prefixlen = lengths[family][choice >> 6];
	key->at.ifindex = LINK;
	memcpy(key->at.addr, vips[2 * family], 16);
	world.control.closed = 1;
	world.ranges++;
}

/* The link's own addresses are never closed. */
static void open_primary(__u32 family)
{
	struct range_key *key = &world.range_keys[world.ranges];

	world.range_values[world.ranges].slot = MAX_ENTRIES + world.ranges;
	world.range_values[world.ranges].kind = KIND_OPEN;
	key->prefixlen = 160;
	key->at.ifindex = LINK;
	memcpy(key->at.addr, primaries[family], 16);
	world.ranges++;
}

/* The EtherType in network order, the terms of node and link, and grants. */
static void read_vouching(const __u8 *choice)
{
	static const __u64 terms[] = {VOUCH_TERM, VOUCH_TERM, VOUCH_OTHER_TERM, 0}, key[] = {VOUCH_KEY};
	const __u64 fences[] = {clock_ns + HOUR_NS, clock_ns + 1, clock_ns, clock_ns + 2 * HOUR_NS,
				clock_ns + 2 * HOUR_NS + 1, 0, clock_ns - 1, ~0ull};

	world.control.ethertype = choice[0] & 1 ? 0 : (VOUCH_TYPE >> 8 | (VOUCH_TYPE & 0xff) << 8);
	world.control.term = terms[choice[0] >> 1 & 3];
	world.vouching.term = terms[choice[0] >> 3 & 3];
	memcpy(world.vouching.key, key, sizeof(key));
	world.vouching.window_ns = choice[0] & 0x20 ? HOUR_NS : 2 * HOUR_NS;
	world.grants.bound_term = terms[choice[1] & 3];
	world.grants.fence_ns = fences[choice[1] >> 2 & 7];
	world.grants.window_ns = 2 * HOUR_NS;
}

int read_input(const __u8 *data, size_t size, struct arrival *a)
{
	__u32 vip, family;

	if (size < INPUT_HEAD + 14 || size > INPUT_HEAD + MAX_FRAME - 128)
		return 0;
	memset(&world, 0, sizeof(world));
	read_control(data[0], &world.control);
	for (vip = 0; vip < INPUT_VIPS; vip++)
		read_entry(data + 4 + 6 * vip, vip);
	for (family = 0; family < INPUT_RANGES; family++)
		open_primary(family);
	for (family = 0; family < INPUT_RANGES; family++)
		read_range(data[4 + 6 * INPUT_VIPS + family], family);
	read_vouching(data + INPUT_HEAD - 2);
	*a = (struct arrival){.length = size - INPUT_HEAD,
			      .linear = 14 + (data[2] | data[3] << 8) % (size - INPUT_HEAD - 13),
			      .tagged = data[1] & 1,
			      .tag = data[1] & 2 ? 11 : 0xe000,
			      .summed = data[1] >> 2 & 1,
			      .ungainly = (data[1] & 0x38) == 0x38};
	return 1;
}
