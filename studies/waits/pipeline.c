/* Threads of an OpenMP team that hand a wave of work from one to the next and wait for it in code of their
 * own, checking a flag in a loop. Only one of them works at a time: nothing is gained by several. The
 * argument is the number of waves. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS_MAX 256

static struct { volatile long wave; char pad[120]; } reached[THREADS_MAX];

static double work(double x)
{
	for (int i = 0; i < 4000; i++)
		x = x * 0.999999 + 1e-6;
	return x;
}

int main(int argc, char **argv)
{
	long waves = argc > 1 ? atol(argv[1]) : 40000;
	double sum = 0;

#pragma omp parallel reduction(+ : sum)
	{
		int me = omp_get_thread_num(), last = omp_get_num_threads() - 1;
		double x = me;
		for (long wave = 1; wave <= waves; wave++) {
			/* After the thread before in this wave, and the last thread in the one before. */
			while (reached[me ? me - 1 : last].wave < (me ? wave : wave - 1))
				;
			x = work(x);
			__sync_synchronize();
			reached[me].wave = wave;
		}
		sum += x;
	}
	printf("%.9f\n", sum);
	return 0;
}
