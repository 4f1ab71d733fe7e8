/* A program that shorter waits harm, planted for the guard of waits: whenever a thread has slept in a barrier
 * that took less than 5 ms, for which the library would have spun by itself, it has to do its work of some
 * 10 ms anew. It reports its progress by libcorewise. The argument is the number of seconds; it prints how
 * many pieces of work it has done. Compiled by gcc -O2 -fopenmp harmed.c $(pkg-config --cflags --libs
 * corewise) -lpthread. */
#define _GNU_SOURCE
#include <corewise.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { PIECES = 200 };
static const double SHORT = 0.005;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static long slept(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* Some 50 µs. */
static void piece(void)
{
	for (volatile int i = 0; i < 200000; i++)
		;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 60);
	long done = 0;
	int is_over = 0;
#pragma omp parallel reduction(+ : done)
	{
		while (!is_over) {
			/* The second thread has less to do, and waits. */
			for (int i = omp_get_thread_num() ? PIECES / 8 : 0; i < PIECES; i++) {
				piece();
				corewise_heartbeat(1);
				done++;
			}
			long before = slept();
			double began = now();
#pragma omp barrier
			if (slept() > before && now() - began < SHORT)
				for (int i = 0; i < PIECES; i++)
					piece();
#pragma omp master
			is_over = now() >= end;
#pragma omp barrier
		}
	}
	printf("%ld\n", done);
	return 0;
}
