/* So many parallel regions of some 50 µs of work each, the pattern of solvers and learners: `regions COUNT`. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
	long regions = count > 1 ? atol(arguments[1]) : 5000;
	enum { N = 16384 };
	static double x[N];
	double sum = 0;

	for (long region = 0; region < regions; region++) {
#pragma omp parallel for schedule(static)
		for (int i = 0; i < N; i++)
			x[i] = x[i] * 0.999 + i / (1.0 + x[i] * x[i]);
		sum += x[region % N];
	}
	printf("%.12g\n", sum);
	return 0;
}
