/* Stands in for milc: products of complex 3x3 matrices with vectors over a four-dimensional lattice that does
 * not fit the caches, the main loop of lattice QCD; written for this study. */
#include <stdlib.h>

typedef struct { double re, im; } complex_t;
typedef struct { complex_t e[3][3]; } matrix_t;
typedef struct { complex_t c[3]; } vector_t;

enum { SIZE = 16, SITES = SIZE * SIZE * SIZE * SIZE };
static matrix_t (*link)[4];
static vector_t *source, *result;

static __attribute__((noinline)) void multiply(const matrix_t *a, const vector_t *b, vector_t *c) {
    for (int i = 0; i < 3; i++) {
        complex_t sum = {0, 0};
        for (int j = 0; j < 3; j++) {
            sum.re += a->e[i][j].re * b->c[j].re - a->e[i][j].im * b->c[j].im;
            sum.im += a->e[i][j].re * b->c[j].im + a->e[i][j].im * b->c[j].re;
        }
        c->c[i] = sum;
    }
}

static __attribute__((noinline)) void add(vector_t *sum, const vector_t *term) {
    for (int i = 0; i < 3; i++) sum->c[i].re += term->c[i].re, sum->c[i].im += term->c[i].im;
}

int main(void) {
    link = malloc(sizeof *link * SITES);
    source = malloc(sizeof *source * SITES);
    result = calloc(SITES, sizeof *result);
    for (int i = 0; i < SITES * 4 * 18; i++) ((double *)link)[i] = (i % 97) / 97.0 - 0.5;
    for (int i = 0; i < SITES * 6; i++) ((double *)source)[i] = (i % 89) / 89.0 - 0.5;
    for (;;)
        for (int site = 0; site < SITES; site++)
            for (int direction = 0, stride = 1; direction < 4; direction++, stride *= SIZE) {
                vector_t product;
                multiply(&link[site][direction], &source[(site + stride) % SITES], &product);
                add(&result[site], &product);
            }
}
