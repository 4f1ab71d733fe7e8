/* Programs that never wait, though they look like it here and there: works KIND [SECONDS]. */
#include "truth.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <immintrin.h>

static double seconds = 1.5;
static int lock_word;
static pthread_spinlock_t spinlock;
static double value = 1;
static volatile long result;
static volatile int poll_flag;

#define WIDTH 200
static bool cells[2][WIDTH * WIDTH];
static int width = WIDTH, height = WIDTH;

static bool alive(bool *from, int y, int x) {
  if (y < 0 || x < 0 || y >= height || x >= width) return false;
  return from[y * width + x];
}
static void generation(bool *from, bool *to) {
  memset(to, 0, sizeof cells[0]);
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++) {
      int n = 0;
      for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
          if ((dy || dx) && alive(from, y + dy, x + dx)) n++;
      if (n == 3 || (n == 2 && alive(from, y, x))) to[y * width + x] = true;
    }
}
static void life(void) {
  static int phase;
  if (!phase) for (int i = 0; i < WIDTH * WIDTH; i++) cells[0][i] = rand() % 3 == 0;
  for (int i = 0; i < 10; i++, phase++) generation(cells[phase & 1], cells[~phase & 1]);
}

/* Cells in one machine word a row, and a barrier (of one thread) after each row, as parallel programs have.
   */
static unsigned long rows[2][64];
static volatile int arrived, phase_now;
static void pass_barrier(int threads) {
  int phase = phase_now;
  if (__sync_add_and_fetch(&arrived, 1) == threads) { arrived = 0; phase_now = phase + 1; }
  else while (phase_now == phase) __builtin_ia32_pause();
}
static void life_barrier(void) {
  for (int k = 0; k < 64; k++) rows[0][k] ^= 0x9e3779b97f4a7c15ul * (k + 1);
  for (int g = 0; g < 200; g++) {
    unsigned long *from = rows[g & 1], *to = rows[~g & 1];
    for (int y = 0; y < 64; y++) {
      unsigned long next = 0;
      for (int x = 0; x < 64; x++) {
        int n = 0;
        for (int d = 0; d < 9; d++)
          if (d != 4) n += from[(y + d / 3 + 63) & 63] >> ((x + d % 3 + 63) & 63) & 1;
        if (n == 3 || (n == 2 && from[y] >> x & 1)) next |= 1ul << x;
      }
      to[y] = next;
      pass_barrier(1);
    }
  }
}

static void take(void) { while (__sync_lock_test_and_set(&lock_word, 1)) while (lock_word)
  __builtin_ia32_pause(); }
static void free_lock(void) {
  for (int i = 0; i < 1000000; i++) { take(); value = value * 1.0000001 + 0.5;
    __sync_lock_release(&lock_word); }
}
static void free_cas(void) {
  for (int i = 0; i < 1000000; i++) {
    while (!__sync_bool_compare_and_swap(&lock_word, 0, 1)) __builtin_ia32_pause();
    value = value * 1.0000001 + 0.5;
    __sync_lock_release(&lock_word);
  }
}
static void free_pthread(void) {
  for (int i = 0; i < 1000000; i++) {
    pthread_spin_lock(&spinlock); value = value * 1.0000001 + 0.5; pthread_spin_unlock(&spinlock);
  }
}
static void free_empty(void) { for (int i = 0; i < 1000000; i++) { take(); __sync_lock_release(&lock_word);
  } }

static struct entry { struct entry *next; long key; } entries[10000], *table[1024];
static void hash(void) {
  memset(table, 0, sizeof table);
  for (long i = 0; i < 10000; i++) {
    entries[i].key = i * 7919; entries[i].next = table[i * 7919 % 1024]; table[i * 7919 % 1024] = &entries[i];
  }
  long found = 0;
  for (long i = 0; i < 100000; i++)
    for (struct entry *e = table[i % 1024]; e; e = e->next) if (e->key == i) { found++; break; }
  result = found;
}
static void list(void) {
  for (long i = 0; i < 9999; i++) entries[i].next = &entries[i + 1];
  entries[9999].next = NULL;
  for (int k = 0; k < 100; k++) { struct entry *e = entries; while (e) e = e->next; }
}
static char text[1 << 16];
static void search(void) {
  memset(text, 'a', sizeof text - 1);
  text[sizeof text - 2] = 'z';
  for (int k = 0; k < 100; k++) { const char *p = text; while (*p != 'z') p++; result = p - text; }
}
static void library(void) {
  memset(text, 'a', sizeof text - 1);
  for (int k = 0; k < 1000; k++) { result = strlen(text); result += memchr(text, 'z', sizeof text) != NULL; }
}
static void bytecode(void) {
  static const unsigned char program[] = {1, 2, 3, 1, 2, 4, 0};
  for (int k = 0; k < 100000; k++) {
    long a = k, b = 1;
    for (const unsigned char *pc = program;; pc++) {
      switch (*pc) {
        case 0: result = a; goto out;
        case 1: a += b; break;
        case 2: b ^= a >> 3; break;
        case 3: a = a * 31 + 7; break;
        case 4: if (b & 1) a--; break;
      }
    }
  out:;
  }
}
/* Looks at a flag in each iteration of its work. */
static void polls(void) {
  long sum = 0;
  for (long i = 0; i < 3000000; i++) { if (poll_flag) break; sum += i ^ (sum << 3); }
  result = sum;
}
/* A queue that always holds something. */
static void busy_queue(void) {
  static volatile long head, tail, slots[64];
  long done = 0;
  while (done < 1000000) {
    if (head == tail) { if (done & 1) slots[head & 63] = done; else slots[head & 63] = done + 1; head++;
      continue; }
    result = slots[tail & 63] * 3;
    tail++;
    done++;
  }
}
static void parse(void) {
  static char numbers[20000];
  if (!numbers[0]) for (int i = 0; i < 19000;) i += sprintf(numbers + i, "%d,", rand() % 100000);
  for (int k = 0; k < 50; k++) {
    long sum = 0, number = 0;
    for (const char *p = numbers; *p; p++) {
      if (*p >= '0' && *p <= '9') number = number * 10 + *p - '0'; else { sum += number; number = 0; }
    }
    result = sum;
  }
}
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void sort(void) {
  static int numbers[20000];
  for (int i = 0; i < 20000; i++) numbers[i] = rand();
  qsort(numbers, 20000, sizeof *numbers, compare);
}

static const struct { const char *name; void (*run)(void); } kinds[] = {
  {"life", life}, {"life_barrier", life_barrier}, {"free_lock", free_lock}, {"free_cas", free_cas},
  {"free_pthread", free_pthread}, {"free_empty", free_empty}, {"hash", hash}, {"list", list}, {"search",
    search},
  {"library", library}, {"bytecode", bytecode}, {"polls", polls}, {"busy_queue", busy_queue}, {"parse",
    parse},
  {"sort", sort},
};

int main(int argc, char **argv) {
  if (argc > 2) seconds = atof(argv[2]);
  pthread_spin_init(&spinlock, 0);
  for (unsigned i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(argv[1], kinds[i].name)) {
      while (truth_elapsed() < seconds) kinds[i].run();
      truth_tell();
      return 0;
    }
  return 2;
}
