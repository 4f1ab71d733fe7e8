/* Kernels of programs that the rules have not seen: kernels NAME computes one of them for ever. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile double sink;
static uint32_t seed = 1;
static uint32_t random32(void) { return seed = seed * 1664525u + 1013904223u; }
static double unit(void) { return random32() / 4294967296.0; }

static void crc(void) {
    static uint32_t table[256];
    static unsigned char data[1 << 20];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
        table[i] = c;
    }
    for (size_t i = 0; i < sizeof data; i++) data[i] = random32() >> 24;
    for (;;) {
        uint32_t c = ~0u;
        for (size_t i = 0; i < sizeof data; i++) c = table[(c ^ data[i]) & 255] ^ (c >> 8);
        sink = c;
    }
}

static void life(void) {
    enum { N = 512 };
    static unsigned char a[N][N], b[N][N];
    for (int i = 0; i < N * N; i++) a[0][i] = random32() >> 31;
    for (;;) {
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++) {
                int n = 0;
                for (int y = -1; y <= 1; y++)
                    for (int x = -1; x <= 1; x++)
                        if (x || y) n += a[i + y][j + x];
                if (n == 3) b[i][j] = 1;
                else if (n == 2) b[i][j] = a[i][j];
                else b[i][j] = 0;
            }
        memcpy(a, b, sizeof a);
        sink = a[N / 2][N / 2];
    }
}

static void levenshtein(void) {
    enum { N = 2000 };
    static char s[N], t[N];
    static int row[N + 1];
    for (int i = 0; i < N; i++) s[i] = 'a' + random32() % 4, t[i] = 'a' + random32() % 4;
    for (;;) {
        for (int j = 0; j <= N; j++) row[j] = j;
        for (int i = 0; i < N; i++) {
            int diagonal = row[0]++;
            for (int j = 0; j < N; j++) {
                int best = diagonal + (s[i] != t[j]);
                diagonal = row[j + 1];
                if (diagonal + 1 < best) best = diagonal + 1;
                if (row[j] + 1 < best) best = row[j] + 1;
                row[j + 1] = best;
            }
        }
        sink = row[N];
    }
}

static void hash(void) {
    enum { N = 1 << 20 };
    static uint64_t keys[N];
    for (uint64_t x = 1;; x++) {
        uint64_t k = x * 0x9e3779b97f4a7c15u, at = k >> 44;
        while (keys[at] && keys[at] != k) at = (at + 1) % N;
        keys[at] = k;
        if (x % (N / 2) == 0) memset(keys, 0, sizeof keys);
    }
}

static void queens(void) {
    long solutions = 0;
    int at[16], column = 0;
    for (at[0] = -1;;) {
        int row = ++at[column], ok = 1;
        if (row == 10) {
            if (--column < 0) column = 0, at[0] = -1, sink = solutions;
            continue;
        }
        for (int i = 0; i < column && ok; i++)
            ok = at[i] != row && abs(at[i] - row) != column - i;
        if (!ok) continue;
        if (column == 9) solutions++;
        else at[++column] = -1;
    }
}

static int by_int(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void qsort_int(void) {
    static int a[200000];
    for (;;) {
        for (int i = 0; i < 200000; i++) a[i] = random32();
        qsort(a, 200000, sizeof *a, by_int);
        sink = a[0];
    }
}

static int by_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void qsort_double(void) {
    static double a[200000];
    for (;;) {
        for (int i = 0; i < 200000; i++) a[i] = unit();
        qsort(a, 200000, sizeof *a, by_double);
        sink = a[0];
    }
}

static void text(void) {
    static char data[1 << 20];
    for (size_t i = 0; i < sizeof data - 1; i++) data[i] = random32() % 40 ? 'a' + random32() % 26 : '\n';
    for (;;) {
        size_t words = 0;
        for (char *line = data, *end; (end = strchr(line, '\n')); line = end + 1)
            words += memchr(line, 'q', end - line) != NULL;
        sink = words;
    }
}

static void copy(void) {
    static char a[1 << 22], b[1 << 22];
    for (size_t n = 0;; n += 4099) memcpy(a + n % 1000, b, sizeof a - 1000 - n % 3000);
}

static void int_vm(void) {
    static const unsigned char code[] = {0, 1, 2, 3, 4, 1, 5, 3, 6, 2, 7, 0, 4, 8};
    uint64_t a = 1, b = 2, c = 3;
    for (int pc = 0;; pc++) switch (code[pc]) {
        case 0: a += b; break;
        case 1: b ^= a >> 7; break;
        case 2: c = a * 31 + b; break;
        case 3: a = c - b; break;
        case 4: b = b << 5 | b >> 59; break;
        case 5: if (a & 1) c++; break;
        case 6: a ^= c; break;
        case 7: b += c; break;
        case 8: pc = -1, sink = a; break;
        }
}

static void float_vm(void) {
    static const unsigned char code[] = {0, 1, 2, 3, 4, 1, 5, 3, 6, 2, 7, 0, 4, 8};
    double stack[16] = {1, 2, 3};
    int top = 3;
    for (int pc = 0;; pc++) switch (code[pc]) {
        case 0: stack[top++] = .5; break;
        case 1: stack[top - 2] += stack[top - 1]; break;
        case 2: stack[top - 1] *= .99; break;
        case 3: stack[top++] = 1e-3; break;
        case 4: top--; stack[top - 1] -= stack[top]; break;
        case 5: stack[top - 1] = stack[0]; break;
        case 6: if (stack[top - 1] < 0) stack[top - 1] = 1; break;
        case 7: stack[top - 1] += stack[1]; break;
        case 8: pc = -1, top = 3, sink = stack[2]; break;
        }
}

static void nbody(void) {
    enum { N = 5 };
    static double x[N][3], v[N][3], m[N];
    for (int i = 0; i < N; i++) {
        m[i] = unit();
        for (int k = 0; k < 3; k++) x[i][k] = unit(), v[i][k] = unit() - .5;
    }
    for (;;) {
        for (int i = 0; i < N; i++)
            for (int j = i + 1; j < N; j++) {
                double d[3], r = 1e-3;
                for (int k = 0; k < 3; k++) d[k] = x[i][k] - x[j][k], r += d[k] * d[k];
                double f = .001 / (r * sqrt(r));
                for (int k = 0; k < 3; k++) v[i][k] -= d[k] * m[j] * f, v[j][k] += d[k] * m[i] * f;
            }
        for (int i = 0; i < N; i++)
            for (int k = 0; k < 3; k++) x[i][k] += .001 * v[i][k];
        sink = x[0][0];
    }
}

static void mandelbrot(void) {
    for (;;) {
        int inside = 0;
        for (int i = 0; i < 300; i++)
            for (int j = 0; j < 300; j++) {
                double cr = i / 150. - 1.5, ci = j / 150. - 1, r = 0, t = 0;
                int n = 0;
                while (n < 100 && r * r + t * t < 4) {
                    double s = r * r - t * t + cr;
                    t = 2 * r * t + ci, r = s, n++;
                }
                inside += n == 100;
            }
        sink = inside;
    }
}

static void sparse(void) {
    enum { N = 100000, K = 8 };
    static int column[N][K];
    static double value[N][K], x[N], y[N];
    for (int i = 0; i < N; i++)
        for (int k = 0; k < K; k++) column[i][k] = random32() % N, value[i][k] = unit();
    for (x[0] = 1;;) {
        double norm = 0;
        for (int i = 0; i < N; i++) {
            double s = 0;
            for (int k = 0; k < K; k++) s += value[i][k] * x[column[i][k]];
            y[i] = s, norm += s * s;
        }
        for (int i = 0; i < N; i++) x[i] = y[i] / sqrt(norm);
        sink = x[7];
    }
}

static void black_scholes(void) {
    for (;;) {
        double sum = 0;
        for (int i = 0; i < 10000; i++) {
            double s = 50 + unit() * 50, k = 50 + unit() * 50, t = unit() + .1, v = .3;
            double d = (log(s / k) + v * v / 2 * t) / (v * sqrt(t));
            sum += s * .5 * erfc(-d / M_SQRT2) - k * exp(-.01 * t) * .5 * erfc((v * sqrt(t) - d) / M_SQRT2);
        }
        sink = sum;
    }
}

static void kmeans(void) {
    enum { N = 20000, K = 8, D = 4 };
    static float p[N][D], c[K][D];
    for (int i = 0; i < N * D; i++) p[0][i] = unit();
    for (;;) {
        float sum[K][D] = {{0}};
        int count[K] = {0};
        for (int i = 0; i < N; i++) {
            int best = 0;
            float least = 1e9f;
            for (int k = 0; k < K; k++) {
                float d = 0;
                for (int j = 0; j < D; j++) d += (p[i][j] - c[k][j]) * (p[i][j] - c[k][j]);
                if (d < least) least = d, best = k;
            }
            count[best]++;
            for (int j = 0; j < D; j++) sum[best][j] += p[i][j];
        }
        for (int k = 0; k < K; k++)
            for (int j = 0; j < D; j++) c[k][j] = count[k] ? sum[k][j] / count[k] : (float)unit();
        sink = c[0][0];
    }
}

typedef double function(double);
static double half(double x) { return x * .5; }
static double square(double x) { return x * x; }
static double shift(double x) { return x + 1; }
static double invert(double x) { return 1 / (x + 2); }

static void pointers(void) {
    function *functions[] = {half, square, shift, invert};
    for (double x = 1;; sink = x)
        for (int i = 0; i < 1000; i++) x = functions[random32() >> 30](x);
}

static void stencil(void) {
    enum { N = 64 };
    static float a[N][N][N], b[N][N][N];
    for (a[32][32][32] = 1;;) {
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                for (int k = 1; k < N - 1; k++)
                    b[i][j][k] = .4f * a[i][j][k] + .1f * (a[i - 1][j][k] + a[i + 1][j][k] + a[i][j - 1][k] +
                                                           a[i][j + 1][k] + a[i][j][k - 1] + a[i][j][k + 1]);
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                for (int k = 1; k < N - 1; k++) a[i][j][k] = b[i][j][k];
        sink = a[10][10][10];
    }
}

static void monte_carlo(void) {
    for (long inside = 0;; sink = inside)
        for (int i = 0; i < 100000; i++) {
            double x = unit(), y = unit();
            inside += x * x + y * y < 1;
        }
}

static void parse(void) {
    static char text[200000];
    size_t length = 0;
    while (length < sizeof text - 32) length += sprintf(text + length, "%.6f ", unit() * 1000);
    for (;;) {
        double sum = 0;
        for (char *at = text, *end;; at = end) {
            double value = strtod(at, &end);
            if (end == at) break;
            sum += value;
        }
        sink = sum;
    }
}

static void tree(void) {
    struct node { struct node *left, *right; uint32_t key; } *nodes = calloc(1 << 20, sizeof *nodes);
    for (;;) {
        size_t used = 1;
        memset(nodes, 0, sizeof *nodes);
        nodes->key = 1u << 31;
        while (used < 1 << 18) {
            uint32_t key = random32();
            struct node *at = nodes, **next;
            while (*(next = key < at->key ? &at->left : &at->right)) at = *next;
            *next = &nodes[used++];
            **next = (struct node){0, 0, key};
        }
        sink = used;
    }
}

#define KERNEL(name) {#name, name}
static const struct { const char *name; void (*run)(void); } kernels[] = {
    KERNEL(crc), KERNEL(life), KERNEL(levenshtein), KERNEL(hash), KERNEL(queens), KERNEL(qsort_int),
    KERNEL(qsort_double), KERNEL(text), KERNEL(copy), KERNEL(int_vm), KERNEL(float_vm), KERNEL(nbody),
    KERNEL(mandelbrot), KERNEL(sparse), KERNEL(black_scholes), KERNEL(kmeans), KERNEL(pointers),
      KERNEL(stencil),
    KERNEL(monte_carlo), KERNEL(parse), KERNEL(tree),
};

int main(int count, char **arguments) {
    for (size_t i = 0; count == 2 && i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(arguments[1], kernels[i].name)) kernels[i].run();
    fprintf(stderr, "no such kernel\n");
    return 2;
}
