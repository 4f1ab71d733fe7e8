/* Uses OpenMP in a library that it closes on demand, and then has an array where libgomp was: nobody may
 * write there. Compiled twice: with -DPLUGIN -shared -fopenmp as the library, and as the program, whose
 * argument is the library's path. It tells its steps in lines, and goes on with each byte of its standard
 * input. */
#define _GNU_SOURCE
#ifdef PLUGIN
#include <omp.h>

void work(void)
{
	volatile long sum = 0;

#pragma omp parallel num_threads(2)
	__sync_fetch_and_add(&sum, 1);
}

void stop(void)
{
	omp_pause_resource_all(omp_pause_hard);
}
#else
#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What libgomp takes by default. */
static uint64_t own = 300000;
static volatile uint64_t *count;
static uintptr_t from = UINTPTR_MAX, to;

/* Where libgomp lies, and in it its spin count. */
static int look(struct dl_phdr_info *object, size_t size, void *unused)
{
	(void)size, (void)unused;
	if (!strstr(object->dlpi_name, "libgomp"))
		return 0;
	for (int index = 0; index < object->dlpi_phnum; index++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[index];
		uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;

		if (segment->p_type != PT_LOAD)
			continue;
		from = start < from ? start : from;
		to = end > to ? end : to;
		for (start = (start + 7) & ~7ul; segment->p_flags & PF_W && start + 8 <= end; start += 8)
			if (*(uint64_t *)start == own)
				count = (uint64_t *)start;
	}
	return 1;
}

static void step(const char *name)
{
	puts(name);
	fflush(stdout);
}

int main(int arguments, char **argument)
{
	const char *text = getenv("GOMP_SPINCOUNT");
	struct pollfd input = { .fd = 0, .events = POLLIN };
	void *library = arguments > 1 ? dlopen(argument[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	void (*work)(void) = library ? (void (*)(void))dlsym(library, "work") : NULL;
	void (*stop)(void) = library ? (void (*)(void))dlsym(library, "stop") : NULL;
	uint64_t present, wrong = 0, *array;
	char byte;

	if (!work || !stop)
		return 1;
	own = text ? strtoull(text, NULL, 10) : own;
	work();
	dl_iterate_phdr(look, NULL);
	if (!count)
		return 2;
	step("begins");
	while (!poll(&input, 1, 20))
		work();
	if (read(0, &byte, 1) != 1)
		return 0;
	present = *count;
	stop();
	dlclose(library);
	from &= -4096ul, to = (to + 4095) & -4096ul;
	/* The library may ask to stay. */
	munmap((void *)from, to - from);
	array = mmap((void *)from, to - from, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (array == MAP_FAILED)
		return 3;
	for (uintptr_t index = 0; index < (to - from) / 8; index++)
		array[index] = present;
	step(present == own ? "filled, unchanged before" : "filled");
	do {
		if (read(0, &byte, 1) != 1)
			return 0;
		for (uintptr_t index = 0; index < (to - from) / 8; index++)
			wrong += array[index] != present;
		printf("%lu words changed\n", wrong);
		fflush(stdout);
	} while (1);
}
#endif
