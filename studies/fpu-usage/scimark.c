/* Five kernels of the kinds that SciMark 2.0 has, written for this study: scimark KIND runs one for ever. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned seed = 12345;

/* A linear congruential generator with floating-point output. */
static double random_unit(void) {
    seed = seed * 1103515245u + 12345u;
    return (double)(seed >> 1) / 2147483648.0;
}

static double fft(void) {
    enum { N = 1024 };
    static double re[N], im[N];
    for (int i = 0; i < N; i++) re[i] = random_unit(), im[i] = 0;
    for (int i = 1, j = 0; i < N; i++) {
        int bit = N >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            double t = re[i];
            re[i] = re[j], re[j] = t;
            t = im[i], im[i] = im[j], im[j] = t;
        }
    }
    for (int length = 2; length <= N; length <<= 1) {
        double angle = -2 * M_PI / length, step_re = cos(angle), step_im = sin(angle);
        double w_re = 1, w_im = 0;
        for (int k = 0; k < length / 2; k++) {
            for (int i = k; i < N; i += length) {
                int j = i + length / 2;
                double x = re[j] * w_re - im[j] * w_im, y = re[j] * w_im + im[j] * w_re;
                re[j] = re[i] - x, im[j] = im[i] - y;
                re[i] += x, im[i] += y;
            }
            double t = w_re * step_re - w_im * step_im;
            w_im = w_re * step_im + w_im * step_re, w_re = t;
        }
    }
    return re[1];
}

static double sor(void) {
    enum { N = 100 };
    static double grid[N][N];
    if (grid[1][1] == 0)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) grid[i][j] = random_unit();
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            grid[i][j] = 0.3125 * (grid[i - 1][j] + grid[i + 1][j] + grid[i][j - 1] + grid[i][j + 1]) -
                         0.25 * grid[i][j];
    return grid[5][5];
}

/* A lagged Fibonacci generator of integers, as SciMark's, and points in the quarter circle. */
static int lagged[17], lag_i = 4, lag_j = 16;
static __attribute__((noinline)) double lagged_next(void) {
    int k = lagged[lag_i] - lagged[lag_j];
    if (k < 0) k += 2147483647;
    lagged[lag_j] = k;
    lag_i = lag_i == 0 ? 16 : lag_i - 1;
    lag_j = lag_j == 0 ? 16 : lag_j - 1;
    return k * (1.0 / 2147483647);
}

static double monte_carlo(void) {
    if (lagged[0] == 0)
        for (int i = 0; i < 17; i++) lagged[i] = (int)(random_unit() * 2147483646);
    int inside = 0;
    for (int i = 0; i < 10000; i++) {
        double x = lagged_next(), y = lagged_next();
        if (x * x + y * y <= 1) inside++;
    }
    return inside;
}

static double sparse(void) {
    enum { N = 1000, PER_ROW = 5 };
    static double value[N * PER_ROW], x[N], y[N];
    static int row[N + 1], column[N * PER_ROW];
    if (row[N] == 0)
        for (int r = 0; r <= N; r++) {
            row[r] = r * PER_ROW;
            if (r < N) x[r] = random_unit();
            for (int i = 0; r < N && i < PER_ROW; i++)
                column[r * PER_ROW + i] = (r / PER_ROW * i) % N, value[r * PER_ROW + i] = random_unit();
        }
    for (int r = 0; r < N; r++) {
        double sum = 0;
        for (int i = row[r]; i < row[r + 1]; i++) sum += x[column[i]] * value[i];
        y[r] = sum;
    }
    return y[7];
}

static double lu(void) {
    enum { N = 100 };
    static double a[N][N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) a[i][j] = random_unit();
    for (int j = 0; j < N; j++) {
        int pivot = j;
        for (int i = j + 1; i < N; i++)
            if (fabs(a[i][j]) > fabs(a[pivot][j])) pivot = i;
        if (pivot != j) {
            double row[N];
            memcpy(row, a[j], sizeof row);
            memcpy(a[j], a[pivot], sizeof row);
            memcpy(a[pivot], row, sizeof row);
        }
        for (int i = j + 1; i < N; i++) {
            a[i][j] /= a[j][j];
            for (int k = j + 1; k < N; k++) a[i][k] -= a[i][j] * a[j][k];
        }
    }
    return a[3][3];
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        double (*run)(void);
    } kernels[] = {{"fft", fft}, {"sor", sor}, {"mc", monte_carlo}, {"mm", sparse}, {"lu", lu}};
    for (int i = 0; count == 2 && i < 5; i++)
        if (strcmp(arguments[1], kernels[i].name) == 0)
            for (volatile double sink;;) sink = kernels[i].run();
    fprintf(stderr, "usage: scimark fft|sor|mc|mm|lu\n");
    return 2;
}
