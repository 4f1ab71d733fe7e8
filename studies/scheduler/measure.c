// What the system's scheduler does, in counts and shares: see README.md. gcc -O2 -static -o measure measure.c
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 };
static pid_t children[MOST];
static int count;

static double seconds(clockid_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now)) return 0;
  return now.tv_sec + now.tv_nsec / 1e9;
}
static double cpu_seconds(pid_t pid) {
  clockid_t clock;
  return clock_getcpuclockid(pid, &clock) ? 0 : seconds(clock);
}
static void rest(double time) {
  struct timespec span = {(time_t)time, (long)((time - (time_t)time) * 1e9)};
  nanosleep(&span, NULL);
}
// Starts a process that computes for ever; with a session it has one of its own, with a file it joins that
// cgroup.
static pid_t hog(int nice_level, int session, const char *procs) {
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (session) setsid();
    if (procs) {
      FILE *file = fopen(procs, "w");
      if (!file || fprintf(file, "%d", getpid()) < 0 || fclose(file)) perror(procs), _exit(1);
    }
    setpriority(PRIO_PROCESS, 0, nice_level);
    for (volatile unsigned long x = 0;; x++) {}
  }
  children[count++] = pid;
  return pid;
}
static void end(void) {
  for (int i = 0; i < count; i++) kill(children[i], SIGKILL);
  for (int i = 0; i < count; i++) waitpid(children[i], NULL, 0);
  count = 0;
}

// shares THREADS ROUNDS: each thread's share of the mean after 1, 5 and 20 s, least and most.
static void shares(int threads, int rounds) {
  const double at[] = {1, 5, 20};
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < threads; i++) hog(0, 0, NULL);
    double begun = seconds(CLOCK_MONOTONIC);
    for (int k = 0; k < 3; k++) {
      rest(begun + at[k] - seconds(CLOCK_MONOTONIC));
      double sum = 0, least = 1e9, most = 0;
      for (int i = 0; i < threads; i++) {
        double cpu = cpu_seconds(children[i]);
        sum += cpu;
        least = cpu < least ? cpu : least;
        most = cpu > most ? cpu : most;
      }
      printf("shares %d %g %.3f %.3f\n", threads, at[k], least * threads / sum, most * threads / sum);
    }
    fflush(stdout);
    end();
  }
}

// pinned THREADS ROUNDS: so many threads and one that is pinned to PE 0, on two PEs for 20 s: the share of a
// PE that each of the free ones has, least and most.
static void pinned(int threads, int rounds) {
  for (int round = 0; round < rounds; round++) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    for (int i = 0; i <= threads; i++) hog(0, 0, NULL);
    sched_setaffinity(children[threads], sizeof first, &first);
    rest(20);
    double sum = 0, least = 1e9, most = 0;
    for (int i = 0; i <= threads; i++) {
      double cpu = cpu_seconds(children[i]);
      sum += cpu;
      if (i == threads) break;
      least = cpu < least ? cpu : least;
      most = cpu > most ? cpu : most;
    }
    printf("pinned %d %.3f %.3f\n", threads, 2 * least / sum, 2 * most / sum);
    fflush(stdout);
    end();
  }
}

// The core of a PE, by its first sibling.
static int core(int pe) {
  char path[99];
  int first = pe;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", pe);
  FILE *file = fopen(path, "r");
  if (file) fscanf(file, "%d", &first), fclose(file);
  return first;
}
static int last_pe(pid_t pid) {
  char path[99], text[999] = "", *at;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  fread(text, 1, sizeof text - 1, file);
  fclose(file);
  at = strrchr(text, ')');
  for (int field = 2; at && field < 39; field++) at = strchr(at + 1, ' ');
  return at ? atoi(at) : -1;
}
// pairs THREADS ROUNDS: of so many new threads, how many do not have a core of their own, 5 ms and 200 ms
// later.
static void pairs(int threads, int rounds) {
  const double at[] = {0.005, 0.2};
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < threads; i++) hog(0, 0, NULL);
    for (int k = 0; k < 2; k++) {
      rest(at[k]);
      int sharing = 0;
      for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) sharing += core(last_pe(children[i])) == core(last_pe(children[j]));
      printf("pairs %d %g %d\n", threads, at[k], sharing);
    }
    end();
    rest(0.05);
  }
  fflush(stdout);
}

// weights A B ROUNDS: the share of a hog of nice level A beside one of level B, on one PE after 5 s.
static void weights(int a, int b, int rounds) {
  for (int round = 0; round < rounds; round++) {
    pid_t first = hog(a, 0, NULL), second = hog(b, 0, NULL);
    rest(5);
    double mine = cpu_seconds(first), other = cpu_seconds(second);
    printf("weights %d %d %.3f\n", a, b, mine / (mine + other));
    end();
  }
  fflush(stdout);
}

// sessions N ROUNDS: the share of a session of one thread beside one of N, on one PE after 5 s.
static void sessions(int threads, int rounds) {
  for (int round = 0; round < rounds; round++) {
    pid_t first = hog(0, 1, NULL);
    pid_t leader = fork();
    if (leader == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setsid();
      count = 0;
      for (int i = 1; i < threads; i++) hog(0, 0, NULL);
      for (volatile unsigned long x = 0;; x++) {}
    }
    children[count++] = leader;
    double begun = seconds(CLOCK_MONOTONIC);
    rest(5);
    printf("sessions %d %.3f\n", threads, cpu_seconds(first) / (seconds(CLOCK_MONOTONIC) - begun));
    end();
  }
  fflush(stdout);
}

// groups PROCS_A N_A PROCS_B N_B ROUNDS: the share of the threads of group A; of all time if there is no B.
static void groups(const char *a, int threads_a, const char *b, int threads_b, int rounds) {
  for (int round = 0; round < rounds; round++) {
    double begun = seconds(CLOCK_MONOTONIC), mine = 0, other = 0;
    for (int i = 0; i < threads_a; i++) hog(0, 0, a);
    for (int i = 0; i < threads_b; i++) hog(0, 0, b);
    rest(5);
    for (int i = 0; i < count; i++) *(i < threads_a ? &mine : &other) += cpu_seconds(children[i]);
    double all = threads_b ? mine + other : seconds(CLOCK_MONOTONIC) - begun;
    printf("groups %d %d %.3f\n", threads_a, threads_b, mine / all);
    end();
  }
  fflush(stdout);
}

// latency HOGS WAKES: how late a sleeper of 1 ms runs beside so many hogs, in microseconds: quartiles, 99 %,
// most.
static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static void print_times(const char *what, int number, double *times, int n) {
  qsort(times, n, sizeof *times, by_size);
  printf("%s %d %.1f %.1f %.1f %.1f %.1f\n", what, number, times[n / 4], times[n / 2], times[3 * n / 4],
         times[99 * n / 100], times[n - 1]);
  fflush(stdout);
}
static void latency(int hogs, int wakes) {
  double *late = calloc(wakes, sizeof *late);
  prctl(PR_SET_TIMERSLACK, 1);
  for (int i = 0; i < hogs; i++) hog(0, 0, NULL);
  rest(0.5);
  for (int i = 0; i < wakes; i++) {
    double before = seconds(CLOCK_MONOTONIC);
    rest(0.001);
    late[i] = (seconds(CLOCK_MONOTONIC) - before - 0.001) * 1e6;
  }
  print_times("latency", hogs, late, wakes);
  end();
}

// handover HOGS ROUNDS: the time from a futex wake-up to the return of the sleeper, in microseconds.
static void futex(atomic_int *word, int op, int value) { syscall(SYS_futex, word, op, value, NULL, NULL, 0); }
static void handover(int hogs, int rounds) {
  struct { atomic_int next; double at; } *shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  double *times = calloc(rounds, sizeof *times);
  for (int i = 0; i < hogs; i++) hog(0, 0, NULL);
  pid_t other = fork();
  int me = other != 0;
  for (int i = 0; i < rounds; i++) {
    while (atomic_load(&shared->next) != me) futex(&shared->next, FUTEX_WAIT, !me);
    if (me) times[i] = (seconds(CLOCK_MONOTONIC) - shared->at) * 1e6;
    shared->at = seconds(CLOCK_MONOTONIC);
    atomic_store(&shared->next, !me);
    futex(&shared->next, FUTEX_WAKE, 1);
  }
  if (!me) _exit(0);
  print_times("handover", hogs, times + 1, rounds - 1);
  waitpid(other, NULL, 0);
  end();
}

// duty WORK_US SLEEP_US NICE HOGS ROUNDS [PROCS_DUTY PROCS_HOGS]: a thread works and sleeps by turns beside
// so many hogs: mean time of a round, and of its waits for a PE in a round, in milliseconds.
static double waited_ms(void) {
  unsigned long long ran, waited = 0;
  FILE *file = fopen("/proc/self/schedstat", "r");
  if (file && fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
  if (file) fclose(file);
  return waited / 1e6;
}
// Works for so many seconds without those in which it does not run: gaps between two looks at the time. To
// read the CPU time of the thread would let the kernel look at its slice.
static void work_for(double work) {
  double last = seconds(CLOCK_MONOTONIC);
  while (work > 0) {
    double now = seconds(CLOCK_MONOTONIC), passed = now - last;
    if (passed < 2e-5) work -= passed;
    last = now;
  }
}
static void duty(double work, double sleep, int nice_level, int hogs, int rounds, const char *mine,
                 const char *other) {
  for (int i = 0; i < hogs; i++) hog(0, 0, other);
  if (mine) {
    FILE *file = fopen(mine, "w");
    if (!file || fprintf(file, "%d", getpid()) < 0 || fclose(file)) perror(mine), exit(1);
  }
  prctl(PR_SET_TIMERSLACK, 1);
  setpriority(PRIO_PROCESS, 0, nice_level);
  rest(0.5);
  double begun = seconds(CLOCK_MONOTONIC), waited = waited_ms();
  for (int i = 0; i < rounds; i++) {
    work_for(work);
    rest(sleep);
  }
  double round = (seconds(CLOCK_MONOTONIC) - begun) * 1e3 / rounds;
  printf("duty %.3f %.3f\n", round, (waited_ms() - waited) / rounds);
  end();
}

int main(int argc, char **argv) {
  const char *what = argc > 3 ? argv[1] : "";
  int a = argc > 2 ? atoi(argv[2]) : 0, b = argc > 3 ? atoi(argv[3]) : 0;
  if (!strcmp(what, "shares")) shares(a, b);
  else if (!strcmp(what, "pinned")) pinned(a, b);
  else if (!strcmp(what, "pairs")) pairs(a, b);
  else if (!strcmp(what, "weights") && argc > 4) weights(a, b, atoi(argv[4]));
  else if (!strcmp(what, "sessions")) sessions(a, b);
  else if (!strcmp(what, "groups") && argc > 6) groups(argv[2], b, argv[4], atoi(argv[5]), atoi(argv[6]));
  else if (!strcmp(what, "latency")) latency(a, b);
  else if (!strcmp(what, "handover")) handover(a, b);
  else if (!strcmp(what, "duty") && argc > 6)
    duty(a / 1e6, b / 1e6, atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), argc > 8 ? argv[7] : NULL,
         argc > 8 ? argv[8] : NULL);
  else return fprintf(stderr, "see the comments of measure.c\n"), 2;
  return 0;
}
