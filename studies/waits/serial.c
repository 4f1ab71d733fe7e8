// Rounds with a parallel and a serial part: in the serial one all threads but one wait.
//
//     gcc -O2 -fopenmp -o serial serial.c
//     ./serial [ROUNDS [PARALLEL [SERIAL]]]      iterations of a round, in all
//
// Prints the seconds that it took.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static volatile double sink;

static double work(long iterations) {
    double x = 1;
    for (long i = 0; i < iterations; i++) x = x * 1.0000001 + 1e-9;
    return x;
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 1000;
    long parallel = count > 2 ? atol(words[2]) : 1000000, serial = count > 3 ? atol(words[3]) : 500000;
    double began = omp_get_wtime();
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel
        {
            double x = work(parallel / omp_get_num_threads());
            if (x < 0) sink = x;
        }
        sink = work(serial);
    }
    printf("%.2f\n", omp_get_wtime() - began);
}
