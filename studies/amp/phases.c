/* A program with phases: THREADS threads compute for 40 ms, then the main thread alone for 60 ms, PHASES
 * times. In each sequential phase in which the main thread begins on a slow PE, it prints how many
 * microseconds later it first runs on the fast one (FAST), or "never".
 *
 *     cc -O1 -o phases phases.c -lpthread; ./phases THREADS PHASES FAST
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_barrier_t begin, end;
static int phases;

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static void compute_for(double us)
{
	for (double until = now_us() + us; now_us() < until;)
		;
}

static void *work(void *unused)
{
	for (int phase = 0; phase < phases; phase++) {
		pthread_barrier_wait(&begin);
		compute_for(40e3);
		pthread_barrier_wait(&end);
	}
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return fprintf(stderr, "phases THREADS PHASES FAST\n"), 1;
	int threads = atoi(argv[1]), fast = atoi(argv[3]);
	phases = atoi(argv[2]);
	pthread_barrier_init(&begin, 0, threads);
	pthread_barrier_init(&end, 0, threads);
	for (int i = 1; i < threads; i++) {
		pthread_t thread;
		if (pthread_create(&thread, 0, work, 0))
			return perror("pthread_create"), 1;
	}
	for (int phase = 0; phase < phases; phase++) {
		pthread_barrier_wait(&begin);
		compute_for(40e3);
		pthread_barrier_wait(&end);
		double alone = now_us(), arrived = -1;
		int began_on = sched_getcpu();
		while (now_us() < alone + 60e3)
			if (arrived < 0 && sched_getcpu() == fast)
				arrived = now_us() - alone;
		if (began_on != fast && arrived >= 0)
			printf("%.0f\n", arrived);
		if (began_on != fast && arrived < 0)
			puts("never");
	}
}
