/* How soon a scheduler answers to a change of thread-level parallelism.
 *
 * tlp latency CHANGES THREADS   Two threads run; one of them, in turn, blocks, and the other, the only one
 *                               that runs then, waits until it may run on PE 0 alone. Prints after each of
 *                               the CHANGES how many microseconds that took, or "late" after a second. The
 *                               rest of the THREADS sleep.
 * tlp load CHANGES SECONDS      Two threads; one of them blocks and wakes so often that there are CHANGES a
 *                               second.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOGETHER_MS = 15 };

static sem_t wake[2], begun;
static atomic_int blocked = -1;
static _Atomic long blocked_at;
static long changes;

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void burn(long us)
{
	for (long end = now_us() + us; now_us() < end;)
		;
}

static int on_fast(void)
{
	cpu_set_t mask;

	sched_getaffinity(0, sizeof(mask), &mask);
	return CPU_COUNT(&mask) == 1 && CPU_ISSET(0, &mask);
}

/* The even changes are those in which thread 0 blocks. */
static void *actor(void *number)
{
	int own = (long)number;

	for (long change = 0; change < changes; change++) {
		if (change % 2 == own) {
			burn(TOGETHER_MS * 1000);
			atomic_store(&blocked_at, now_us());
			atomic_store(&blocked, own);
			sem_wait(&wake[own]);
		} else {
			while (atomic_load(&blocked) != !own)
				;
			while (!on_fast() && now_us() < atomic_load(&blocked_at) + 1000000)
				;
			if (on_fast())
				printf("%ld\n", now_us() - atomic_load(&blocked_at));
			else
				printf("late\n");
			atomic_store(&blocked, -1);
			sem_post(&wake[!own]);
		}
	}
	return NULL;
}

static void *sleeper(void *unused)
{
	sem_post(&begun);
	pause();
	return unused;
}

static void *burner(void *unused)
{
	for (;;)
		burn(1000000);
	return unused;
}

int main(int count, char **arguments)
{
	pthread_attr_t small;
	pthread_t actors[2], other;

	if (count < 4)
		return 2;
	changes = atol(arguments[2]);
	sem_init(&wake[0], 0, 0);
	sem_init(&wake[1], 0, 0);
	sem_init(&begun, 0, 0);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	if (!strcmp(arguments[1], "load")) {
		long end = now_us() + 1000000 * atol(arguments[3]), period = 2000000 / changes;

		pthread_create(&other, &small, burner, NULL);
		while (now_us() < end) {
			burn(period / 2);
			usleep(period / 2);
		}
		return 0;
	}
	for (long left = atol(arguments[3]) - 3; left > 0; left--) {
		if (pthread_create(&other, &small, sleeper, NULL))
			return 1;
		sem_wait(&begun);
	}
	/* The scheduler has seen all of them, and decided once. */
	burn(2500000);
	for (long number = 0; number < 2; number++)
		pthread_create(&actors[number], NULL, actor, (void *)number);
	for (int number = 0; number < 2; number++)
		pthread_join(actors[number], NULL);
	return 0;
}
