/* A team of two threads that has some work again and again, with pauses between in which the second is idle.
 * Each line on its standard output tells of one region; it ends when its standard input does. A byte that
 * comes there is an order: `f` forks a child, `d` a daemon (in a session of its own, whose parent ends at
 * once), which wait for that end too; `e` executes the program again. With an argument it has work for both
 * threads all the time, without pauses. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(long iterations)
{
	for (volatile long i = 0; i < iterations; i++)
		;
}

/* Leaves the orders to others. */
static int wait_for_the_end(void)
{
	struct pollfd input = { .fd = 0, .events = 0 };

	while (poll(&input, 1, -1) < 1)
		;
	return 0;
}

int main(int arguments, char **argument)
{
	int is_busy = arguments > 1;
	struct pollfd input = { .fd = 0, .events = POLLIN };
	volatile long sum = 0;
	char order;
	pid_t child;

	for (long region = 0;; region++) {
#pragma omp parallel num_threads(2)
		{
			work(is_busy ? 10000000 : 0);
			__sync_fetch_and_add(&sum, 1);
		}
		printf("%ld\n", region);
		fflush(stdout);
		if (!poll(&input, 1, is_busy ? 0 : 20))
			continue;
		if (read(0, &order, 1) != 1)
			return 0;
		if (order == 'e')
			return execv("/proc/self/exe", argument);
		child = fork();
		if (child == 0) {
			if (order != 'd')
				return wait_for_the_end();
			setsid();
			return fork() == 0 ? wait_for_the_end() : 0;
		}
		if (order == 'd')
			waitpid(child, NULL, 0);
	}
}
