/* A team of two threads that has some work again and again, with pauses between in which the second is idle.
 * Each line on its standard output tells of one region; it ends when its standard input does. For each byte
 * that comes there it forks a child that only waits for that end. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	volatile long sum = 0;
	char byte;

	for (long region = 0;; region++) {
#pragma omp parallel num_threads(2)
		__sync_fetch_and_add(&sum, 1);
		printf("%ld\n", region);
		fflush(stdout);
		if (!poll(&input, 1, 20))
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
