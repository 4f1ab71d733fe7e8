// Waits of other kinds than those that the rules were found with: held_out KIND [CPU_SECONDS].
#include "truth.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <immintrin.h>
#include <thread>

static double seconds = 1.5;
static volatile double sink;
static std::atomic<bool> done{false};

__attribute__((noinline)) static double work(long n) {
  double x = 1;
  for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5;
  return x;
}

struct FlagLock {
  std::atomic_flag flag = ATOMIC_FLAG_INIT;
  void lock() { while (flag.test_and_set(std::memory_order_acquire)); }
  void unlock() { flag.clear(std::memory_order_release); }
};
struct TicketLock {
  std::atomic<unsigned> next{0}, serving{0};
  void lock() {
    unsigned mine = next.fetch_add(1);
    for (;;) {
      unsigned ahead = mine - serving.load(std::memory_order_acquire);
      if (!ahead) return;
      for (unsigned i = 0; i < ahead * 20; i++) _mm_pause();
    }
  }
  void unlock() { serving.store(serving.load() + 1, std::memory_order_release); }
};
struct McsLock {
  struct Node { std::atomic<Node *> next{nullptr}; std::atomic<bool> locked{false}; };
  std::atomic<Node *> tail{nullptr};
  static thread_local Node node;
  void lock() {
    node.next = nullptr;
    node.locked = true;
    if (Node *before = tail.exchange(&node)) {
      before->next = &node;
      while (node.locked.load(std::memory_order_acquire));
    }
  }
  void unlock() {
    Node *expected = &node;
    if (!node.next && tail.compare_exchange_strong(expected, nullptr)) return;
    while (!node.next) _mm_pause();
    node.next.load()->locked.store(false, std::memory_order_release);
  }
};
thread_local McsLock::Node McsLock::node;
struct ReadWriteLock {
  std::atomic<int> state{0};
  void lock() {
    for (int expected = 0; !state.compare_exchange_weak(expected, -1, std::memory_order_acquire); expected = 0)
      _mm_pause();
  }
  void unlock() { state.store(0, std::memory_order_release); }
};

template <class Lock> static void lockers() {
  static Lock lock;
  auto body = [] {
    while (truth_elapsed() < seconds) {
      wait_begin();
      lock.lock();
      wait_end();
      sink = work(700000);
      lock.unlock();
      sink = work(2000);
    }
    truth_tell();
  };
  std::thread other(body);
  body();
  other.join();
}

// A bounded ring: the producer works longer than the consumer, which waits.
static std::atomic<long> head{0}, tail{0};
static long ring[256];
static void consume_ring() {
  while (!done) {
    wait_begin();
    while (tail.load(std::memory_order_relaxed) == head.load(std::memory_order_acquire) && !done);
    wait_end();
    sink = work(ring[tail % 256]);
    tail.store(tail + 1, std::memory_order_release);
  }
}
static std::atomic<unsigned> version{0};
static std::atomic<long> data_a{0};
static void read_versions() {
  unsigned last = 0;
  while (!done) {
    wait_begin();
    unsigned now;
    do { now = version.load(std::memory_order_acquire); } while ((now == last || now & 1) && !done);
    wait_end();
    last = now;
    sink = work(data_a);
  }
}
struct Source { virtual bool ready() = 0; virtual ~Source() = default; };
struct RingSource : Source { bool ready() override { return head != tail; } };
static Source *volatile source = new RingSource;
static void poll_virtual() {
  while (!done) {
    wait_begin();
    while (!source->ready() && !done) _mm_pause();
    wait_end();
    sink = work(50000);
    tail.store(head.load());
  }
}
static void poll_until() {
  while (!done) {
    wait_begin();
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (head == tail && !done && std::chrono::steady_clock::now() < until);
    wait_end();
    sink = work(50000);
    tail.store(head.load());
  }
}
static std::atomic<int> arrived{0};
static std::atomic<int> sense{0};
static void own_barrier() {
  int mine = !sense.load();
  wait_begin();
  if (arrived.fetch_add(1) == 1) { arrived = 0; sense = mine; }
  else for (int spins = 0; sense.load(std::memory_order_acquire) != mine; spins++)
    if (spins > 1000) { _mm_pause(); }
  wait_end();
}
static void barriers() {
  auto body = [](long mine) {
    for (int i = 0; i < 400; i++) { sink = work(mine); own_barrier(); }
    truth_tell();
  };
  std::thread other(body, 300000L);
  body(1500000L);
  other.join();
}
static void with_consumer(void (*consumer)()) {
  std::thread other([=] { consumer(); truth_tell(); });
  while (truth_elapsed() < seconds) {
    sink = work(1500000);
    wait_begin();
    while (head - tail >= 256) {}
    wait_end();
    ring[head % 256] = 100000;
    data_a = 100000;
    version += 2;
    head++;
  }
  done = true;
  other.join();
  truth_tell();
}

int main(int argc, char **argv) {
  std::string kind = argc > 1 ? argv[1] : "";
  if (argc > 2) seconds = atof(argv[2]);
  if (kind == "flag_lock") lockers<FlagLock>();
  else if (kind == "ticket_lock") lockers<TicketLock>();
  else if (kind == "mcs_lock") lockers<McsLock>();
  else if (kind == "rw_lock") lockers<ReadWriteLock>();
  else if (kind == "ring") with_consumer(consume_ring);
  else if (kind == "versions") with_consumer(read_versions);
  else if (kind == "virtual") with_consumer(poll_virtual);
  else if (kind == "until") with_consumer(poll_until);
  else if (kind == "barrier") barriers();
  else return 2;
}
