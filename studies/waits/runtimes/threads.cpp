// Two threads that wait for each other after some 35 µs of work each, or for a lock that protects a short part of it:
// threads barrier|mutex|spin|std ROUNDS [uneven]. The primitives of POSIX threads, and std::barrier. With "uneven", one
// of the two works twenty times as long, and each tells in the file $TRUTH how much of its CPU time it waited.
#include "../../spinning/truth.h"
#include <barrier>
#include <pthread.h>
#include <string>
#include <thread>

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived_all = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t lock;
static std::barrier<> std_barrier(2);
static long arrived, taken;

static double work(double x, long steps) {
  for (long i = 0; i < steps; i++) x = x * 0.999999 + 1e-6;
  return x;
}
// A barrier of a mutex and a condition variable.
static void meet() {
  pthread_mutex_lock(&mutex);
  long met = (++arrived + 1) / 2;
  if (arrived == 2 * met) pthread_cond_signal(&arrived_all);
  while (arrived < 2 * met) pthread_cond_wait(&arrived_all, &mutex);
  pthread_mutex_unlock(&mutex);
}
static void wait(char kind) {
  if (kind == 'b') pthread_barrier_wait(&barrier);
  else if (kind == 'm') meet();
  else std_barrier.arrive_and_wait();
}

int main(int, char **arguments) {
  char kind = arguments[1][0] == 's' ? arguments[1][1] : arguments[1][0];
  long rounds = atol(arguments[2]);
  bool uneven = arguments[3];
  double last[2];
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  auto body = [=, &last](int me) {
    double x = me;
    for (long round = 0; round < rounds; round++) {
      bool spins = kind == 'p';
      x = work(x, spins ? uneven ? 100 : 1600 : uneven && me ? 400000 : 20000);
      if (uneven) wait_begin();
      if (spins) pthread_spin_lock(&lock);
      else wait(kind);
      if (uneven) wait_end();
      if (!spins) continue;
      taken += 1;
      x = work(x, uneven && me ? 40000 : 400);
      pthread_spin_unlock(&lock);
    }
    if (uneven) truth_tell();
    last[me] = x;
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  printf("%.12g %.12g %ld\n", last[0], last[1], taken);
}
