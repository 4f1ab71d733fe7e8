/* A few long parallel loops: nothing to gain by other waits, and nothing to lose. */
#include <math.h>
#include <stdio.h>

int main(void)
{
	double sum = 0;

	for (int round = 0; round < 6; round++) {
#pragma omp parallel for reduction(+ : sum) schedule(static)
		for (long i = 0; i < 12000000; i++)
			sum += sin(i * 1e-3 + round);
	}
	printf("%.6f\n", sum);
	return 0;
}
