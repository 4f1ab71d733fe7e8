// Programs for the samplers of branches. The first argument says which; each checks itself and prints what it
// found.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;
static void count(int signal) { handled++; }

// Work whose result shows any change of its registers or memory.
static uint64_t mixed(uint64_t rounds) {
    uint64_t state = 1, table[64] = {0};
    double sum = 0;
    char text[64];
    for (uint64_t i = 0; i < rounds; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        table[state >> 58] ^= state;
        if (state & 1) sum += (double)(state >> 40) / 3;
        if ((state >> 33) % 1000 == 0) {
            snprintf(text, sizeof text, "%.6f %lu", sum, (unsigned long)state);
            table[strlen(text)]++;
        }
    }
    for (int i = 0; i < 64; i++) state ^= table[i];
    return state ^ (uint64_t)sum;
}

static void *thread(void *rounds) { return (void *)mixed((uint64_t)rounds); }

static pid_t parent;

// Whether to end: the file is there, or the process that was to make it is gone.
static int is_over(const char *file) { return access(file, F_OK) == 0 || getppid() != parent; }

// Works until the end; how often the work came out wrong.
static void *alone(void *file) {
    uint64_t expected = mixed(100000), wrong = 0;
    do wrong += mixed(100000) != expected;
    while (!is_over(file));
    return (void *)wrong;
}

// Four threads and a child that executes this program again.
static int tree(char *self, char *file) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, alone, file);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "alone", file, (char *)0);
        _exit(99);
    }
    int wrong = 0, status;
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += result != 0;
    }
    waitpid(child, &status, 0);
    wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 42;
    return wrong ? 1 : 42;
}

// A child of which no tracer hears.
static int untraced(const char *file) {
    pid_t child = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        parent = getppid();
        _exit(alone((void *)file) ? 1 : 42);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Signals of all kinds, which must come exactly as often as they were sent; the samplers' own among them.
static int signals(uint64_t rounds) {
    int kinds[] = {SIGUSR1, SIGURG, SIGWINCH, SIGTRAP, SIGRTMIN + 3};
    struct sigaction action = {.sa_handler = count};
    for (int i = 0; i < 5; i++) sigaction(kinds[i], &action, 0);
    uint64_t expected = mixed(2000), wrong = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        raise(kinds[i % 5]);
        wrong += mixed(2000) != expected;
    }
    printf("%d of %lu signals, %lu wrong\n", (int)handled, (unsigned long)rounds, (unsigned long)wrong);
    return wrong || (uint64_t)handled != rounds ? 1 : 0;
}

// The same with a thread that comes and goes.
static int until(const char *file) {
    uint64_t expected = mixed(100000), other, wrong = 0;
    pthread_t helper;
    do {
        pthread_create(&helper, 0, thread, (void *)(uint64_t)100000);
        wrong += mixed(100000) != expected;
        pthread_join(helper, (void **)&other);
        wrong += other != expected;
    } while (!is_over(file));
    return wrong ? 1 : 42;
}

int main(int count, char **arguments) {
    const char *what = arguments[1];
    parent = getppid();
    uint64_t rounds = strtoul(arguments[2], 0, 10);
    if (!strcmp(what, "alone")) return alone(arguments[2]) ? 1 : 42;
    if (!strcmp(what, "tree")) return tree(arguments[0], arguments[2]);
    if (!strcmp(what, "untraced")) return untraced(arguments[2]);
    if (!strcmp(what, "signals")) return signals(rounds);
    if (!strcmp(what, "until")) return until(arguments[2]);
    return 98;
}
