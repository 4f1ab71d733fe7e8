// Waits and work that the rules have not seen: unseen KIND [CPU_SECONDS]. In each, one thread makes something now and
// then and the other waits for it; or, the kinds of `works`, all threads work.
#include "truth.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <immintrin.h>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

static double seconds = 1.5;
static volatile double sink;
static volatile long result;
static std::atomic<long> made{0}, taken{0};
static std::atomic<bool> done{false};

__attribute__((noinline)) static double work(long n) {
  double x = 1;
  for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5;
  return x;
}

// Waits, each until something is made or all is done.
static bool idle() { return made.load(std::memory_order_acquire) == taken.load(std::memory_order_relaxed) && !done; }
static void wait_clock() {
  timespec now, until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += 9;
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while (idle() && now.tv_sec < until.tv_sec);
}
static char state_name[32] = "idle";
static void wait_strcmp() { while (strcmp(state_name, "ready") != 0 && !done); }
static std::string state_text = "the queue is idle for now";
static void wait_string() { const std::string ready = "the queue is ready at last"; while (state_text != ready && !done) std::atomic_signal_fence(std::memory_order_seq_cst); }
static bool (*volatile test)() = idle;
static void wait_pointer() { while (test()); }
struct Port { virtual bool empty() const = 0; virtual ~Port() = default; };
struct OnePort : Port { bool empty() const override { return idle(); } };
static Port *volatile port = new OnePort;
static void wait_virtual() { while (port->empty()); }
static void wait_function() { static std::function<bool()> empty = [] { return idle(); }; while (empty()); }
static void wait_yield() { while (idle()) std::this_thread::yield(); }
static std::mutex queue_mutex;
static std::deque<long> queue;
static void wait_locked_queue() {
  for (;;) {
    std::lock_guard<std::mutex> held(queue_mutex);
    if (!queue.empty() || done) { queue.clear(); return; }
  }
}
static void wait_try_lock() {
  while (!done) {
    if (queue_mutex.try_lock()) {
      bool is_empty = queue.empty();
      queue.clear();
      queue_mutex.unlock();
      if (!is_empty) return;
    }
    for (int i = 0; i < 10; i++) _mm_pause();
  }
}
static volatile double level = 0;
static void wait_double() { while (level < taken + 1.0 && !done); }
static void wait_exponential() {
  unsigned pauses = 4;
  while (idle()) {
    for (unsigned i = 0; i < pauses; i++) _mm_pause();
    pauses = std::min(pauses * 2, 1024u);
  }
}
static std::atomic<unsigned> bits{0};
static void wait_bits() { while (!(bits.fetch_and(~4u) & 4) && !done) _mm_pause(); }
static void wait_atomic() { long seen = taken; while (made == seen && !done) made.wait(seen); }
struct Slot { std::atomic<int> full{0}; char pad[60]; };
static Slot slots[16];
static void wait_slots() {
  for (;;) {
    for (auto &slot : slots) if (slot.full.load(std::memory_order_acquire)) { slot.full = 0; return; }
    if (done) return;
  }
}
static void wait_mutex_flag() {
  for (;;) { pthread_mutex_t *unused = nullptr; (void)unused; if (!idle()) return; __asm__ volatile("rep; nop; rep; nop; rep; nop" ::: "memory"); }
}
static void wait_chrono_slice() {
  while (idle()) { auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(5); while (std::chrono::steady_clock::now() < until); }
}

static void consume(void (*wait)()) {
  while (!done) {
    wait_begin();
    wait();
    wait_end();
    sink = work(60000);
    taken.store(made.load());
    strcpy(state_name, "idle");
    state_text = "the queue is idle for now";
    bits = 0;
  }
  truth_tell();
}
static void produce(void (*wait)()) {
  std::thread other(consume, wait);
  while (truth_elapsed() < seconds) {
    sink = work(1500000);
    made++;
    made.notify_all();
    level = made;
    strcpy(state_name, "ready");
    state_text = "the queue is ready at last";
    bits |= 4;
    slots[11].full = 1;
    std::lock_guard<std::mutex> held(queue_mutex);
    queue.push_back(made);
  }
  done = true;
  made++;
  made.notify_all();
  other.join();
  truth_tell();
}

// Work that looks like waiting.
static void works_timed() {
  long items = 0;
  timespec now;
  do { for (int i = 0; i < 20; i++) items = items * 31 + i; clock_gettime(CLOCK_MONOTONIC, &now); items ^= now.tv_nsec; } while (items != 42 && truth_elapsed() < seconds);
  result = items;
}
static void works_memcmp() {
  static std::vector<std::string> names;
  if (names.empty()) for (int i = 0; i < 3000; i++) names.push_back("a longer name with number " + std::to_string(i));
  const std::string last = names.back();
  for (int k = 0; k < 20; k++) for (auto &name : names) if (name == last) result = &name - &names[0];
}
static void works_virtual() {
  struct Cell : Port { long n = 0; bool empty() const override { return n > 100; } };
  static std::vector<std::unique_ptr<Cell>> cells;
  if (cells.empty()) for (int i = 0; i < 1000; i++) { cells.push_back(std::make_unique<Cell>()); cells.back()->n = i % 50; }
  for (int k = 0; k < 200; k++) for (auto &cell : cells) if (((Port *)cell.get())->empty()) result = 1;
}
static void works_mutex() { static std::mutex own; static double value = 1; for (int i = 0; i < 100000; i++) { std::lock_guard<std::mutex> held(own); value = value * 1.0000001 + .5; } sink = value; }
static void works_counter() { static std::atomic<long> hits; for (int i = 0; i < 300000; i++) hits++; result = hits; }
static void works_map() { static std::map<int, int> map; for (int i = 0; i < 20000; i++) map[i * 7919 % 1000]++; result = map.size(); }
static void works_ring() {
  static std::atomic<long> head, tail;
  static long ring[64];
  for (int i = 0; i < 100000; i++) {
    if (head.load() - tail.load() < 64) { ring[head % 64] = i; head.fetch_add(1, std::memory_order_release); }
    if (tail.load() != head.load()) { result = ring[tail % 64] + result; tail.fetch_add(1); }
  }
}
static void works_scan() {
  static std::vector<unsigned> bytes(1 << 16, 0);
  for (int k = 0; k < 20; k++) { bytes[60000 + k] = 1; result = std::find(bytes.begin(), bytes.end(), 1u) - bytes.begin(); bytes[60000 + k] = 0; }
}
static void works_random() { static unsigned long x = 1; for (int i = 0; i < 300000; i++) x = x * 6364136223846793005ul + 1442695040888963407ul; result = x; }
static void works_seqlock() {
  static std::atomic<unsigned> version;
  static long a, b;
  for (int i = 0; i < 100000; i++) { unsigned v; long x; do { v = version.load(std::memory_order_acquire); x = a + b; } while (v & 1 || v != version.load()); result = result + x; a = i; }
}
static void works_futile() {
  // Looks for something that is not there, in a list that does not change: no wait, though nothing changes.
  struct Node { Node *next; long key; };
  static Node nodes[3000];
  for (int i = 0; i < 3000; i++) nodes[i] = {i < 2999 ? &nodes[i + 1] : nullptr, i};
  for (int k = 0; k < 30; k++) { Node *at = nodes; while (at && at->key != -1) at = at->next; result = at != nullptr; }
}
static void works_strings() { static std::string text; text.clear(); for (int i = 0; i < 2000; i++) text += std::to_string(i) + ","; result = std::count(text.begin(), text.end(), '7') + strlen(text.c_str()); }
static void works_cas_max() { static std::atomic<long> most; for (int i = 0; i < 100000; i++) { long seen = most.load(), mine = (seen * 31 + i) & 0xffff; while (seen < mine && !most.compare_exchange_weak(seen, mine)); if (i % 64 == 0) most = 0; } result = most; }

int main(int argc, char **argv) {
  std::string kind = argc > 1 ? argv[1] : "";
  if (argc > 2) seconds = atof(argv[2]);
  const std::map<std::string, void (*)()> waits = {
      {"clock", wait_clock}, {"strcmp", wait_strcmp}, {"string", wait_string}, {"pointer", wait_pointer},
      {"virtual", wait_virtual}, {"function", wait_function}, {"yield", wait_yield}, {"locked_queue", wait_locked_queue},
      {"try_lock", wait_try_lock}, {"double", wait_double}, {"exponential", wait_exponential}, {"bits", wait_bits},
      {"atomic_wait", wait_atomic}, {"slots", wait_slots}, {"pauses", wait_mutex_flag}, {"slices", wait_chrono_slice}};
  const std::map<std::string, void (*)()> works = {
      {"timed", works_timed}, {"memcmp", works_memcmp}, {"virtuals", works_virtual}, {"mutex", works_mutex},
      {"counter", works_counter}, {"map", works_map}, {"ring", works_ring}, {"scan", works_scan},
      {"random", works_random}, {"seqlock", works_seqlock}, {"futile", works_futile}, {"strings", works_strings},
      {"cas_max", works_cas_max}};
  if (waits.count(kind)) produce(waits.at(kind));
  else if (works.count(kind)) { while (truth_elapsed() < seconds) works.at(kind)(); truth_tell(); }
  else return 2;
}
