// Kernels of programs that the rules have not seen, in C++: kernels++ NAME computes one of them for ever.
#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

static volatile double sink;
static std::mt19937 generator(1);

static void map() {
    for (;;) {
        std::map<unsigned, unsigned> counts;
        for (int i = 0; i < 100000; i++) counts[generator() % 50000]++;
        sink = counts.size();
    }
}

static void strings() {
    for (;;) {
        std::unordered_map<std::string, int> counts;
        for (int i = 0; i < 100000; i++) counts["key " + std::to_string(generator() % 5000)]++;
        sink = counts.size();
    }
}

static void sort_ints() {
    std::vector<unsigned> values(200000);
    for (;;) {
        std::generate(values.begin(), values.end(), std::ref(generator));
        std::sort(values.begin(), values.end());
        sink = values[0];
    }
}

static void sort_doubles() {
    std::vector<double> values(200000);
    for (;;) {
        for (double &value : values) value = generator();
        std::sort(values.begin(), values.end());
        sink = values[0];
    }
}

static void regex() {
    const std::regex pattern("([a-z]+)@([a-z]+)\\.(com|org)");
    const std::string text = "someone@somewhere.org wrote to nobody at nowhere and to another@place.com";
    for (;;) sink = std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), {});
}

struct Shape {
    virtual double area() const = 0;
    virtual void grow(double by) = 0;
    virtual ~Shape() = default;
};
struct Circle : Shape {
    double r = 1;
    double area() const override { return 3.14159 * r * r; }
    void grow(double by) override { r = r * by + 1e-9; }
};
struct Square : Shape {
    double side = 2;
    double area() const override { return side * side; }
    void grow(double by) override { side = side * by + 1e-9; }
};

static void shapes() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 1000; i++)
        if (generator() % 2) shapes.push_back(std::make_unique<Circle>());
        else shapes.push_back(std::make_unique<Square>());
    for (double by = .999;; by = 2 - by) {
        double sum = 0;
        for (auto &shape : shapes) shape->grow(by), sum += shape->area();
        sink = sum;
    }
}

static void functions() {
    std::vector<std::function<double(double)>> all;
    for (double factor : {.5, .9, 1.1, 1.5}) all.push_back([=](double x) { return x * factor + .1; });
    for (double x = 1;; sink = x)
        for (int i = 0; i < 1000; i++) x = all[i % 4](x) / 1.05;
}

static void complex() {
    std::vector<std::complex<double>> values(4096, {1, .5});
    for (;;) {
        std::complex<double> sum;
        for (auto &value : values) value = value * std::polar(1.0, .001) + .001, sum += value / (1.0 + sum);
        sink = sum.real();
    }
}

static void visitors() {
    struct Node { virtual long visit(long) const = 0; };
    struct Add : Node { long visit(long x) const override { return x + 7; } };
    struct Xor : Node { long visit(long x) const override { return x ^ (x >> 3); } };
    const Add add{};
    const Xor exclusive{};
    std::vector<const Node *> nodes;
    for (int i = 0; i < 1000; i++) nodes.push_back(generator() % 2 ? static_cast<const Node *>(&add) : &exclusive);
    for (long x = 1;; sink = x)
        for (auto node : nodes) x = node->visit(x);
}

int main(int count, char **arguments) {
    const std::map<std::string, void (*)()> kernels = {
        {"map", map}, {"strings", strings}, {"sort_ints", sort_ints}, {"sort_doubles", sort_doubles},
        {"regex", regex}, {"shapes", shapes}, {"functions", functions}, {"complex", complex}, {"visitors", visitors}};
    if (count == 2 && kernels.count(arguments[1])) kernels.at(arguments[1])();
    std::fprintf(stderr, "no such kernel\n");
    return 2;
}
