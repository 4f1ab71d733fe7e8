/* A program that only pretends to have the library: its note leads to memory full of nonsense that changes
 * all the time; compiled with NOWHERE, to where there is no memory. It runs for a second or two. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

unsigned page[16 * 1024] __attribute__((aligned(64)));

#define NOTE(distance)                                                                  \
	".pushsection .note.corewise, \"a\", @note; .balign 4; .long 9; .long 8; .long 1;" \
	".asciz \"corewise\"; .balign 4; .quad " distance "; .popsection"

#ifdef NOWHERE
__asm__(NOTE("0x7000000000000000"));
#else
__asm__(NOTE("page - ."));
#endif

int main(void)
{
	time_t end = time(0) + 2;

	page[0] = getpid();
	page[16] = getpid();
	while (time(0) < end)
		for (unsigned index = 1; index < sizeof page / sizeof *page; index++)
			if (index != 16)
				page[index] = random() % 3 ? random() * 2 : ~0u;
	return 0;
}
