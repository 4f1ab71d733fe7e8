/* Threads that wait for each other in many ways: waits KIND [SECONDS]. Two threads: one works, and now and
 * then lets the other, which waits in the way KIND, go on for a little work of its own. */
#include "truth.h"
#include <pthread.h>
#include <string.h>
#include <immintrin.h>

static volatile int flag, turn, stop_all;
static volatile int *volatile where = &flag;
static int lock_word;
static pthread_spinlock_t spinlock;
static struct queue { volatile long head, tail; char pad[48]; } queues[4];
static volatile double sink;
static double seconds = 1.5;

static __attribute__((noinline)) double work(long n) {
  double x = 1;
  for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5;
  return x;
}
static __attribute__((noinline)) int ready(volatile int *p) { return *p != 0; }
static __attribute__((noinline)) void relax(void) { __builtin_ia32_pause(); }
static __attribute__((noinline)) void nops(int n) {
  for (int i = 0; i < n; i++) __asm__ volatile("nop");
}
static __attribute__((noinline)) int any_ready(void) {
  for (int i = 0; i < 4; i++)
    if (queues[i].head != queues[i].tail) return 1;
  return 0;
}

static void await_bare(void) { while (!flag); }
static void await_pause(void) { while (!flag) __builtin_ia32_pause(); }
static void await_pointer(void) { while (!*where); }
static void await_counter(void) {
  for (unsigned long count = 0; !flag; count++)
    if (count > 4000000000ul) { usleep(1); count = 0; }
}
static void await_counter_pause(void) {
  int count = 0;
  while (!flag) {
    if (++count > 1000000000) { usleep(1); count = 0; }
    __builtin_ia32_pause();
  }
}
static void await_nops(void) {
  while (!flag)
    for (int i = 0; i < 32; i++) __asm__ volatile("nop");
}
static void await_nop_call(void) { while (!flag) nops(50); }
static void await_backoff(void) {
  int delay = 1;
  while (!flag) {
    for (int i = 0; i < delay; i++) __builtin_ia32_pause();
    if (delay < 64) delay *= 2;
  }
}
static void await_call(void) { while (!ready(&flag)); }
static void await_call_relax(void) { while (!ready(&flag)) relax(); }
static void await_queues(void) {
  for (;;) {
    for (int i = 0; i < 4; i++)
      if (queues[i].head != queues[i].tail) return;
  }
}
static void await_queues_call(void) { while (!any_ready()); }
static void await_queues_pause(void) { while (!any_ready()) __builtin_ia32_pause(); }
static void await_several(void) {
  while (queues[0].head == queues[0].tail && queues[1].head == queues[1].tail && queues[2].head ==
    queues[2].tail &&
         queues[3].head == queues[3].tail);
}
static void await_tsc(void) {
  unsigned long long until = __builtin_ia32_rdtsc() + 400000000000ull;
  while (!flag && __builtin_ia32_rdtsc() < until);
}
static void await_fence(void) { while (!flag) __sync_synchronize(); }

static void take_cas(void) { while (!__sync_bool_compare_and_swap(&lock_word, 0, 1)) __builtin_ia32_pause(); }
static void take_ttas(void) {
  while (__atomic_exchange_n(&lock_word, 1, __ATOMIC_ACQUIRE))
    while (__atomic_load_n(&lock_word, __ATOMIC_RELAXED)) __builtin_ia32_pause();
}
static void take_bare(void) { while (__atomic_exchange_n(&lock_word, 1, __ATOMIC_ACQUIRE)); }
static void give(void) { __atomic_store_n(&lock_word, 0, __ATOMIC_RELEASE); }

static const struct { const char *name; void (*await)(void); } kinds[] = {
  {"bare", await_bare}, {"pause", await_pause}, {"pointer", await_pointer}, {"counter", await_counter},
  {"counter_pause", await_counter_pause}, {"nops", await_nops}, {"nop_call", await_nop_call},
  {"backoff", await_backoff}, {"call", await_call}, {"call_relax", await_call_relax}, {"queues",
    await_queues},
  {"queues_call", await_queues_call}, {"queues_pause", await_queues_pause}, {"several", await_several},
  {"tsc", await_tsc}, {"fence", await_fence},
};
static void (*await)(void);
static long mine = 200000;

static void *waiter(void *unused) {
  (void)unused;
  while (!stop_all) {
    wait_begin();
    await();
    wait_end();
    flag = 0;
    queues[2].tail = queues[2].head;
    sink = work(mine);
    turn = 1;
  }
  truth_tell();
  return NULL;
}

static void (*take)(void), (*leave)(void);
static void take_pthread(void) { pthread_spin_lock(&spinlock); }
static void leave_pthread(void) { pthread_spin_unlock(&spinlock); }

/* Both threads take a lock and hold it while they work: each waits half of the time. */
static void *locker(void *unused) {
  (void)unused;
  while (truth_elapsed() < seconds) {
    wait_begin();
    take();
    wait_end();
    sink = work(1000000);
    leave();
    sink = work(1000);
  }
  truth_tell();
  return NULL;
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "bare";
  if (argc > 2) seconds = atof(argv[2]);
  pthread_t other;
  pthread_spin_init(&spinlock, 0);
  if (!strncmp(kind, "lock_", 5)) {
    leave = give;
    if (!strcmp(kind, "lock_cas")) take = take_cas;
    else if (!strcmp(kind, "lock_ttas")) take = take_ttas;
    else if (!strcmp(kind, "lock_bare")) take = take_bare;
    else take = take_pthread, leave = leave_pthread;
    pthread_create(&other, NULL, locker, NULL);
    locker(NULL);
    pthread_join(other, NULL);
    return 0;
  }
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kind, kinds[i].name)) await = kinds[i].await;
  if (!await) return 2;
  if (argc > 3) mine = atol(argv[3]);
  pthread_create(&other, NULL, waiter, NULL);
  while (truth_elapsed() < seconds) {
    sink = work(1000000);
    flag = 1;
    queues[2].head++;
    sink = work(1000000);
  }
  stop_all = 1;
  flag = 1;
  queues[2].head++;
  pthread_join(other, NULL);
  truth_tell();
  return 0;
}
