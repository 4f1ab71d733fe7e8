/* A team of two threads that has some work again and again, with pauses between in which the second is idle.
 * Each line on its standard output tells of one region; it ends when its standard input does. For each byte
 * that comes there it forks a child that only waits for that end. With an argument it has work for both
 * threads all the time, without pauses. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static void work(long turns)
{
	for (volatile long turn = 0; turn < turns; turn++)
		;
}

int main(int arguments, char **argument)
{
	int is_busy = arguments > 1;
	struct pollfd input = { .fd = 0, .events = POLLIN };
	volatile long sum = 0;
	char byte;

	(void)argument;
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
		if (read(0, &byte, 1) != 1)
			return 0;
		if (fork() == 0) {
			while (read(0, &byte, 1) == 1)
				;
			return 0;
		}
	}
}
