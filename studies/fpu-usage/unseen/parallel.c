/* OpenMP programs that the rules have not seen: parallel NAME for ever. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static volatile double sink;

static void spmv(void) {
    enum { N = 3000, K = 9 };
    static double value[N][K], x[N], y[N];
    static int column[N][K];
    for (int i = 0; i < N * K; i++) value[i / K][i % K] = i % 7 * .1, column[i / K][i % K] = i * 7919L % N;
    for (;;) {
#pragma omp parallel for
        for (int i = 0; i < N; i++) { double s = 1; for (int k = 0; k < K; k++) s += value[i][k] *
                x[column[i][k]]; y[i] = s; }
#pragma omp parallel for
        for (int i = 0; i < N; i++) x[i] = y[i] / (1 + fabs(y[i]));
        sink = x[5];
    }
}
static void bodies(void) {
    enum { N = 300 };
    static double p[N][3], a[N][3];
    for (int i = 0; i < N * 3; i++) p[i / 3][i % 3] = i * 7919 % 1000 * .01;
    for (;;) {
#pragma omp parallel for schedule(dynamic, 4)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double dx = p[j][0] - p[i][0], dy = p[j][1] - p[i][1], dz = p[j][2] - p[i][2];
                double r = 1 / sqrt(dx * dx + dy * dy + dz * dz + .01), f = r * r * r;
                a[i][0] += dx * f; a[i][1] += dy * f; a[i][2] += dz * f;
            }
        sink = a[3][1];
    }
}
/* One thread works, the other waits at the barrier. */
static void uneven(void) {
#pragma omp parallel
    for (;;) {
        if (omp_get_thread_num() == 0) { double x = 1; for (int i = 0; i < 400000; i++) x = x * .999 + i; sink
                = x; }
#pragma omp barrier
    }
}
static void merge(int *a, int *buffer, int n) {
    if (n < 2) return;
    int half = n / 2;
#pragma omp task if (n > 4000)
    merge(a, buffer, half);
    merge(a + half, buffer + half, n - half);
#pragma omp taskwait
    memcpy(buffer, a, n * sizeof *a);
    for (int i = 0, l = 0, r = half; i < n; i++) a[i] = r >= n || (l < half && buffer[l] <= buffer[r]) ?
            buffer[l++] : buffer[r++];
}
static void sorting(void) {
    enum { N = 200000 };
    static int a[N], buffer[N];
    for (unsigned x = 1;;) {
        for (int i = 0; i < N; i++) a[i] = (x = x * 1664525 + 1013904223) >> 3;
#pragma omp parallel
#pragma omp single
        merge(a, buffer, N);
        sink = a[0];
    }
}
static void collatz(void) {
    for (;;) {
        long longest = 0;
#pragma omp parallel for schedule(guided) reduction(max : longest)
        for (long i = 1; i < 200000; i++) { long n = i, steps = 0; while (n != 1) n = n & 1 ? 3 * n + 1 : n /
                2, steps++; if (steps > longest) longest = steps; }
        sink = longest;
    }
}
int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "spmv")) spmv();
    if (!strcmp(name, "bodies")) bodies();
    if (!strcmp(name, "uneven")) uneven();
    if (!strcmp(name, "sorting")) sorting();
    if (!strcmp(name, "collatz")) collatz();
    return 2;
}
