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

/* Makes the checksum right in a neighbour discovery message, if the frame looks like one. */
void mend(__u8 *frame, __u32 length);

#endif
