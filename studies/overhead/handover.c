/* Two processes that hand a byte to and fro over a pipe, as often as the argument says. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void or_fail(int condition, const char *what)
{
	if (condition)
		return;
	perror(what);
	_exit(1);
}

int main(int count, char **arguments)
{
	long rounds = count > 1 ? atol(arguments[1]) : 0;
	int there[2], back[2], status;
	char byte = 0;
	pid_t other;

	or_fail(!pipe(there) && !pipe(back), "pipe");
	other = fork();
	or_fail(other >= 0, "fork");
	for (long round = 0; round < rounds; round++) {
		if (other) {
			or_fail(write(there[1], &byte, 1) == 1, "write");
			or_fail(read(back[0], &byte, 1) == 1, "read");
		} else {
			or_fail(read(there[0], &byte, 1) == 1, "read");
			or_fail(write(back[1], &byte, 1) == 1, "write");
		}
	}
	if (!other)
		_exit(0);
	or_fail(wait(&status) == other && status == 0, "wait");
	return 0;
}
