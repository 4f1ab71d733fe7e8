/* A program that reports about its threads: one only waits; the other is the master, in phase 7, and reports
 * every millisecond that it has done something. For each byte on its standard input it forks a child whose
 * one thread is in phase 9. All end with that input. */
#include <corewise.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static volatile int waits = 1;

static void *wait_busily(void *unused)
{
	corewise_spin_begin();
	while (waits)
		;
	corewise_spin_end();
	return unused;
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	pthread_t waiting;
	char byte;

	if (pthread_create(&waiting, 0, wait_busily, 0))
		return 1;
	corewise_master_thread();
	corewise_phase(7);
	for (;;) {
		corewise_heartbeat(1000);
		if (!poll(&input, 1, 1))
			continue;
		if (read(0, &byte, 1) != 1)
			break;
		if (fork() == 0) {
			corewise_phase(9);
			while (read(0, &byte, 1) == 1)
				;
			return 0;
		}
	}
	waits = 0;
	return pthread_join(waiting, 0);
}
