/* OpenMP programs whose threads wait in the runtime or in their own code: parallel
   barrier|single|critical|lu. */
#include "truth.h"
#include <omp.h>
#include <string.h>

#define N 96
static double v[N][N][N];
static volatile int done[2][8];
static volatile double sink;

static double work(long n) {
  double x = 1;
  for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5;
  return x;
}
/* The pipelined sweep of NPB LU: each thread waits for its neighbour's flag, plane by plane. */
static void sweep(int me, int threads) {
  int from = 1 + me * (N - 2) / threads, to = 1 + (me + 1) * (N - 2) / threads;
  for (int k = 1; k < N - 1; k++) {
    if (me > 0) {
      wait_begin();
      while (!done[0][me - 1]) {
#pragma omp flush
      }
      done[0][me - 1] = 0;
#pragma omp flush
      wait_end();
    }
    for (int j = from; j < to; j++)
      for (int i = 1; i < N - 1; i++)
        v[k][j][i] = v[k][j][i] + 0.2 * (v[k - 1][j][i] + v[k][j - 1][i] + v[k][j][i - 1] - 3 * v[k][j][i]);
    if (me < threads - 1) {
      wait_begin();
      while (done[0][me]) {
#pragma omp flush
      }
      done[0][me] = 1;
#pragma omp flush
      wait_end();
    }
  }
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "barrier";
#pragma omp parallel num_threads(2)
  {
    int me = omp_get_thread_num();
    for (int round = 0; turn < 300; turn++) {
      if (!strcmp(kind, "barrier")) {
        sink = work(me ? 1500000 : 300000);
        wait_begin();
#pragma omp barrier
        wait_end();
      } else if (!strcmp(kind, "single")) {
        wait_begin();
#pragma omp single
        { wait_end(); sink = work(1500000); wait_begin(); }
        wait_end();
      } else if (!strcmp(kind, "critical")) {
        wait_begin();
#pragma omp critical
        { wait_end(); sink = work(800000); }
      } else {
        sweep(me, 2);
        wait_begin();
#pragma omp barrier
        wait_end();
      }
    }
    truth_tell();
  }
  return 0;
}
