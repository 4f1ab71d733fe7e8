/* An OpenMP loop with so uneven shares that all but one thread mostly wait, busily, at its end. */
int main(void) {
    static double result[64];
    for (;;) {
#pragma omp parallel for schedule(static) num_threads(2)
        for (int i = 0; i < 64; i++)
            for (int k = 0, rounds = i < 32 ? 1000 : 100000; k < rounds; k++)
                result[i] = result[i] * 0.999 + 1.5;
    }
}
