/* Every thread says in the end how much of its CPU time it has waited: a line "TID WAITED TOTAL" (seconds) in
 * the file $TRUTH. Waiting is what lies between wait_begin and wait_end. */
#ifndef TRUTH_H
#define TRUTH_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread double truth_waited, truth_since;

static double truth_cpu_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

static inline void wait_begin(void) { truth_since = truth_cpu_time(); }
static inline void wait_end(void) { truth_waited += truth_cpu_time() - truth_since; }

static void truth_tell(void) {
  const char *path = getenv("TRUTH");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%ld %.6f %.6f\n", syscall(SYS_gettid), truth_waited, truth_cpu_time());
  fclose(file);
}

/* Seconds of CPU time that the process has used. */
static inline double truth_elapsed(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}
#endif
