// oneTBB: uneven shares, so that workers look for work. tbb for|serial
#include "team.h"
#include <cstring>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <vector>

static volatile double sink;
static double work(long n) {
  double x = 1;
  for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5;
  return x;
}
int main(int argc, char **argv) {
  bool serial = argc > 1 && !strcmp(argv[1], "serial");
  tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);
  while (truth_elapsed() < 1.5) {
    tbb::parallel_for(0, 2, [&](int i) { team_work_begin(); sink = work(i ? 20000 : serial ? 20000 : 300000); team_work_end(); }, tbb::simple_partitioner());
    if (serial) { team_work_begin(); sink = work(200000); team_work_end(); }
  }
  team_tell();
}
