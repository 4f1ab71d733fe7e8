/* Waits for messages for ever, as Open MPI's library does; a line tells each time that it begins to keep its
 * PE meanwhile, or to yield. SIGUSR1 sets the variable as at first. Beside it lie others, which must stay
 * as they are. */
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct {
	volatile bool before, yield, after;
} extern neighbours __asm__("neighbours");

__asm__(".data\n"
	".globl neighbours, opal_progress_yield_when_idle\n"
	".type opal_progress_yield_when_idle, @object\n"
	"neighbours: .byte 1\n"
	"opal_progress_yield_when_idle: .byte 0\n"
	".size opal_progress_yield_when_idle, 1\n"
	".byte 1\n"
	".text\n");

static void begin_anew(int signal)
{
	(void)signal;
	neighbours.yield = 0;
}

int main(void)
{
	int reported = -1;

	signal(SIGUSR1, begin_anew);
	while (neighbours.before && neighbours.after) {
		int yields = neighbours.yield;
		if (yields != reported) {
			puts(yields ? "yields" : "keeps");
			fflush(stdout);
			reported = yields;
		}
		if (yields) sched_yield();
	}
	return EXIT_FAILURE;
}
