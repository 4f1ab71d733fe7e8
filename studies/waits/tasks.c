/* Trees of tasks, each of some µs: a thread that finds none waits for one. The argument is how many times as
 * many there are. */
#include <stdio.h>
#include <stdlib.h>

static double work(int seed)
{
	double x = seed;
	for (int i = 0; i < 2000; i++)
		x = x * 0.999 + i / (1 + x * x);
	return x;
}

static double tree(int depth, int seed)
{
	double left, right;
	if (depth == 0) return work(seed);
#pragma omp task shared(left)
	left = tree(depth - 1, 2 * seed);
#pragma omp task shared(right)
	right = tree(depth - 1, 2 * seed + 1);
#pragma omp taskwait
	return left + right + work(seed);
}

int main(int argc, char **argv)
{
	int rounds = 500 * (argc > 1 ? atoi(argv[1]) : 1);
	double sum = 0;

#pragma omp parallel
#pragma omp single
	for (int round = 0; round < rounds; round++)
		sum += tree(5, round);
	printf("%.6f\n", sum);
	return 0;
}
