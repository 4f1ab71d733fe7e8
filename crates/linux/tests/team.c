/* Two OpenMP threads of which one works, and the other waits for it in the runtime, again and again until it has
   used 0.4 s of CPU time. Each prints its kind and thread id. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void kmp_set_blocktime(int);

static double cpu_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(void) {
  volatile double sum = 0;
  volatile int has_waited = 0;
  kmp_set_blocktime(100000);
#pragma omp parallel num_threads(2)
  {
    int waits = omp_get_thread_num();
#pragma omp critical
    printf("%s %ld\n", waits ? "waiting" : "working", syscall(SYS_gettid));
    while (!has_waited) {
      if (!waits)
        for (long i = 0; i < 3000000; i++) sum = sum * 0.5 + i;
#pragma omp barrier
      if (waits) has_waited = cpu_time() > 0.4;
#pragma omp barrier
    }
  }
  return 0;
}
