/* Seven threads: one computes in floating point, one behind function pointers, one hashes and one copies
 * memory, for half a second of CPU time each; one waits busily for their end, one yields while it
 * waits, and one looks for messages as MPI does. Each first writes a line with its kind and its thread id. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
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

static double grow(double x) { return x * 1.01 - .5; }
static double shrink(double x) { return x * .98 - .5; }
static double keep(double x) { return x * 1. - .5; }
static double (*volatile functions[])(double) = {grow, shrink, keep};

static void *burn_indirectly(void *unused) {
    announce("indirect");
    double x = 1;
    while (has_time())
        for (int i = 0; i < 100000; i++) x = functions[i % 3](x);
    flag = x == 0;
    return unused;
}

static void copy(char *to, const char *from, size_t length) {
#ifdef __x86_64__
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
#else
    memcpy(to, from, length);
#endif
}

static void *copy_memory(void *unused) {
    static char from[1 << 16], to[1 << 16];
    announce("copying");
    double copied = 0;
    while (has_time())
        for (int i = 0; i < 1000; i++) {
            copy(to, from, sizeof to);
            copied += to[i];
        }
    flag = copied > 0;
    return unused;
}

static void *wait_busily(void *unused) {
    announce("waiting");
    while (!flag) {}
    return unused;
}

/* Yields as long as the others are there, and for at least half a second of CPU time, whatever else
 * runs: alone on its PE it is in the kernel nearly all the time. */
static void *wait_yielding(void *unused) {
    announce("yielding");
    do
        for (int i = 0; i < 10000; i++) sched_yield();
    while (!flag || has_time());
    return unused;
}

static unsigned empty(unsigned x) {
    for (int i = 0; i < 3; i++) x = (x ^ (x >> 13)) * 2654435761u + i;
    return x;
}
static unsigned (*volatile queue)(unsigned) = empty;

/* Called as the progress engine of Open MPI, which looks through function pointers. */
__attribute__((noinline)) unsigned opal_progress(unsigned x) {
    return queue(x) + queue(x + 1);
}

static void *wait_for_messages(void *unused) {
    announce("polling");
    unsigned x = 1;
    while (has_time())
        for (int i = 0; i < 100000; i++) x = opal_progress(x);
    flag = x == 0;
    return unused;
}

int main(void) {
    void *(*kinds[])(void *) = {burn_float, burn_indirectly, burn_integer, copy_memory, wait_for_messages};
    pthread_t waiting, yielding, burning[5];
    pthread_create(&waiting, 0, wait_busily, 0);
    pthread_create(&yielding, 0, wait_yielding, 0);
    for (int i = 0; i < 5; i++) pthread_create(&burning[i], 0, kinds[i], 0);
    for (int i = 0; i < 5; i++) pthread_join(burning[i], 0);
    flag = 1;
    pthread_join(waiting, 0);
    pthread_join(yielding, 0);
    return 0;
}
