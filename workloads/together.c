/*
 * Starts several programs at one moment and says how long each runs.
 *
 *   together 'PROGRAM OPTIONS' 'PROGRAM OPTIONS' ...
 *
 * It prints the processes' numbers, `ready 12 13`; when a line arrives on its standard input they become
 * the programs. For each that ends it prints `ended INDEX SECONDS STATUS`. It stays until its standard
 * input ends: so the measuring program decides when the watching one may stop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAMS_MAX 16

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Becomes the program as soon as the pipe is closed. */
static void become(char *command, const int gate[2])
{
	char *words[64], byte;
	int count = 0;

	for (char *word = strtok(command, " "); word && count < 63; word = strtok(NULL, " "))
		words[count++] = word;
	words[count] = NULL;
	close(gate[1]);
	while (read(gate[0], &byte, 1) > 0)
		;
	close(gate[0]);
	execvp(words[0], words);
	perror(words[0]);
	_exit(127);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

int main(int count, char **words)
{
	pid_t programs[PROGRAMS_MAX];
	char line[16];
	int gate[2], status;

	if (count < 2 || count - 1 > PROGRAMS_MAX) {
		fprintf(stderr, "usage: together 'PROGRAM OPTIONS' ...\n");
		return 2;
	}
	if (pipe(gate))
		fail("pipe");
	printf("ready");
	fflush(stdout);
	for (int i = 0; i + 1 < count; i++) {
		programs[i] = fork();
		if (programs[i] < 0)
			fail("fork");
		if (programs[i] == 0)
			become(words[i + 1], gate);
		printf(" %d", programs[i]);
	}
	printf("\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	double start = now();
	close(gate[0]);
	close(gate[1]);
	for (pid_t ended; (ended = wait(&status)) > 0;) {
		for (int i = 0; i + 1 < count; i++)
			if (programs[i] == ended)
				printf("ended %d %.3f %d\n", i, now() - start, status);
		fflush(stdout);
	}
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
