/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "answers.h"
#include "mutate.h"

enum { DROPPED, PASSED, SENT_BACK, UNKNOWN };

static int outcome(const struct arrival *a, __u32 code)
{
	if (a->hook == HOOK_XDP)
		return code == XDP_PASS ? PASSED : code == XDP_DROP ? DROPPED : code == XDP_TX ? SENT_BACK : UNKNOWN;
	if (code == (__u32)TC_ACT_UNSPEC)
		return PASSED;
	return code == TC_ACT_SHOT ? DROPPED : code == TC_ACT_REDIRECT ? SENT_BACK : UNKNOWN;
}

/* The closed range that an address in a key is in; the longest range decides. */
static const struct entry *closed(const __u8 *key)
{
	const struct entry *found = 0;
	__u32 i, bit, longest = 0;

	for (i = 0; world.control.closed && i < world.ranges; i++) {
		const __u8 *range = (const __u8 *)&world.range_keys[i].at;
		__u32 bits = world.range_keys[i].prefixlen;

		for (bit = 0; bit < bits && !((range[bit / 8] ^ key[bit / 8]) & 0x80 >> bit % 8); bit++)
			;
		if (bit == bits && bits >= longest) {
			longest = bits;
			found = &world.range_values[i];
		}
	}
	return found && found->kind == KIND_CLOSED ? found : 0;
}

/* The entry of an address, 4 or 16 bytes, on the link, or else its closed range. */
static const struct entry *guarded(const __u8 *address, __u32 size)
{
	static const __u8 mapped[12] = {[10] = 0xff, 0xff};
	__u8 key[20] = {LINK};
	__u32 i;

	memcpy(key + 4, mapped, sizeof(mapped));
	memcpy(key + 20 - size, address, size);
	for (i = 0; i < world.entries; i++)
		if (!memcmp(&world.keys[i], key, sizeof(key)))
			return &world.values[i];
	return closed(key);
}

static int enforced(const struct entry *e)
{
	return (e->mode ? e->mode : world.control.mode) == MODE_ENFORCE;
}

static int may_answer(const struct entry *e)
{
	__u64 ahead = world.control.fence_ns - clock_ns;
	int held = e->flags & ENTRY_HOLD;

	if (e->kind != KIND_OWNED || (e->epoch != world.control.epoch && !(held && !e->epoch)))
		return 0;
	if (held)
		return 1;
	if (world.control.term && world.grants.bound_term == world.control.term &&
	    (world.grants.fence_ns <= clock_ns || world.grants.fence_ns - clock_ns > world.grants.window_ns))
		return 0;
	return world.control.fence_ns > clock_ns && ahead <= world.control.lease_ns;
}

static __u32 be16(const __u8 *p)
{
	return p[0] << 8 | p[1];
}

/* A frame as a kernel reads it, however deep its tags and extension headers are. Addresses are null where it has none. */
struct reading {
	const __u8 *claimed, *asked, *sha;
	__u32 size;  /* of an address */
	__u32 depth; /* tags, or extension headers if they are more */
};

static int is_special(const __u8 *a, __u32 size)
{
	static const __u8 v4_mapped[12] = {[10] = 0xff, 0xff}, low[15];

	if (size == 4)
		return a[0] >> 4 == 0xe || a[0] == 127 || !memcmp(a, "\xff\xff\xff\xff", 4) || !memcmp(a, low, 4);
	return a[0] == 0xff || !memcmp(a, v4_mapped, 12) || (!memcmp(a, low, 15) && a[15] < 2);
}

static struct reading read_arp(const __u8 *body, const __u8 *end)
{
	struct reading r = {.claimed = body + 14, .sha = body + 8, .size = 4};

	if (end - body < 28 || body[0] || (body[1] != 1 && body[1] != 6) || memcmp(body + 2, "\x08\0\6\4\0", 5))
		return (struct reading){};
	if (body[7] != 1 && body[7] != 2)
		return (struct reading){};
	if (body[7] == 1 && memcmp(body + 14, body + 24, 4))
		r.asked = body + 24;
	return r;
}

static int is_extension_header(__u32 next)
{
	return next == 0 || next == 43 || next == 44 || next == 60;
}

static struct reading read_nd(const __u8 *ip, const __u8 *end)
{
	const __u8 *at = ip + 40;
	struct reading r = {.size = 16};
	__u32 next, step;

	if (end - ip < 64 || ip[0] >> 4 != 6)
		return (struct reading){};
	for (next = ip[6]; is_extension_header(next); at += step, r.depth++) {
		if (end - at < 8 || (next == 44 && be16(at + 2) & ~6u))
			return (struct reading){};
		step = next == 44 ? 8 : 8 * (at[1] + 1);
		if (end - at < step)
			return (struct reading){};
		next = at[0];
	}
	if (next != 58 || end - at < 24 || (at[0] != 135 && at[0] != 136))
		return (struct reading){};
	r.claimed = at[0] == 135 ? ip + 8 : at + 8;
	r.asked = at[0] == 135 ? at + 8 : 0;
	return r;
}

static struct reading read_frame(const __u8 *frame, __u32 length)
{
	const __u8 *at = frame + 12, *end = frame + length;
	struct reading r = {};
	__u32 tags = 0;

	for (; end - at >= 6 && (be16(at) == 0x8100 || be16(at) == 0x88a8); at += 4, tags++)
		if (be16(at + 2) & 0xfff)
			return r;
	if (end - at < 2)
		return r;
	if (be16(at) == 0x0806)
		r = read_arp(at + 2, end);
	else if (be16(at) == 0x86dd)
		r = read_nd(at + 2, end);
	if (tags > r.depth)
		r.depth = tags;
	return r;
}

/* The entry of an address that the programs have to look up and judge by. */
static const struct entry *judged_by(const struct reading *r, const __u8 *address)
{
	int strictest = r->size == 4 || r->depth > 8 ? world.control.strictest : MODE_ENFORCE;

	if (!address || !world.control.generation || is_special(address, r->size))
		return 0;
	if (r->size == 16 && world.control.strictest6 != MODE_ENFORCE)
		return 0;
	if (r->depth > 8 && strictest != MODE_ENFORCE)
		return 0;
	return guarded(address, r->size);
}

/* Whether a frame in a closed range is of a guest, or to one: of another MAC than the link's. */
static int is_guests(const struct entry *e, const __u8 *mac)
{
	return e->kind == KIND_CLOSED && memcmp(mac, e->link_mac, 6);
}

static int is_forbidden(const struct entry *e)
{
	return e && enforced(e) && e->kind != KIND_DELEGATED && !may_answer(e);
}

static int is_zero(const __u8 *bytes, __u32 length)
{
	while (length--)
		if (*bytes++)
			return 0;
	return 1;
}

static const char *arp_answer_objection(const struct reading *q, const struct entry *e, const struct departure *d)
{
	static const __u8 reply[] = {8, 6, 0, 1, 8, 0, 6, 4, 0, 2};
	const __u8 *f = d->frame;

	if (d->length != 42 && d->length != 60)
		return "the reply has another length";
	if (memcmp(f + 12, reply, sizeof(reply)) || !is_zero(f + 42, d->length - 42))
		return "the reply has another form";
	if (memcmp(f + 6, e->answer_mac, 6) || memcmp(f + 22, e->answer_mac, 6) || memcmp(f + 28, q->asked, 4))
		return "the reply tells another thing";
	if (memcmp(f, q->sha, 6) || memcmp(f + 32, q->sha, 6) || memcmp(f + 38, q->claimed, 4))
		return "the reply goes to another host";
	return 0;
}

static const char *nd_answer_objection(const struct reading *q, const struct entry *e, const struct departure *d)
{
	static const __u8 start[] = {0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255}, all[16] = {0xff, 2, [15] = 1};
	const __u8 *f = d->frame, *to = is_zero(q->claimed, 16) ? all : q->claimed;
	__u32 i, sum = 32 + 58;

	if (d->length != 86 || memcmp(f + 12, start, sizeof(start)) || f[54] != 136 || f[55])
		return "the advertisement has another form";
	if (f[58] != (to == all ? 0x20 : 0x60) || !is_zero(f + 59, 3) || f[78] != 2 || f[79] != 1)
		return "the advertisement has other flags or options";
	if (memcmp(f + 6, e->answer_mac, 6) || memcmp(f + 80, e->answer_mac, 6))
		return "the advertisement is of another MAC address";
	if (memcmp(f + 22, q->asked, 16) || memcmp(f + 62, q->asked, 16) || memcmp(f + 38, to, 16))
		return "the advertisement has other addresses";
	for (i = 22; i < 86; i += 2)
		sum += be16(f + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0 : "the advertisement has a wrong checksum";
}

/* A ping of the link's term that has become its pong. */
static const char *pong_objection(const struct arrival *a, const __u8 *frame, const struct departure *d)
{
	const __u8 *ping = vouch_payload((__u8 *)frame, a->length), *pong = vouch_payload((__u8 *)d->frame, d->length);
	const __u64 said[] = {clock_ns, world.control.fence_ns, 0};
	int bound = world.control.term == world.vouching.term && world.grants.bound_term == world.control.term;
	__u64 hash;

	if (a->hook == HOOK_TC_EGRESS || !world.control.ethertype || (a->tagged && (a->tag & 0xfff || ping != frame + 14)))
		return "a ping is turned round that does not concern the kernel";
	if (d->length != a->length || d->tagged != a->tagged || (a->hook == HOOK_TC_INGRESS && d->redirected != LINK))
		return "a pong has another form";
	if (frame[0] & 1 || memcmp(frame, d->frame + 6, 6) || memcmp(frame + 6, d->frame, 6))
		return "a pong goes to another host";
	if (!pong || ping[0] != 1 || ping[1] != 1 || memcmp(ping + 8, &world.vouching.term, 8))
		return "what is turned round is no ping of the term";
	hash = vouch_hash(ping, world.vouching.key);
	if (memcmp(ping + VOUCH_SEALED, &hash, 8))
		return "a forged ping is turned round";
	if (pong[0] != 1 || pong[1] != 2 || pong[2] != bound || memcmp(pong + 3, "\0\0\0\0\0", 5))
		return "a pong begins otherwise";
	hash = vouch_hash(pong, world.vouching.key);
	if (memcmp(pong + 8, ping + 8, 16) || memcmp(pong + 24, said, 24) || memcmp(pong + VOUCH_SEALED, &hash, 8))
		return "a pong says another thing";
	if (memcmp(frame + 12, d->frame + 12, ping - frame - 12) ||
	    memcmp(ping + VOUCH_SEALED + 8, pong + VOUCH_SEALED + 8, frame + a->length - ping - VOUCH_SEALED - 8))
		return "the rest of a pong is another one";
	return 0;
}

static const char *answer_objection(const struct arrival *a, const struct reading *q, const struct departure *d)
{
	const struct entry *e = q->asked ? guarded(q->asked, q->size) : 0;

	if (a->hook == HOOK_TC_EGRESS || !e || !enforced(e) || !may_answer(e))
		return "answered by who may not";
	if (is_zero(e->answer_mac, 6) || d->tagged || (a->hook == HOOK_TC_INGRESS && d->redirected != LINK))
		return "answered with no address, with a tag, or on another link";
	return q->size == 4 ? arp_answer_objection(q, e, d) : nd_answer_objection(q, e, d);
}

/* How many bytes of a frame are others than before. */
static __u32 changed_bytes(const __u8 *before, const __u8 *after, __u32 length)
{
	__u32 i, count = 0;

	for (i = 0; i < length; i++)
		count += before[i] != after[i];
	return count;
}

static const char *passed_objection(const struct arrival *a, const __u8 *frame, const struct departure *d)
{
	struct reading before = read_frame(frame, a->length), after = read_frame(d->frame, d->length);
	__u32 most = a->hook != HOOK_TC_EGRESS ? 7 : before.size == 16 ? 18 : 4;
	const struct entry *e;

	if (d->length != a->length || d->tagged != a->tagged || d->redirected)
		return "a frame that passes is of another form";
	if (changed_bytes(frame, d->frame, d->length) > most)
		return "a frame that passes is another frame";
	if (a->tagged && a->tag & 0xfff)
		return 0;
	if (a->hook == HOOK_TC_EGRESS) {
		e = judged_by(&after, after.claimed);
		if (!is_forbidden(e) || (e->kind == KIND_CLOSED && !after.sha)) /* options tell whose it is */
			return 0;
		return is_guests(e, after.sha) ? 0 : "a claim leaves";
	}
	e = judged_by(&after, after.asked);
	if (!is_forbidden(e) || d->hidden || (!(d->frame[0] & 1) && is_guests(e, d->frame)))
		return 0;
	return "the kernel may answer";
}

const char *objection(const struct arrival *a, const __u8 *frame, const struct departure *d)
{
	struct reading question = read_frame(frame, a->length);

	switch (outcome(a, d->code)) {
	case DROPPED:
		return 0;
	case PASSED:
		return passed_objection(a, frame, d);
	case SENT_BACK:
		if (vouch_payload((__u8 *)frame, a->length))
			return pong_objection(a, frame, d);
		return answer_objection(a, &question, d);
	default:
		return "a return code that means nothing";
	}
}
