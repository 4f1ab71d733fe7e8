/* Conjugate gradients on the grid of a Poisson equation: loops of some ten to fifty µs, with sums between
 * them. The argument is how many times it is solved. */
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 96, N = SIDE * SIDE, ITERATIONS = 4000 };

static double x[N], r[N], p[N], q[N];

static double product(const double *a, const double *b)
{
	double sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static)
	for (int i = 0; i < N; i++)
		sum += a[i] * b[i];
	return sum;
}

static void multiply(void)
{
#pragma omp parallel for schedule(static)
	for (int row = 0; row < SIDE; row++)
		for (int column = 0; column < SIDE; column++) {
			int i = row * SIDE + column;
			double sum = 4.0005 * p[i];
			if (row > 0) sum -= p[i - SIDE];
			if (row < SIDE - 1) sum -= p[i + SIDE];
			if (column > 0) sum -= p[i - 1];
			if (column < SIDE - 1) sum -= p[i + 1];
			q[i] = sum;
		}
}

static void solve(void)
{
	for (int i = 0; i < N; i++) {
		x[i] = 0;
		r[i] = p[i] = (i * 37 % 101) / 101.;
	}
	double old = product(r, r);
	for (int iteration = 0; iteration < ITERATIONS && old > 1e-200; iteration++) {
		multiply();
		double step = old / product(p, q);
#pragma omp parallel for schedule(static)
		for (int i = 0; i < N; i++) {
			x[i] += step * p[i];
			r[i] -= step * q[i];
		}
		double new = product(r, r);
#pragma omp parallel for schedule(static)
		for (int i = 0; i < N; i++)
			p[i] = r[i] + new / old * p[i];
		old = new;
	}
}

int main(int argc, char **argv)
{
	long times = argc > 1 ? atol(argv[1]) : 1;

	for (long time = 0; time < times; time++)
		solve();
	printf("%.8e\n", product(x, x));
	return 0;
}
