/*
 * A program that computes, and answers questions about what placed threads can have.
 *
 * `asks THREADS` computes with so many threads. For each line of standard input the first of them answers
 * with a line: `mask` with the number of PEs that it may use, `deadline` with the error that the request for
 * SCHED_DEADLINE gets, 0 for none; it is an ordinary thread again at once; `start` with how a program that
 * it starts has ended. It ends with the input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As the kernel has it; see sched_setattr(2). */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static int set(uint32_t policy, uint64_t ns)
{
	struct attributes attributes = { .size = sizeof attributes, .policy = policy, .runtime = ns,
					 .deadline = 10 * ns, .period = 10 * ns };
	return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0 ? 0 : errno;
}

static volatile double sum = 1.0;

static void compute(void)
{
	for (int i = 0; i < 1000000; i++)
		sum *= 1.0000001;
}

static void *work(void *unused)
{
	for (;;)
		compute();
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0;
	char line[64];
	pthread_t thread;

	if (threads < 1) {
		fprintf(stderr, "usage: asks THREADS\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (--threads)
		pthread_create(&thread, NULL, work, NULL);
	for (;;) {
		struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
		cpu_set_t mask;
		int error;

		compute();
		if (poll(&input, 1, 0) == 0)
			continue;
		if (!fgets(line, sizeof line, stdin))
			return 0;
		if (!strcmp(line, "mask\n")) {
			sched_getaffinity(0, sizeof mask, &mask);
			printf("%d\n", CPU_COUNT(&mask));
		} else if (!strcmp(line, "deadline\n")) {
			error = set(6 /* SCHED_DEADLINE */, 2000000);
			if (error == 0 && set(SCHED_OTHER, 0) != 0)
				return 3;
			printf("%d\n", error);
		} else if (!strcmp(line, "start\n")) {
			printf("%d\n", system("true"));
		} else {
			return 2;
		}
	}
}
