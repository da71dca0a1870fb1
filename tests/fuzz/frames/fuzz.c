/* SPDX-License-Identifier: Apache-2.0 */
/* The programs in user space under libFuzzer: no byte is read that is not there, and rules hold for every frame.
 *
 * What becomes of a frame must not depend on the hook, on how much of it is linear, or on who asks (a twin), and what
 * is counted is what was decided. VERDICTS, from arpguard/verdict.py, has the verdict of each reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "input.h"
#include "mutate.h"

#define WHOLE MAX_FRAME

size_t LLVMFuzzerMutate(__u8 *data, size_t size, size_t room);

static const __u8 verdicts[] = {VERDICTS};

static void demand(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "violated: %s\n", what);
	abort();
}

static int same(const struct departure *a, const struct departure *b)
{
	return a->code == b->code && a->length == b->length && !memcmp(a->frame, b->frame, a->length);
}

/* For this node's kernel, that is. */
static int is_dropped(const struct arrival *a, const struct departure *d)
{
	return d->hidden || d->code == (a->hook == HOOK_XDP ? XDP_DROP : TC_ACT_SHOT);
}

static __u64 sum_of(const __u64 frames[2][REASON_COUNT])
{
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < REASON_COUNT; i++)
		sum += frames[0][i] + frames[1][i];
	return sum;
}

/* A frame of vouching, of which the program has counted what came of it. */
static int is_vouching(void)
{
	__u32 i;

	for (i = 0; i < VOUCHED_COUNT; i++)
		if (world.totals.vouched[i])
			return 1;
	return 0;
}

/* A twin answers no ping, and takes no grant. */
static void check_idle_twin(const struct arrival *a, const __u8 *frame)
{
	static struct departure said;
	struct arrival twin = *a;
	struct totals before = world.totals;
	struct grants grants = world.grants;

	twin.twin = 1;
	run_program(&twin, frame, &said);
	demand((said.code & 0xff) == (a->hook == HOOK_XDP ? XDP_PASS : TC_ACT_UNSPEC & 0xff),
	       "a twin lets frames of vouching pass");
	demand(said.length == a->length && !memcmp(said.frame, frame, a->length), "and leaves them as they are");
	demand(!memcmp(&before, &world.totals, sizeof(before)) && !memcmp(&grants, &world.grants, sizeof(grants)),
	       "and keeps nothing of them");
}

/* The twin decides the same, and what it decided is what the program counted; it counts nothing itself. */
static void check_twin(const struct arrival *a, const __u8 *frame, const struct departure *d)
{
	static struct departure said;
	struct arrival twin = *a;
	struct totals before = world.totals;
	__u32 trace, reason, verdict, decisions = 0;

	twin.twin = 1;
	run_program(&twin, frame, &said);
	demand((said.code & 0xff) == (d->hidden ? TC_ACT_SHOT : d->code & 0xff), "a twin returns the same");
	demand(is_dropped(a, d) || (said.length == d->length && !memcmp(said.frame, d->frame, d->length)),
	       "a twin leaves the same frame");
	for (trace = a->hook == HOOK_XDP || said.code != (TC_ACT_UNSPEC & 0xff) ? said.code >> 8 : 0; trace;
	     trace >>= 9, decisions++) {
		reason = trace & 63;
		verdict = trace >> 6 & 7;
		demand(reason && reason < REASON_COUNT && verdicts[reason] == verdict, "a verdict fits its reason");
		demand(world.totals.frames[0][reason] + world.totals.frames[1][reason], "what is decided is counted");
	}
	demand(decisions == sum_of(world.totals.frames), "what is counted is decided");
	demand(!memcmp(&before, &world.totals, sizeof(before)), "a twin counts nothing");
}

/* Every decision about an entry has its event: sent, or kept back. */
static void check_counts(void)
{
	__u64 of_entries = 0;
	__u32 i;

	for (i = 0; i < MAX_ENTRIES + MAX_RANGES_HERE; i++)
		of_entries += sum_of(world.counters[i].frames);
	demand(of_entries == world.totals.sent + world.totals.limited + world.totals.lost, "events add up");
	demand(world.events == world.totals.sent, "an event that is counted is sent");
}

static void forget_counts(void)
{
	memset(world.counters, 0, sizeof(world.counters));
	memset(&world.totals, 0, sizeof(world.totals));
	world.events = 0;
}

static void run_at(__u32 hook, struct arrival a, const __u8 *frame, struct departure *d)
{
	static struct departure in_part;
	struct arrival whole = {.hook = hook, .length = a.length, .linear = WHOLE, .tag = a.tag, .tagged = a.tagged};
	const char *why;

	forget_counts();
	a.hook = hook;
	run_program(&whole, frame, d);
	a.tagged = a.tagged && hook != HOOK_XDP;
	why = objection(&a, frame, d);
	demand(!why, why);
	check_counts();
	if (!a.tagged)
		(is_vouching() ? check_idle_twin(&whole, frame) : check_twin(&whole, frame, d));
	if (hook == HOOK_XDP)
		return;
	run_program(&a, frame, &in_part);
	if (!a.ungainly)
		demand(same(d, &in_part) || (is_dropped(&a, d) && is_dropped(&a, &in_part)),
		       "it does not matter how much of a frame is linear");
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static struct departure tc, xdp, out;
	struct arrival a;

	clock_ns = 1ull << 60;
	if (!read_input(data, size, &a))
		return 0;
	run_at(HOOK_TC_INGRESS, a, data + INPUT_HEAD, &tc);
	run_at(HOOK_XDP, a, data + INPUT_HEAD, &xdp);
	run_at(HOOK_TC_EGRESS, a, data + INPUT_HEAD, &out);
	if (a.tagged)
		return 0;
	demand((tc.code == TC_ACT_SHOT || tc.hidden) == (xdp.code == XDP_DROP), "both hooks drop the same frames");
	demand((tc.code == TC_ACT_REDIRECT) == (xdp.code == XDP_TX), "both hooks answer the same frames");
	demand(xdp.code == XDP_DROP || (tc.length == xdp.length && !memcmp(tc.frame, xdp.frame, tc.length)),
	       "both hooks leave the same frame");
	return 0;
}

size_t LLVMFuzzerCustomMutator(__u8 *data, size_t size, size_t room, unsigned int seed)
{
	static __u8 other[MAX_FRAME];
	struct random random = {seed * 2ull + 1};
	__u32 length;

	if (size < INPUT_HEAD + MIN_FRAME || size > MAX_FRAME || below(&random, 2))
		return LLVMFuzzerMutate(data, size, room);
	length = size - INPUT_HEAD;
	memcpy(other, data + INPUT_HEAD, length);
	return INPUT_HEAD + mutate(&random, data + INPUT_HEAD, length, room - INPUT_HEAD, other, length);
}
