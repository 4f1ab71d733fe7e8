/*
 * How soon the thread of a sequential phase runs on a fast PE.
 *
 *     reaction PE PHASES SERIAL_MS PARALLEL_MS
 *
 * Phases alternate: four threads compute for PARALLEL_MS, then the first thread alone for SERIAL_MS. At the
 * end of the parallel phase those on PE go on for a moment, so that the first thread begins elsewhere. For
 * each sequential phase it prints the microseconds until the first thread ran on PE: 0 if it began there
 * after all, `never` if it did not come there within the phase.
 *
 *     reaction idle
 *
 * wakes up ten times a second for a moment, as an application among others.
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

#define WORKERS 4
#define MOMENT_US 5000

static pthread_barrier_t begins;
static sem_t is_over;
static atomic_int working;
static int pe, phases;
static double parallel_us;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void compute_until(double end_us)
{
	volatile unsigned long x = 1;

	while (now_us() < end_us)
		for (int i = 0; i < 1000; i++)
			x = x * 5 + 1;
}

static void *work(void *unused)
{
	for (int i = 0; i < phases; i++) {
		pthread_barrier_wait(&begins);
		compute_until(now_us() + parallel_us);
		if (sched_getcpu() == pe)
			compute_until(now_us() + MOMENT_US);
		sem_post(&is_over);
		atomic_fetch_sub(&working, 1);
	}
	return unused;
}

static void idle(void)
{
	for (;;) {
		usleep(100000);
		compute_until(now_us() + 20);
	}
}

static void phase(double serial_us)
{
	atomic_store(&working, WORKERS);
	pthread_barrier_wait(&begins);
	/* Awake as soon as the first one is done, elsewhere than on PE. */
	sem_wait(&is_over);
	while (atomic_load(&working))
		;
	double begin = now_us(), reached = sched_getcpu() == pe ? begin : -1;

	while (now_us() < begin + serial_us)
		if (reached < 0 && sched_getcpu() == pe)
			reached = now_us();
	if (reached < 0)
		puts("never");
	else
		printf("%.0f\n", reached - begin);
	for (int i = 1; i < WORKERS; i++)
		sem_wait(&is_over);
}

int main(int argc, char **argv)
{
	pthread_t workers[WORKERS];

	if (argc == 2 && !strcmp(argv[1], "idle"))
		idle();
	if (argc != 5)
		return 2;
	pe = atoi(argv[1]);
	phases = atoi(argv[2]);
	parallel_us = atof(argv[4]) * 1e3;
	pthread_barrier_init(&begins, NULL, WORKERS + 1);
	sem_init(&is_over, 0, 0);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&workers[i], NULL, work, NULL);
	for (int i = 0; i < phases; i++)
		phase(atof(argv[3]) * 1e3);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	return 0;
}
