/* A program with two runtime libraries, as a process of Python's has where wheels bring their own: one that
 * it is linked with, and another one in a library that it loads, in a namespace of its own. Each has a team
 * of two. The first argument is the library. Each line on its standard output tells of a region of each; it
 * ends when its standard input does.
 *
 *     cc -fopenmp -fPIC -shared -DLOADED two_libraries.c -o loaded.so
 *     cc -fopenmp two_libraries.c -o two -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>

double region(int number)
{
	double sum = 0;

#pragma omp parallel for num_threads(2) reduction(+ : sum)
	for (int i = 0; i < 2000; i++)
		sum += i * 1e-9 * number;
	return sum;
}

#ifndef LOADED
int main(int arguments, char **argument)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	void *loaded = arguments > 1 ? dlmopen(LM_ID_NEWLM, argument[1], RTLD_NOW) : NULL;
	double (*other)(int) = loaded ? (double (*)(int))dlsym(loaded, "region") : NULL;

	if (!other) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int number = 0; !poll(&input, 1, 0); number++) {
		double sum = region(number) + other(number);

		if (number % 64 == 0)
			printf("%d %g\n", number, sum);
		fflush(stdout);
	}
	return 0;
}
#endif
