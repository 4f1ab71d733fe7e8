/* Threads of one process that differ: one computes in floating point, one hashes. */
#include <pthread.h>

static void *float_work(void *unused) {
    for (volatile double sink = 0;;)
        for (double x = 1; x < 1000; x += 0.25) sink = sink * 0.999 + 1 / x;
    return unused;
}

static void *integer_work(void *unused) {
    for (volatile unsigned sink = 0, i = 0;; i++) sink = (sink ^ (sink >> 13)) * 2654435761u + i;
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, float_work, 0);
    integer_work(0);
}
