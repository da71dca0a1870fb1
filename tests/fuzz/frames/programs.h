/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of bpf/arpguard.c in user space, with maps of a few entries. */
#ifndef ARPGUARD_USER_SPACE_PROGRAMS_H
#define ARPGUARD_USER_SPACE_PROGRAMS_H

#include "kernel.h"

#include "arpguard.h"

#define MAX_FRAME 9216
#define MAX_RANGES_HERE 8
#define LINK 1 /* where all frames are: `lo`, as in BPF_PROG_TEST_RUN */

/* What the programs read and write, and what their counts come to. */
struct world {
	struct control control;
	struct vouching vouching; /* of the link; term 0: there is none */
	struct grants grants;
	__u32 ranges; /* how many there are */
	struct range_key range_keys[MAX_RANGES_HERE];
	struct entry range_values[MAX_RANGES_HERE];
	__u32 entries; /* how many there are */
	struct entry_key keys[MAX_ENTRIES];
	struct entry values[MAX_ENTRIES];
	struct counters counters[MAX_ENTRIES + MAX_RANGES_HERE];
	struct totals totals;
	__u64 events;  /* put into the ring buffer */
	__u64 lookups; /* of entries and ranges */
	__u64 missed;  /* which of them finds nothing, as while an entry is replaced; 0: none */
};
extern struct world world;

/* How a frame comes to a hook. */
struct arrival {
	__u32 hook, length;
	__u32 linear;	     /* at tc: how many bytes can be read directly */
	__u16 tag;	     /* at tc: the tag beside the frame */
	__u8 tagged;	     /* whether there is one */
	__u8 summed;	     /* the NIC has summed it up */
	__u8 ungainly, twin; /* it cannot be made linear; try it with the program's twin */
};

/* What a program did: its return code, and the frame it left. */
struct departure {
	__u32 code, length;
	__u32 redirected, tagged, hidden;
	__u32 summed; /* the kernel still takes what the NIC has summed up for that of the frame */
	__u8 frame[MAX_FRAME];
};

void run_program(const struct arrival *a, const __u8 *frame, struct departure *d);

#endif
