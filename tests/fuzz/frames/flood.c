/* SPDX-License-Identifier: Apache-2.0 */
/* Sends mutated frames through the loaded programs (BPF_PROG_TEST_RUN) and through the same programs in user space.
 *
 * Both have to do the same with every frame, to the byte, and to count the same; what they do has to keep the rules of
 * answers.c. Every so many frames one is written out, for the model. See flood.py for the files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"
#include "mutate.h"

#define BATCH 1000 /* frames with the same maps */
#define HOOKS 3
#define MAX_CPUS 1024
#define STAMP_AT 24

static const char *const hook_names[] = {"", "tc ingress", "xdp", "tc egress"};

struct scene {
	struct control control;
	struct vouching vouching; /* term 0: there is none */
	struct grants grants;
	__u32 entries, ranges;
	struct entry_key keys[MAX_ENTRIES];
	struct entry values[MAX_ENTRIES];
	struct range_key range_keys[MAX_RANGES_HERE];
	struct entry range_values[MAX_RANGES_HERE];
};

struct seed {
	__u32 outgoing, length;
	__u8 *frame;
};

/* What is written out of one frame, before the frame itself and what was left of it. */
struct sample {
	__u32 scene, hook, code, length, left;
	__u64 now_ns;	      /* when user space ran it */
	struct grants grants; /* before it */
};

/* All of the command line, in this order. */
struct task {
	long programs[HOOKS + 1]; /* by hook */
	long entries, ranges, control, counters, totals, vouching, grants, cpus;
	long frames, seed, room_tc, room_xdp, every;
};

static struct task task;
static struct scene *scenes;
static struct seed *seeds;
static __u32 scene_count, seed_count;
static struct totals kernel_before, kernel_after;
static __u64 outcomes[HOOKS + 1][4], changed;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int map_call(int command, long map, const void *key, const void *value)
{
	union bpf_attr attr = {.map_fd = map, .key = (unsigned long)key, .value = (unsigned long)value};

	return bpf(command, &attr);
}

/* ---- maps ------------------------------------------------------------------------------------------------------ */

static void set_control(const struct control *control)
{
	static struct control all[MAX_CPUS];
	__u32 zero = 0;
	long i;

	for (i = 0; i < task.cpus; i++)
		all[i] = *control;
	if (map_call(BPF_MAP_UPDATE_ELEM, task.control, &zero, all))
		fail("control");
}

static void clear_slot(__u32 slot)
{
	static struct counters none[MAX_CPUS];

	if (map_call(BPF_MAP_UPDATE_ELEM, task.counters, &slot, none))
		fail("counters");
}

static struct totals read_totals(void)
{
	static struct totals all[MAX_CPUS];
	struct totals sum = {};
	__u32 zero = 0, reason, what;
	long i, observed;

	if (map_call(BPF_MAP_LOOKUP_ELEM, task.totals, &zero, all))
		fail("totals");
	for (i = 0; i < task.cpus; i++) {
		for (observed = 0; observed < 2; observed++)
			for (reason = 0; reason < REASON_COUNT; reason++)
				sum.frames[observed][reason] += all[i].frames[observed][reason];
		for (what = 0; what < VOUCHED_COUNT; what++)
			sum.vouched[what] += all[i].vouched[what];
		sum.sent += all[i].sent;
		sum.limited += all[i].limited;
		sum.lost += all[i].lost;
	}
	return sum;
}

static void set_vouching(const struct scene *new)
{
	__u32 zero = 0, link = LINK;

	world.vouching = new->vouching;
	world.grants = new->grants;
	map_call(BPF_MAP_DELETE_ELEM, task.vouching, &link, 0);
	if (new->vouching.term && map_call(BPF_MAP_UPDATE_ELEM, task.vouching, &link, &new->vouching))
		fail("vouching");
	if (map_call(BPF_MAP_UPDATE_ELEM, task.grants, &zero, &new->grants))
		fail("grants");
}

/* The maps of a scene, in the kernel and in user space; all counters of user space are 0. */
static void set_scene(const struct scene *old, const struct scene *new)
{
	__u32 i;

	for (i = 0; i < old->entries; i++)
		map_call(BPF_MAP_DELETE_ELEM, task.entries, &old->keys[i], 0);
	for (i = 0; i < old->ranges; i++)
		map_call(BPF_MAP_DELETE_ELEM, task.ranges, &old->range_keys[i], 0);
	memset(&world, 0, sizeof(world));
	world.control = new->control;
	world.entries = new->entries;
	memcpy(world.keys, new->keys, sizeof(world.keys));
	memcpy(world.values, new->values, sizeof(world.values));
	world.ranges = new->ranges;
	memcpy(world.range_keys, new->range_keys, sizeof(world.range_keys));
	memcpy(world.range_values, new->range_values, sizeof(world.range_values));
	for (i = 0; i < new->entries; i++) {
		clear_slot(new->values[i].slot);
		if (map_call(BPF_MAP_UPDATE_ELEM, task.entries, &new->keys[i], &new->values[i]))
			fail("entries");
	}
	for (i = 0; i < new->ranges; i++) {
		clear_slot(new->range_values[i].slot);
		if (map_call(BPF_MAP_UPDATE_ELEM, task.ranges, &new->range_keys[i], &new->range_values[i]))
			fail("ranges");
	}
	set_control(&new->control);
	set_vouching(new);
	kernel_before = read_totals();
}

static __u64 events_of(const struct totals *t)
{
	return t->sent + t->limited + t->lost;
}

static void compare_row(__u32 slot)
{
	static struct counters all[MAX_CPUS];
	__u32 cpu, i;

	if (map_call(BPF_MAP_LOOKUP_ELEM, task.counters, &slot, all))
		fail("counters");
	for (i = 0; i < 2 * REASON_COUNT; i++) {
		for (cpu = 1; cpu < task.cpus; cpu++)
			all[0].frames[0][i] += all[cpu].frames[0][i];
		if (all[0].frames[0][i] != world.counters[slot].frames[0][i]) {
			fprintf(stderr, "the kernel counts an entry otherwise\n");
			exit(1);
		}
	}
}

/* What the programs keep of the voucher; the two have another clock. */
static void compare_grants(void)
{
	struct grants kernel;
	__u32 zero = 0;

	if (map_call(BPF_MAP_LOOKUP_ELEM, task.grants, &zero, &kernel))
		fail("grants");
	kernel.pinged_ns = world.grants.pinged_ns;
	if (memcmp(&kernel, &world.grants, sizeof(kernel))) {
		fprintf(stderr, "the kernel has other grants\n");
		exit(1);
	}
}

/* Nothing is lost, and nothing is counted twice. */
static void compare_counts(void)
{
	__u32 i;

	compare_grants();
	kernel_after = read_totals();
	for (i = 0; i < VOUCHED_COUNT; i++)
		if (kernel_after.vouched[i] - kernel_before.vouched[i] != world.totals.vouched[i]) {
			fprintf(stderr, "the kernel counts frames of vouching (%u) otherwise\n", i);
			exit(1);
		}
	for (i = 0; i < 2 * REASON_COUNT; i++)
		if (kernel_after.frames[0][i] - kernel_before.frames[0][i] != world.totals.frames[0][i]) {
			fprintf(stderr, "the kernel counts reason %u otherwise\n", i % REASON_COUNT);
			exit(1);
		}
	if (events_of(&kernel_after) - events_of(&kernel_before) != events_of(&world.totals)) {
		fprintf(stderr, "events do not add up\n");
		exit(1);
	}
	for (i = 0; i < world.entries; i++)
		compare_row(world.values[i].slot);
	for (i = 0; i < world.ranges; i++)
		compare_row(world.range_values[i].slot);
}

/* ---- frames ---------------------------------------------------------------------------------------------------- */

static void run_in_kernel(const struct arrival *a, const __u8 *frame, struct departure *d)
{
	union bpf_attr attr = {.test = {.prog_fd = task.programs[a->hook],
					.data_size_in = a->length,
					.data_in = (unsigned long)frame,
					.data_size_out = MAX_FRAME,
					.data_out = (unsigned long)d->frame}};

	if (bpf(BPF_PROG_TEST_RUN, &attr)) {
		fprintf(stderr, "%u bytes at %s: ", a->length, hook_names[a->hook]);
		fail("BPF_PROG_TEST_RUN");
	}
	d->code = attr.test.retval;
	d->length = attr.test.data_size_out;
}

static void print_frame(const char *name, const __u8 *frame, __u32 length)
{
	fprintf(stderr, "%s ", name);
	while (length--)
		fprintf(stderr, "%02x", *frame++);
	fprintf(stderr, "\n");
}

static void give_up(const char *why, __u32 scene, const struct arrival *a, const __u8 *frame,
		    const struct departure *kernel, const struct departure *user)
{
	fprintf(stderr, "%s: at %s, maps %u\n", why, hook_names[a->hook], scene);
	print_frame("frame", frame, a->length);
	fprintf(stderr, "kernel %#x, user space %#x\n", kernel->code, user->code);
	print_frame("kernel left", kernel->frame, kernel->length);
	print_frame("user space left", user->frame, user->length);
	exit(1);
}

static int is_dropped(const struct arrival *a, const struct departure *d)
{
	return d->code == (a->hook == HOOK_XDP ? XDP_DROP : TC_ACT_SHOT);
}

static void tally(const struct arrival *a, const __u8 *frame, const struct departure *d)
{
	int passed = d->code == (a->hook == HOOK_XDP ? XDP_PASS : (__u32)TC_ACT_UNSPEC);

	outcomes[a->hook][is_dropped(a, d) ? 0 : passed ? 1 : 2]++;
	changed += passed && memcmp(frame, d->frame, a->length);
}

/* Before each frame: a mutated stamp may lie so little ahead that the kernel's clock passes it during the run. */
static void set_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	clock_ns = now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void send(__u32 scene, const struct arrival *a, const __u8 *frame, FILE *samples)
{
	static struct departure kernel, user;
	struct grants grants = world.grants;
	const __u8 *pong;
	const char *why;

	set_clock();
	run_in_kernel(a, frame, &kernel);
	pong = vouch_payload(kernel.frame, kernel.length);
	if (pong && kernel.code == (a->hook == HOOK_XDP ? XDP_TX : TC_ACT_REDIRECT))
		memcpy(&clock_ns, pong + STAMP_AT, sizeof(clock_ns)); /* when the kernel ran it */
	run_program(a, frame, &user);
	if (kernel.code != user.code)
		give_up("another return code", scene, a, frame, &kernel, &user);
	if (!is_dropped(a, &user) && (kernel.length != user.length || memcmp(kernel.frame, user.frame, user.length)))
		give_up("another frame", scene, a, frame, &kernel, &user);
	why = objection(a, frame, &user);
	if (why)
		give_up(why, scene, a, frame, &kernel, &user);
	tally(a, frame, &kernel);
	if (samples) {
		struct sample s = {scene, a->hook, kernel.code, a->length, kernel.length, clock_ns, grants};

		fwrite(&s, sizeof(s), 1, samples);
		fwrite(frame, 1, a->length, samples);
		fwrite(kernel.frame, 1, kernel.length, samples);
	}
}

/* Test runs take no less than the header that the EtherType promises. */
static __u32 padded(__u8 *frame, __u32 length)
{
	__u32 type = frame[12] << 8 | frame[13], least = type == 0x0800 ? 34 : type == 0x86dd ? 54 : MIN_FRAME;

	if (length >= least)
		return length;
	memset(frame + length, 0, least - length);
	return least;
}

static const struct seed *a_seed(struct random *r, __u32 outgoing)
{
	const struct seed *s;

	do
		s = &seeds[below(r, seed_count)];
	while (s->outgoing != outgoing);
	return s;
}

static void run(FILE *samples)
{
	static const struct scene nothing;
	static __u8 frame[MAX_FRAME];
	struct random random = {task.seed * 2 + 1};
	const struct seed *one, *other;
	const struct scene *before = &nothing;
	__u32 scene = 0;
	long i;

	for (i = 0; i < task.frames; i++) {
		struct arrival a = {.hook = 1 + i % HOOKS, .linear = MAX_FRAME};

		if (i % BATCH == 0) {
			if (i)
				compare_counts();
			scene = below(&random, scene_count);
			set_scene(before, &scenes[scene]);
			before = &scenes[scene];
		}
		one = a_seed(&random, a.hook == HOOK_TC_EGRESS);
		other = a_seed(&random, a.hook == HOOK_TC_EGRESS);
		memcpy(frame, one->frame, one->length);
		a.length = mutate(&random, frame, one->length, a.hook == HOOK_XDP ? task.room_xdp : task.room_tc,
				  other->frame, other->length);
		a.length = padded(frame, a.length);
		send(scene, &a, frame, i % task.every ? 0 : samples);
	}
	compare_counts();
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static FILE *opened(const char *path, const char *mode)
{
	FILE *file = fopen(path, mode);

	if (!file)
		fail(path);
	return file;
}

static void read_scenes(const char *path)
{
	FILE *file = opened(path, "rb");

	fseek(file, 0, SEEK_END);
	scene_count = ftell(file) / sizeof(*scenes);
	rewind(file);
	scenes = calloc(scene_count, sizeof(*scenes));
	if (!scenes || fread(scenes, sizeof(*scenes), scene_count, file) != scene_count)
		fail(path);
	fclose(file);
}

/* Each is two numbers, and as many bytes as the second one says. */
static void read_seeds(const char *path)
{
	FILE *file = opened(path, "rb");
	__u32 head[2];

	while (fread(head, sizeof(head), 1, file) == 1) {
		seeds = realloc(seeds, ++seed_count * sizeof(*seeds));
		if (!seeds)
			fail(path);
		seeds[seed_count - 1] = (struct seed){head[0], head[1], malloc(head[1])};
		if (!seeds[seed_count - 1].frame || fread(seeds[seed_count - 1].frame, 1, head[1], file) != head[1])
			fail(path);
	}
	fclose(file);
}

int main(int argc, char **argv)
{
	long *field = &task.programs[1];
	FILE *samples;
	int i;

	for (i = 4; i < argc; i++)
		*field++ = atol(argv[i]);
	if (field != (long *)(&task + 1) || task.cpus > MAX_CPUS)
		return 2;
	read_scenes(argv[1]);
	read_seeds(argv[2]);
	samples = opened(argv[3], "wb");
	run(samples);
	if (fclose(samples))
		fail(argv[3]);
	for (i = 1; i <= HOOKS; i++)
		printf("%s: %llu dropped, %llu passed, %llu sent back\n", hook_names[i], outcomes[i][0], outcomes[i][1],
		       outcomes[i][2]);
	printf("%llu passed changed\n", changed);
	return 0;
}
