/* OpenBLAS with two threads: its worker waits between products. The worker computes as long as the caller
 * does. */
#include "truth.h"
#include <cblas.h>
#include <dirent.h>

static volatile double sink;
int main(void) {
  enum { N = 200 };
  static double a[N * N], b[N * N], c[N * N];
  for (int i = 0; i < N * N; i++) a[i] = b[i] = i % 7;
  double products = 0;
  while (truth_elapsed() < 2) {
    double since = truth_cpu_time();
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
    products += truth_cpu_time() - since;
    double x = 1;
    for (long i = 0; i < 3000000; i++) x = x * 1.0000001 + 0.5;
    sink = x + c[5];
  }
  FILE *file = getenv("TRUTH") ? fopen(getenv("TRUTH"), "a") : NULL;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *task; file && (task = readdir(tasks));) {
    unsigned long long run = 0;
    char name[300];
    snprintf(name, sizeof name, "/proc/self/task/%s/schedstat", task->d_name);
    FILE *stat = fopen(name, "r");
    if (atol(task->d_name) <= 0 || !stat || fscanf(stat, "%llu", &run) != 1) continue;
    int worker = atol(task->d_name) != getpid();
    fprintf(file, "%s %.6f %.6f\n", task->d_name, worker && run * 1e-9 > products ? run * 1e-9 - products : 0,
            run * 1e-9);
    fclose(stat);
  }
  if (file) fclose(file);
  return 0;
}
