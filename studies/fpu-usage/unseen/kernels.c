/* Kernels that the rules have not seen: kernels NAME computes one of them for ever. */
#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile double sink;
static volatile long count;
static uint64_t state = 88172645463325252u;
static uint64_t next(void) { state ^= state << 13; state ^= state >> 7; return state ^= state << 17; }
static double unit(void) { return (next() >> 11) * 0x1p-53; }

/* Integers. */
static void heapsort_ints(void) {
    enum { N = 20000 };
    static int a[N + 1];
    for (;;) {
        for (int i = 1; i <= N; i++) a[i] = (int)next();
        for (int size = N, start = N / 2; size > 1;) {
            int value;
            if (start >= 1) value = a[start--];
            else { value = a[size]; a[size--] = a[1]; }
            int hole = start >= 1 || size == N ? start + 1 : 1, child;
            if (start < 1 && size < N) hole = 1;
            while ((child = 2 * hole) <= size) {
                if (child < size && a[child + 1] > a[child]) child++;
                if (a[child] <= value) break;
                a[hole] = a[child];
                hole = child;
            }
            a[hole] = value;
        }
        count = a[1];
    }
}
static void floyd(void) {
    enum { N = 256 };
    static int d[N][N];
    for (;;) {
        for (int i = 0; i < N * N; i++) d[i / N][i % N] = next() % 1000;
        for (int k = 0; k < N; k++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++)
                    if (d[i][k] + d[k][j] < d[i][j]) d[i][j] = d[i][k] + d[k][j];
        count = d[3][7];
    }
}
struct trie { struct trie *child[26]; int ends; };
static void trie(void) {
    static struct trie pool[1 << 18];
    for (;;) {
        int used = 1;
        memset(pool, 0, sizeof pool);
        for (int word = 0; word < 30000; word++) {
            struct trie *at = pool;
            for (int length = 3 + next() % 5; length--;) {
                int letter = next() % 26;
                if (!at->child[letter]) at->child[letter] = &pool[used++];
                at = at->child[letter];
            }
            at->ends++;
        }
        count = used;
    }
}
static long ackermann(long m, long n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
static void recursion(void) { for (;;) count = ackermann(2, 300); }

/* A machine on a stack, of closures called through pointers: integers, then doubles. */
struct closure { void (*run)(struct closure *); struct closure *next; long amount; double factor; };
static long top_int;
static double top_double;
static void int_add(struct closure *c) { top_int += c->amount; }
static void int_xor(struct closure *c) { top_int ^= top_int << 3 ^ c->amount; }
static void int_rotate(struct closure *c) { top_int = top_int << c->amount | (unsigned long)top_int >> 57; }
static void double_add(struct closure *c) { top_double += c->factor; }
static void double_scale(struct closure *c) { top_double *= c->factor; }
static void double_root(struct closure *c) { top_double = sqrt(fabs(top_double)) + c->factor; }
static void closures(void (**kinds)(struct closure *)) {
    static struct closure all[500];
    for (int i = 0; i < 500; i++)
        all[i] = (struct closure){kinds[next() % 3], i < 499 ? &all[i + 1] : NULL, next() % 7 + 1, .3 + unit()
                / 2};
    for (;;)
        for (struct closure *c = all; c; c = c->next) c->run(c);
}
static void closures_int(void) { closures((void (*[])(struct closure *)){int_add, int_xor, int_rotate}); }
static void closures_double(void) { closures((void (*[])(struct closure *)){double_add, double_scale,
        double_root}); }

/* Threaded code: each handler jumps to the next. */
static void threaded(int with_doubles) {
    static unsigned char code[1000];
    for (int i = 0; i < 999; i++) code[i] = next() % 4 + (with_doubles ? 0 : 4);
    code[999] = 8;
    static void *const labels[] = {&&fadd, &&fmul, &&fswap, &&fsub, &&iadd, &&imul, &&iswap, &&ishift,
            &&again};
    double x = 1, y = .5;
    long i = 1, j = 7;
    const unsigned char *at = code;
#define NEXT goto *labels[*at++]
    NEXT;
fadd: x = x + y; NEXT;
fmul: y = y * .99 + .01; NEXT;
fswap: { double t = x; x = y; y = t; } NEXT;
fsub: x = x - 1.5 * y; NEXT;
iadd: i += j; NEXT;
imul: j = j * 31 + 7; NEXT;
iswap: { long t = i; i = j; j = t; } NEXT;
ishift: i ^= i >> 5; NEXT;
again:
    sink = x + y; count = i + j;
    if (!(fabs(x) < 1e100)) x = 1;
    at = code;
    NEXT;
}
static void threaded_int(void) { threaded(0); }
static void threaded_double(void) { threaded(1); }
static void base64(void) {
    static unsigned char from[3 << 15];
    static char to[4 << 15];
    const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < sizeof from; i++) from[i] = next() >> 13;
    for (;;) {
        for (size_t i = 0; i < 1 << 15; i++) {
            uint32_t v = from[3 * i] << 16 | from[3 * i + 1] << 8 | from[3 * i + 2];
            for (int k = 0; k < 4; k++) to[4 * i + k] = letters[v >> (18 - 6 * k) & 63];
        }
        count = to[99];
    }
}
static void print_ints(void) {
    char line[200];
    for (;;) { snprintf(line, sizeof line, "%ld: %s %08lx, %c", (long)next() % 100000, "name", (long)next(),
            'x');
        count = line[0]; }
}
static void print_doubles(void) {
    char line[200];
    for (;;) { snprintf(line, sizeof line, "%.6g %e %f", unit(), unit() * 1e9, unit()); count = line[0]; }
}
static void jumps(void) {
    static jmp_buf back;
    for (volatile long i = 0;; i++) { if (setjmp(back) == 0) { if (i & 1) longjmp(back, 1); } count = i; }
}

/* Floating point. */
static void gauss_seidel(void) {
    enum { N = 300 };
    static double u[N][N];
    for (;;) {
        u[N / 2][N / 2] = 1;
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                u[i][j] += 1.5 * (.25 * (u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1]) - u[i][j]);
        sink = u[9][9];
    }
}
static void cholesky(void) {
    enum { N = 160 };
    static double a[N][N];
    for (;;) {
        for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) a[i][j] = i == j ? N : 1.0 / (1 + abs(i - j));
        for (int j = 0; j < N; j++) {
            for (int k = 0; k < j; k++) a[j][j] -= a[j][k] * a[j][k];
            a[j][j] = sqrt(a[j][j]);
            for (int i = j + 1; i < N; i++) {
                for (int k = 0; k < j; k++) a[i][j] -= a[i][k] * a[j][k];
                a[i][j] /= a[j][j];
            }
        }
        sink = a[N - 1][N - 1];
    }
}
static void dft(void) {
    enum { N = 512 };
    static double complex x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = unit();
    for (;;) {
        for (int k = 0; k < N; k++) {
            double complex sum = 0;
            for (int i = 0; i < N; i++) sum += x[i] * cexp(-2 * 3.14159265358979 * I * i * k / N);
            y[k] = sum;
        }
        sink = creal(y[1]);
    }
}
static double simpson(double (*f)(double), double a, double b, int depth) {
    double m = (a + b) / 2, whole = (b - a) / 6 * (f(a) + 4 * f(m) + f(b));
    double l = (a + m) / 2, r = (m + b) / 2;
    double halves = (b - a) / 12 * (f(a) + 4 * f(l) + 2 * f(m) + 4 * f(r) + f(b));
    return depth == 0 || fabs(whole - halves) < 1e-12 ? halves
                                                       : simpson(f, a, m, depth - 1) + simpson(f, m, b, depth
                                                               - 1);
}
static double wave(double x) { return sin(x * x) * exp(-x) + 1 / (1 + x); }
static void quadrature(void) { for (;;) sink = simpson(wave, 0, 5 + unit(), 12); }
static void rays(void) {
    static double spheres[64][4];
    for (int i = 0; i < 256; i++) spheres[i / 4][i % 4] = unit() * 4 - 2;
    for (;;) {
        int hits = 0;
        for (int p = 0; p < 10000; p++) {
            double dx = unit() - .5, dy = unit() - .5, dz = 1, n = 1 / sqrt(dx * dx + dy * dy + dz * dz);
            dx *= n, dy *= n, dz *= n;
            for (int s = 0; s < 64; s++) {
                double *c = spheres[s], b = c[0] * dx + c[1] * dy + c[2] * dz;
                double d = b * b - (c[0] * c[0] + c[1] * c[1] + c[2] * c[2]) + c[3] * c[3] * .01;
                if (d > 0 && b - sqrt(d) > 0) { hits++; break; }
            }
        }
        count = hits;
    }
}
static void neural(void) {
    enum { IN = 200, OUT = 200 };
    static float w[OUT][IN], x[IN], y[OUT];
    for (int i = 0; i < IN * OUT; i++) w[i / IN][i % IN] = unit() - .5;
    for (;;) {
        for (int i = 0; i < IN; i++) x[i] = unit();
        for (int o = 0; o < OUT; o++) { float sum = 0; for (int i = 0; i < IN; i++) sum += w[o][i] * x[i];
            y[o] = tanhf(sum); }
        sink = y[7];
    }
}
static void histogram(void) {
    static int bins[256];
    for (;;) for (int i = 0; i < 100000; i++) bins[(int)(unit() * unit() * 256)]++;
}
static void mean_of_bytes(void) {
    static unsigned char bytes[1 << 16];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = next();
    for (;;) { double sum = 0; for (size_t i = 0; i < sizeof bytes; i++) sum += bytes[i] * bytes[i]; sink =
            sum; }
}
/* Little floating point among much else: a priority queue of events by time. */
static void events(void) {
    enum { N = 1000 };
    static struct { double time; int kind; } queue[N + 1];
    for (int i = 1; i <= N; i++) queue[i].time = unit();
    for (;;) {
        double now = queue[1].time - log(1 - unit());
        int hole = 1, child;
        while ((child = 2 * hole) <= N) {
            if (child < N && queue[child + 1].time < queue[child].time) child++;
            if (queue[child].time >= now) break;
            queue[hole] = queue[child];
            hole = child;
        }
        queue[hole].time = now;
    }
}

static const struct { const char *name; void (*run)(void); } kernels[] = {
    {"heapsort", heapsort_ints}, {"floyd", floyd}, {"trie", trie}, {"recursion", recursion},
    {"closures_int", closures_int}, {"closures_double", closures_double}, {"threaded_int", threaded_int},
    {"threaded_double", threaded_double}, {"base64", base64}, {"print_ints", print_ints},
    {"print_doubles", print_doubles}, {"jumps", jumps}, {"gauss_seidel", gauss_seidel}, {"cholesky",
            cholesky},
    {"dft", dft}, {"quadrature", quadrature}, {"rays", rays}, {"neural", neural}, {"histogram", histogram},
    {"mean_of_bytes", mean_of_bytes}, {"events", events},
};
int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (argc > 1 && !strcmp(argv[1], kernels[i].name)) kernels[i].run();
    return 2;
}
