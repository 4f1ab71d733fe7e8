/* A wave that runs through a grid, plane by plane: each thread of an OpenMP team has a block of each plane,
 * and may only begin once the thread before it has done its block of the same plane. It waits for that in
 * code of its own, checking a flag in a loop, as the LU benchmark does; the threads work on different planes
 * at the same time. The argument is the number of sweeps. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS_MAX 256
enum { PLANES = 64, CELLS = 16384 };

static struct { volatile long planes; char pad[120]; } done[THREADS_MAX];
static double grid[PLANES][CELLS];

/* Each cell from the one before it and the one in the plane below. */
static void relax(int plane, int from, int to)
{
	for (int cell = from; cell < to; cell++) {
		double before = cell ? grid[plane][cell - 1] : 1.0;
		double below = plane ? grid[plane - 1][cell] : 1.0;
		grid[plane][cell] = 0.5 * grid[plane][cell] + 0.25 * (before + below);
	}
}

int main(int argc, char **argv)
{
	long sweeps = argc > 1 ? atol(argv[1]) : 100;

#pragma omp parallel
	{
		int me = omp_get_thread_num(), threads = omp_get_num_threads();
		int from = CELLS / threads * me, to = me == threads - 1 ? CELLS : from + CELLS / threads;
		for (long sweep = 0; sweep < sweeps; sweep++) {
			for (int plane = 0; plane < PLANES; plane++) {
				long before = sweep * PLANES + plane + 1;
				while (me && done[me - 1].planes < before)
					;
				relax(plane, from, to);
				__sync_synchronize();
				done[me].planes = before;
			}
#pragma omp barrier
		}
	}
	printf("%.9f\n", grid[PLANES - 1][CELLS - 1]);
	return 0;
}
