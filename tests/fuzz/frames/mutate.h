/* SPDX-License-Identifier: Apache-2.0 */
/* Frames made of other frames, at random. */
#ifndef ARPGUARD_MUTATE_H
#define ARPGUARD_MUTATE_H

#include <linux/types.h>

#define MIN_FRAME 14

struct random {
	__u64 state;
};

/* A number below `bound`, which is not 0 (xorshift64*). */
__u32 below(struct random *r, __u32 bound);

/* Changes a frame in up to six ways, in a buffer of `room` bytes; `other` is one to take parts of.
 * Returns its new length: MIN_FRAME to `room`. */
__u32 mutate(struct random *r, __u8 *frame, __u32 length, __u32 room, const __u8 *other, __u32 other_length);

/* Makes the checksum right in a neighbour discovery message, and the MAC in a frame of vouching, if the frame looks like
 * one. */
void mend(__u8 *frame, __u32 length);

/* Of frames of vouching in tests, as tests/support/frames/vouch_builders.py has them. */
#define VOUCH_TYPE 0x88b5
#define VOUCH_SEALED 48 /* bytes before the MAC */
#define VOUCH_TERM 0x1122334455667788ull
#define VOUCH_KEY 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull
#define VOUCH_OTHER_TERM 0x8877665544332211ull

/* SipHash-2-4 of what is before the MAC, written without any of the programs' code. */
__u64 vouch_hash(const __u8 *payload, const __u64 *key);

/* The payload of a frame of vouching, perhaps behind a tag; null: it is none, or cut off. */
__u8 *vouch_payload(__u8 *frame, __u32 length);

#endif
