// Floating-point and integer work behind calls and jumps that only the running program knows:
// indirect virtual|pointer|table|copy|sort|map computes for ever.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

static volatile double sink;

struct Step {
    virtual double operator()(double) const = 0;
    virtual ~Step() = default;
};
template <int N> struct Scale : Step {
    double operator()(double x) const override { return x * (1 + .01 * N) - .5; }
};

static void through_virtual() {
    std::vector<std::unique_ptr<Step>> steps;
    steps.push_back(std::make_unique<Scale<1>>());
    steps.push_back(std::make_unique<Scale<-2>>());
    steps.push_back(std::make_unique<Scale<0>>());
    for (double x = 1;; sink = x)
        for (int i = 0; i < 999; i++) x = (*steps[i % 3])(x);
}

__attribute__((noinline)) static void axpy(double *x, double by) {
    for (int i = 0; i < 64; i++) x[i] = x[i] * by + .5;
}
__attribute__((noinline)) static void rotate(double *x, double by) {
    for (int i = 1; i < 64; i++) x[i] -= by * x[i - 1];
}

static void through_pointer() {
    double x[64] = {1};
    void (*volatile functions[])(double *, double) = {axpy, rotate};
    for (unsigned i = 0;; i++) functions[i % 2](x, .99), sink = x[3];
}

static void through_table() {
    static unsigned char code[4096];
    for (auto &op : code) op = std::rand() % 7;
    double a = 1, b = 2;
    long n = 0;
    for (unsigned pc = 0;; pc++) switch (code[pc % 4096]) {
        case 0: a = a * .5 + b; break;
        case 1: n += pc; break;
        case 2: b -= a * .1; break;
        case 3: n ^= pc >> 3; break;
        case 4: a = b / (a * a + 1); break;
        case 5: n = n << 3 | n >> 61; break;
        case 6: sink = a, n++; break;
        }
}

static void copy() {
    static char a[1 << 16], b[1 << 16];
    for (unsigned i = 0;; i++) std::memcpy(a + i % 64, b, 4000 + i % 128), sink = a[i % 100];
}

static void sort() {
    std::mt19937 generator(1);
    std::vector<std::pair<long, long>> all(100000);
    for (;;) {
        for (auto &each : all) each = {generator(), generator()};
        std::stable_sort(all.begin(), all.end());
        sink = all[0].first;
    }
}

static void map() {
    std::mt19937 generator(1);
    for (;;) {
        std::unordered_map<unsigned, unsigned> counts;
        for (int i = 0; i < 200000; i++) counts[generator() % 99999]++;
        sink = counts.size();
    }
}

int main(int, char **arguments) {
    switch (arguments[1][0]) {
    case 'v': through_virtual();
    case 'p': through_pointer();
    case 't': through_table();
    case 'c': copy();
    case 's': sort();
    case 'm': map();
    }
}
