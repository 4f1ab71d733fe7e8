/* Two threads that hand work to each other and wait for it in code of their own, checking a flag in a loop. A
 * byte on standard input is an order to the process: `f` forks a child, `d` a daemon (in a session of its
 * own, whose parent ends at once), which wait for its end too. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct { volatile long wave; char pad[120]; } reached[2];

static void *hand_on(void *second)
{
	long me = second != NULL;

	for (long wave = 1;; wave++) {
		while (reached[!me].wave < (me ? wave : wave - 1))
			;
		for (volatile long i = 0; i < 2000; i++)
			;
		__sync_synchronize();
		reached[me].wave = wave;
	}
	return NULL;
}

/* Leaves the orders to others. */
static int wait_for_the_end(void)
{
	struct pollfd input = { .fd = 0, .events = 0 };

	while (poll(&input, 1, -1) < 1)
		;
	return 0;
}

int main(void)
{
	pthread_t thread;
	char order;

	for (long second = 0; second < 2; second++)
		if (pthread_create(&thread, NULL, hand_on, second ? &thread : NULL))
			return 1;
	while (read(0, &order, 1) == 1) {
		pid_t child = fork();

		if (child == 0) {
			if (order != 'd')
				return wait_for_the_end();
			setsid();
			return fork() == 0 ? wait_for_the_end() : 0;
		}
		if (order == 'd')
			waitpid(child, NULL, 0);
	}
	return 0;
}
