// oneTBB: so many parallel loops of some 50 µs on two threads.
#include <cstdio>
#include <cstdlib>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>

enum { N = 65536 };
static double x[N];

int main(int, char **arguments) {
  tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);
  double sum = 0;
  for (long region = 0, regions = atol(arguments[1]); region < regions; region++) {
    tbb::parallel_for(tbb::blocked_range<int>(0, N, N / 8), [](const tbb::blocked_range<int> &part) {
      for (int i = part.begin(); i < part.end(); i++) x[i] = x[i] * 0.999 + i / (1.0 + x[i] * x[i]);
    });
    sum += x[region % N];
  }
  printf("%.12g\n", sum);
}
