/*
 * A program of serial and parallel phases, as its options say. With the same options it always does the
 * same work.
 *
 *   phases [--threads N] [--phases N] [--serial STEPS] [--work STEPS] [--dynamic] [--spin] [--memory MIB]
 *          [--scale X]
 *
 * In each phase the first thread does the serial steps while the others wait; then each does its steps of
 * work, or all take them in chunks from a common heap (--dynamic), and all wait for the last one. They
 * wait asleep, or busily (--spin). A step is a multiplication that needs the result of the one before;
 * with --memory it is a load that does, from a region of so many MiB of each thread, in random order.
 * --scale multiplies all steps. STEPS may end in M (million). Prints a checksum.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNKS 64 /* of a thread's work: so unevenly they end at most */

static struct {
	int threads, phases, dynamic, spin;
	double serial, work, memory, scale;
} options = { .threads = 1, .phases = 1, .scale = 1 };

/* What a thread needs to do steps. */
struct worker {
	pthread_t thread;
	int index;
	uint64_t value;
	uint32_t *region; /* each entry is the index of the next one; one cycle through all */
};

static pthread_barrier_t asleep;
static atomic_int arrived, round_of_all;
static atomic_long taken;

static void fail(const char *what)
{
	fprintf(stderr, "phases: %s\n", what);
	exit(2);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* A random cycle (Sattolo's algorithm). */
static void fill_region(struct worker *worker)
{
	size_t count = (size_t)(options.memory * (1 << 20)) / sizeof(uint32_t);
	uint64_t state = (uint64_t)worker->index;

	worker->region = malloc(count * sizeof(uint32_t));
	if (!worker->region)
		fail("not enough memory");
	for (size_t i = 0; i < count; i++)
		worker->region[i] = (uint32_t)i;
	for (size_t i = count - 1; i > 0; i--) {
		size_t other = next_random(&state) % i;
		uint32_t swapped = worker->region[i];

		worker->region[i] = worker->region[other];
		worker->region[other] = swapped;
	}
}

static void do_steps(struct worker *worker, double steps)
{
	uint64_t value = worker->value;

	if (worker->region)
		for (long i = (long)steps; i > 0; i--)
			value = worker->region[value];
	else
		for (long i = (long)steps; i > 0; i--)
			value = value * 6364136223846793005u + 1442695040888963407u;
	worker->value = value;
}

static void wait_for_all(void)
{
	int round = atomic_load(&round_of_all);

	if (!options.spin) {
		pthread_barrier_wait(&asleep);
	} else if (atomic_fetch_add(&arrived, 1) + 1 == options.threads) {
		atomic_store(&arrived, 0);
		atomic_store(&round_of_all, round + 1);
	} else {
		while (atomic_load(&round_of_all) == round)
			;
	}
}

static void do_parallel(struct worker *worker)
{
	if (!options.dynamic) {
		do_steps(worker, options.work);
		return;
	}
	while (atomic_fetch_add(&taken, 1) < (long)options.threads * CHUNKS)
		do_steps(worker, options.work / CHUNKS);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	if (options.memory > 0)
		fill_region(worker);
	for (int phase = 0; phase < options.phases; phase++) {
		wait_for_all();
		if (worker->index == 0) {
			do_steps(worker, options.serial);
			atomic_store(&taken, 0);
		}
		wait_for_all();
		do_parallel(worker);
	}
	return NULL;
}

static double number(const char *text, const char *unit)
{
	char *end;
	double value = strtod(text, &end);

	if (*unit && *end == *unit) {
		value *= 1e6;
		end++;
	}
	if (end == text || *end || value < 0)
		fail("an option's value is no number");
	return value;
}

static void read_options(int count, char **words)
{
	static const struct option known[] = {
		{ "threads", 1, 0, 't' }, { "phases", 1, 0, 'p' }, { "serial", 1, 0, 's' }, { "work", 1, 0, 'w' },
		{ "dynamic", 0, 0, 'd' }, { "spin", 0, 0, 'b' }, { "memory", 1, 0, 'm' }, { "scale", 1, 0, 'x' },
		{ 0 },
	};

	for (int option; (option = getopt_long(count, words, "", known, NULL)) != -1;) {
		switch (option) {
		case 't': options.threads = (int)number(optarg, ""); break;
		case 'p': options.phases = (int)number(optarg, ""); break;
		case 's': options.serial = number(optarg, "M"); break;
		case 'w': options.work = number(optarg, "M"); break;
		case 'd': options.dynamic = 1; break;
		case 'b': options.spin = 1; break;
		case 'm': options.memory = number(optarg, ""); break;
		case 'x': options.scale = number(optarg, ""); break;
		default: exit(2);
		}
	}
	if (optind < count || options.threads < 1)
		fail("see the source for its options");
	options.serial *= options.scale;
	options.work *= options.scale;
}

int main(int count, char **words)
{
	uint64_t sum = 0;

	read_options(count, words);
	struct worker *workers = calloc((size_t)options.threads, sizeof(*workers));
	if (!workers || pthread_barrier_init(&asleep, NULL, (unsigned)options.threads))
		fail("too many threads");
	for (int i = 0; i < options.threads; i++)
		workers[i].index = i;
	for (int i = 1; i < options.threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			fail("cannot start a thread");
	work(&workers[0]);
	for (int i = 1; i < options.threads; i++)
		pthread_join(workers[i].thread, NULL);
	/* Which thread does how much is chance if they take chunks; the chunks themselves are all alike. */
	for (int i = 0; i < options.threads && !options.dynamic; i++)
		sum += workers[i].value;
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
