/* A program that relies on the size of its team, as OpenMP permits: it asks for it once, divides its work by
 * it and waits for every thread. It prints the size and works for the CPU time that is its argument, in
 * seconds. Status 1: a sum was wrong; 2: a thread did not come. */
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int arguments, char **argument)
{
	double cpu_time = arguments > 1 ? atof(argument[1]) : 0;
	int size = omp_get_max_threads(), wrong = 0;
	long n = 4000;

	printf("%d\n", size);
	fflush(stdout);
	while (!wrong && seconds(CLOCK_PROCESS_CPUTIME_ID) < cpu_time) {
		long part[256] = { 0 }, sum = 0;
		int here = 0, gave_up = 0;
#pragma omp parallel
		{
			int thread = omp_get_thread_num();
			double end = seconds(CLOCK_MONOTONIC) + 20;

			for (long i = n * thread / size; i < n * (thread + 1) / size; i++)
				part[thread] += i;
			__atomic_add_fetch(&here, 1, __ATOMIC_RELAXED);
			while (__atomic_load_n(&here, __ATOMIC_RELAXED) < size) {
				if (seconds(CLOCK_MONOTONIC) > end) {
					gave_up = 1;
					break;
				}
				sched_yield();
			}
		}
		for (int thread = 0; thread < size; thread++)
			sum += part[thread];
		wrong = gave_up ? 2 : sum != n * (n - 1) / 2;
	}
	return wrong;
}
