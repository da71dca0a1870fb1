/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "mutate.h"

#define TYPE_AT 12
#define IP_HEADER_LEN 40
#define ICMPV6 58
#define LEN(array) (sizeof(array) / sizeof(*(array)))

struct work {
	struct random *random;
	__u8 *frame;
	__u32 length, room;
	const __u8 *other;
	__u32 other_length;
};

__u32 below(struct random *r, __u32 bound)
{
	r->state ^= r->state >> 12;
	r->state ^= r->state << 25;
	r->state ^= r->state >> 27;
	return (r->state * 0x2545f4914f6cdd1dull >> 32) % bound;
}

static __u32 pick(struct work *w, __u32 bound)
{
	return below(w->random, bound);
}

/* Makes room for `count` bytes at an offset, at most as many as there is room for; returns where, or null. */
static __u8 *gap(struct work *w, __u32 at, __u32 count)
{
	if (at > w->length || w->length + count > w->room)
		return 0;
	memmove(w->frame + at + count, w->frame + at, w->length - at);
	w->length += count;
	return w->frame + at;
}

static void flip_bit(struct work *w)
{
	w->frame[pick(w, w->length)] ^= 1 << pick(w, 8);
}

/* Most of what matters stands at the start. */
static void set_early_byte(struct work *w)
{
	static const __u8 odd[] = {0, 1, 2, 4, 6, 8, 24, 32, 44, 58, 60, 127, 128, 135, 136, 254, 255};

	w->frame[pick(w, w->length < 96 ? w->length : 96)] = odd[pick(w, LEN(odd))];
}

static void set_byte(struct work *w)
{
	w->frame[pick(w, w->length)] = pick(w, 256);
}

static void truncate(struct work *w)
{
	w->length = MIN_FRAME + pick(w, w->length - MIN_FRAME + 1);
}

static void extend(struct work *w, __u32 most)
{
	__u32 i, more = pick(w, most);
	__u8 *to = w->length + more <= w->room ? gap(w, w->length, more) : 0;

	for (i = 0; to && i < more; i++)
		to[i] = pick(w, 256);
}

static void extend_a_little(struct work *w)
{
	extend(w, 64);
}

static void extend_a_lot(struct work *w)
{
	extend(w, w->room - w->length + 1);
}

static void add_tags(struct work *w)
{
	static const __u8 tags[][4] = {{0x81, 0, 0, 0}, {0x88, 0xa8, 0xe0, 0}, {0x81, 0, 0, 11}};
	__u32 count = 1 + (pick(w, 4) ? pick(w, 2) : pick(w, 10));
	__u8 *to;

	while (count-- && (to = gap(w, TYPE_AT, 4)))
		memcpy(to, tags[pick(w, 16) ? pick(w, 2) : 2], 4);
}

static int is_ipv6(const __u8 *frame, __u32 length)
{
	return length >= MIN_FRAME + IP_HEADER_LEN && frame[TYPE_AT] == 0x86 && frame[TYPE_AT + 1] == 0xdd;
}

/* Whatever stands there moves behind an extension header. */
static void add_extension(struct work *w)
{
	static const __u8 kinds[] = {0, 43, 44, 60, 51, 135, 139};
	__u8 *next = w->frame + MIN_FRAME + 6, *to;
	__u32 payload;

	if (!is_ipv6(w->frame, w->length) || !(to = gap(w, MIN_FRAME + IP_HEADER_LEN, 8)))
		return;
	memset(to, 0, 8);
	to[0] = *next;
	*next = kinds[pick(w, 4) ? pick(w, 4) : pick(w, LEN(kinds))];
	if (*next == 44) {
		to[3] = pick(w, 4) ? 0 : pick(w, 256);
	} else {
		to[1] = pick(w, 8) ? 0 : pick(w, 256);
		to[2] = 1;
		to[3] = 4;
	}
	payload = w->length - MIN_FRAME - IP_HEADER_LEN;
	w->frame[MIN_FRAME + 4] = payload >> 8;
	w->frame[MIN_FRAME + 5] = payload;
}

static void splice(struct work *w)
{
	__u32 from = pick(w, w->other_length), at = pick(w, w->length), count = w->other_length - from;

	if (at + count > w->room)
		count = w->room - at;
	memcpy(w->frame + at, w->other + from, count);
	w->length = at + count < MIN_FRAME ? MIN_FRAME : at + count;
}

static void overwrite(struct work *w)
{
	__u32 shorter = w->length < w->other_length ? w->length : w->other_length;
	__u32 at = pick(w, shorter), count = 1 + pick(w, shorter - at);

	memcpy(w->frame + at, w->other + at, count);
}

static void copy_within(struct work *w)
{
	__u32 from = pick(w, w->length), to = pick(w, w->length), most = w->length - (from > to ? from : to);

	memmove(w->frame + to, w->frame + from, pick(w, (most < 32 ? most : 32) + 1));
}

static void fill_with_junk(struct work *w)
{
	__u32 i;

	for (i = pick(w, 3) ? MIN_FRAME : 0; i < w->length; i++)
		w->frame[i] = pick(w, 256);
}

static __u64 rotate(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static void rounds(__u64 *v, int count)
{
	while (count--) {
		v[0] += v[1], v[2] += v[3];
		v[1] = rotate(v[1], 13), v[3] = rotate(v[3], 16);
		v[1] ^= v[0], v[3] ^= v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1], v[0] += v[3];
		v[1] = rotate(v[1], 17), v[3] = rotate(v[3], 21);
		v[1] ^= v[2], v[3] ^= v[0];
		v[2] = rotate(v[2], 32);
	}
}

__u64 vouch_hash(const __u8 *payload, const __u64 *key)
{
	__u64 v[4] = {key[0], key[1], key[0], key[1]}, word;
	const char text[] = "uespemos" "modnarod" "arenegyl" "setybdet";
	__u32 i;

	for (i = 0; i < 4; i++) {
		memcpy(&word, text + 8 * i, 8);
		v[i] ^= word;
	}
	for (i = 0; i <= VOUCH_SEALED; i += 8) {
		word = (__u64)VOUCH_SEALED << 56;
		if (i < VOUCH_SEALED)
			memcpy(&word, payload + i, 8);
		v[3] ^= word;
		rounds(v, 2);
		v[0] ^= word;
	}
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

__u8 *vouch_payload(__u8 *frame, __u32 length)
{
	__u8 *at = frame + TYPE_AT, *end = frame + length;

	if (end - at >= 6 && ((at[0] == 0x81 && !at[1]) || (at[0] == 0x88 && at[1] == 0xa8)))
		at += 4;
	if (end - at < 2 + VOUCH_SEALED + 8 || (at[0] << 8 | at[1]) != VOUCH_TYPE)
		return 0;
	return at + 2;
}

void mend(__u8 *frame, __u32 length)
{
	static const __u64 key[] = {VOUCH_KEY};
	__u32 i, payload, at = MIN_FRAME + IP_HEADER_LEN;
	__u8 *vouching = vouch_payload(frame, length);
	__u64 sum = ICMPV6, hash;

	if (vouching) {
		hash = vouch_hash(vouching, key);
		memcpy(vouching + VOUCH_SEALED, &hash, 8);
	}
	if (!is_ipv6(frame, length) || frame[MIN_FRAME + 6] != ICMPV6)
		return;
	payload = frame[MIN_FRAME + 4] << 8 | frame[MIN_FRAME + 5];
	if (payload < 4 || at + payload > length)
		return;
	frame[at + 2] = frame[at + 3] = 0;
	sum += payload;
	for (i = MIN_FRAME + 8; i < at + payload; i += 2)
		sum += frame[i] << 8 | (i + 1 < at + payload ? frame[i + 1] : 0);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	frame[at + 2] = ~sum >> 8;
	frame[at + 3] = ~sum;
}

__u32 mutate(struct random *r, __u8 *frame, __u32 length, __u32 room, const __u8 *other, __u32 other_length)
{
	static void (*const often[])(struct work *) = {flip_bit,      set_early_byte, set_byte, overwrite,  truncate,
						       add_extension, add_tags,	      splice,	copy_within};
	static void (*const seldom[])(struct work *) = {extend_a_little, extend_a_lot, fill_with_junk};
	struct work w = {r, frame, length, room, other, other_length};
	__u32 count = below(r, 2) ? below(r, 2) : below(r, 7);

	while (count--)
		below(r, 12) ? often[below(r, LEN(often))](&w) : seldom[below(r, LEN(seldom))](&w);
	if (below(r, 2))
		mend(frame, w.length);
	return w.length;
}
