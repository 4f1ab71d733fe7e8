/* Two threads that work in turn: while one does, the other waits busily, and tells so.
 *
 *     cc wait.c $(pkg-config --cflags --libs corewise) -lpthread && corewise run -- ./a.out 1000000
 */
#include <corewise.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long turn;
static long rounds;

static void *work(void *argument)
{
	long own = argument != 0;

	for (long round = 0; round < rounds; round++) {
		corewise_spin_begin();
		while (atomic_load(&turn) % 2 != own)
			;
		corewise_spin_end();
		atomic_fetch_add(&turn, 1);
		corewise_heartbeat(1);
	}
	return 0;
}

int main(int count, char **arguments)
{
	pthread_t other;

	rounds = count > 1 ? atol(arguments[1]) : 1000;
	corewise_master_thread();
	corewise_phase(1);
	if (pthread_create(&other, 0, work, &turn))
		return 1;
	work(0);
	pthread_join(other, 0);
	printf("%ld rounds\n", rounds);
	return 0;
}
