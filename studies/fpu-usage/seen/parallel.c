/* OpenMP programs: parallel NAME for ever. Built with GCC (libgomp) and Clang (libomp). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 400 };
static double a[N][N], b[N][N];
static volatile double sink;

static void jacobi(void) {
    for (;;) {
#pragma omp parallel for
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++) b[i][j] = .25 * (a[i - 1][j] + a[i + 1][j] + a[i][j - 1] +
              a[i][j + 1]) + 1;
#pragma omp parallel for
        for (int i = 1; i < N - 1; i++) memcpy(&a[i][1], &b[i][1], sizeof(double) * (N - 2));
    }
}

/* The shares become smaller from step to step: the later ones are mostly waiting. */
static void decompose(void) {
    for (;;) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) a[i][j] = i == j ? N : (i * 7 + j) % 13;
        for (int k = 0; k < N; k++) {
#pragma omp parallel for
            for (int i = k + 1; i < N; i++) {
                double f = a[i][k] /= a[k][k];
                for (int j = k + 1; j < N; j++) a[i][j] -= f * a[k][j];
            }
        }
        sink = a[N - 1][N - 1];
    }
}

static void reduction(void) {
    for (;;) {
        double sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (int i = 1; i < 1000000; i++) sum += log(i) / i;
        sink = sum;
    }
}

static void sieve(void) {
    static char composite[1 << 20];
    for (;;) {
        long primes = 0;
        memset(composite, 0, sizeof composite);
        for (int p = 2; p < 1024; p++)
            if (!composite[p]) {
#pragma omp parallel for
                for (int i = p; i < (1 << 20) / p; i++) composite[i * p] = 1;
            }
#pragma omp parallel for reduction(+ : primes)
        for (int i = 2; i < 1 << 20; i++) primes += !composite[i];
        sink = primes;
    }
}

int main(int count, char **arguments) {
    const char *name = count == 2 ? arguments[1] : "";
    if (!strcmp(name, "jacobi")) jacobi();
    if (!strcmp(name, "decompose")) decompose();
    if (!strcmp(name, "reduction")) reduction();
    if (!strcmp(name, "sieve")) sieve();
    fprintf(stderr, "no such kernel\n");
    return 2;
}
