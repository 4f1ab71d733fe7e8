// Kernels in C++ that the rules have not seen: kernels++ NAME computes one of them for ever.
#include <algorithm>
#include <any>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <unordered_set>
#include <valarray>
#include <variant>
#include <vector>

static volatile double sink;
static std::mt19937 random_bits(5);

struct Expression { virtual double value(double x) const = 0; virtual ~Expression() = default; };
using Pointer = std::unique_ptr<Expression>;
struct Number : Expression { double v; Number(double v) : v(v) {} double value(double) const override { return v; } };
struct Variable : Expression { double value(double x) const override { return x; } };
template <class F> struct Binary : Expression {
    Pointer l, r;
    Binary(Pointer l, Pointer r) : l(std::move(l)), r(std::move(r)) {}
    double value(double x) const override { return F()(l->value(x), r->value(x)); }
};
static Pointer tree(int depth) {
    if (depth == 0) { if (random_bits() & 1) return std::make_unique<Variable>(); return std::make_unique<Number>(.5); }
    if (random_bits() & 1) return std::make_unique<Binary<std::plus<>>>(tree(depth - 1), tree(depth - 1));
    return std::make_unique<Binary<std::multiplies<>>>(tree(depth - 1), tree(depth - 1));
}
static void expressions() { auto t = tree(8); for (double x = 0;; x += 1e-9) sink = t->value(x); }

struct Animal { virtual long act(long n) = 0; virtual ~Animal() = default; };
struct Cat : Animal { long act(long n) override { return n * 31 ^ n >> 7; } };
struct Dog : Animal { long lives = 0; long act(long n) override { return n + ++lives; } };
struct Owl : Animal { long act(long n) override { return n << 1 | (n < 0); } };
static void animals() {
    std::vector<std::unique_ptr<Animal>> all;
    for (int i = 0; i < 1000; i++) switch (random_bits() % 3) {
        case 0: all.push_back(std::make_unique<Cat>()); break;
        case 1: all.push_back(std::make_unique<Dog>()); break;
        default: all.push_back(std::make_unique<Owl>());
    }
    for (long n = 1;;) { for (auto &a : all) n = a->act(n); sink = n; }
}
static void valarrays() {
    std::valarray<double> x(1000), y(1000);
    std::iota(std::begin(x), std::end(x), 0);
    for (;;) { y = std::sin(x) * .5 + x * x; sink = y.sum(); x = x + 1e-6; }
}
static void streams() { for (int i = 0;; i++) { std::ostringstream s; s << i << ' ' << i * .37 << ' ' << std::hex << i; sink = s.str().size(); } }
static void deques() { for (;;) { std::deque<int> d; for (int i = 0; i < 10000; i++) { d.push_back(i); if (i % 3 == 0) d.pop_front(); } sink = d.size(); } }
static void sets() { for (;;) { std::set<std::string> s; for (int i = 0; i < 5000; i++) s.insert(std::to_string(random_bits() % 100000)); sink = s.size(); } }
static void variants() {
    std::vector<std::variant<int, double, std::string>> all;
    for (int i = 0; i < 1000; i++) if (i % 3) all.push_back(i * .5); else all.push_back(i);
    for (;;) { double sum = 0; for (auto &v : all) sum += std::visit([](auto &x) -> double { if constexpr (std::is_arithmetic_v<std::decay_t<decltype(x)>>) return x * 1.5; else return x.size(); }, v); sink = sum; }
}
static void normal() { std::normal_distribution<> d; for (;;) sink = d(random_bits); }
static void dijkstra() {
    const int n = 2000;
    std::vector<std::vector<std::pair<int, int>>> edges(n);
    for (int i = 0; i < n * 5; i++) edges[random_bits() % n].push_back({random_bits() % n, random_bits() % 100});
    for (int from = 0;; from = (from + 1) % n) {
        std::vector<int> distance(n, 1 << 30);
        std::set<std::pair<int, int>> open{{0, from}};
        distance[from] = 0;
        while (!open.empty()) {
            auto [d, at] = *open.begin();
            open.erase(open.begin());
            for (auto [to, length] : edges[at]) if (d + length < distance[to]) { open.erase({distance[to], to}); distance[to] = d + length; open.insert({d + length, to}); }
        }
        sink = distance[n - 1];
    }
}
int main(int argc, char **argv) {
    std::string name = argc > 1 ? argv[1] : "";
    if (name == "expressions") expressions();
    if (name == "animals") animals();
    if (name == "valarrays") valarrays();
    if (name == "streams") streams();
    if (name == "deques") deques();
    if (name == "sets") sets();
    if (name == "variants") variants();
    if (name == "normal") normal();
    if (name == "dijkstra") dijkstra();
    return 2;
}
