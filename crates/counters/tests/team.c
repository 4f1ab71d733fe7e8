/* Two OpenMP threads of which one works, and the other waits for it in the runtime, again and again. Each
   prints
 * its kind and thread id. */
#include <omp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

void kmp_set_blocktime(int);

int main(void) {
  volatile double sum = 0;
  kmp_set_blocktime(100000);
#pragma omp parallel num_threads(2)
  {
    int waits = omp_get_thread_num();
#pragma omp critical
    printf("%s %ld\n", waits ? "waiting" : "working", syscall(SYS_gettid));
    for (int round = 0; round < 100; round++) {
      if (!waits)
        for (long i = 0; i < 3000000; i++) sum = sum * 0.5 + i;
#pragma omp barrier
    }
  }
  return 0;
}
