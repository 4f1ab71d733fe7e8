/* Three threads: one computes in floating point and one hashes, for half a second of CPU time each; one waits
 * busily for their end. Each first writes a line with its kind and its thread id. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int flag;

static int has_time(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec == 0 && used.tv_nsec < 500000000;
}

static void announce(const char *kind) {
    printf("%s %ld\n", kind, syscall(SYS_gettid));
    fflush(stdout);
}

static void *burn_float(void *unused) {
    announce("float");
    double x = 1;
    while (has_time())
        for (int i = 0; i < 1000000; i++) x = x * 0.999 + 1.5;
    flag = x < 0;
    return unused;
}

static void *burn_integer(void *unused) {
    announce("integer");
    unsigned x = 1;
    while (has_time())
        for (int i = 0; i < 1000000; i++) x = (x ^ (x >> 13)) * 2654435761u + i;
    flag = x == 0;
    return unused;
}

static void *wait_busily(void *unused) {
    announce("waiting");
    while (!flag) {}
    return unused;
}

int main(void) {
    pthread_t waiting, burning[2];
    pthread_create(&waiting, 0, wait_busily, 0);
    pthread_create(&burning[0], 0, burn_float, 0);
    pthread_create(&burning[1], 0, burn_integer, 0);
    pthread_join(burning[0], 0);
    pthread_join(burning[1], 0);
    flag = 1;
    pthread_join(waiting, 0);
    return 0;
}
