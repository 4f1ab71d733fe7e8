/* A program whose control flow is known: see truth.rs. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned sum;
static char copied[5000];

__attribute__((noinline)) static unsigned recursive(unsigned n)
{
    return n < 2 ? n : recursive(n - 1) + recursive(n - 2);
}

__attribute__((noinline)) static void loop(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        sum += i;
}

__attribute__((noinline)) static void copy(const char *from, size_t length)
{
    char *to = copied;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
}

__attribute__((noinline)) static void in_thread(unsigned n)
{
    sum += n;
}

__attribute__((noinline)) static void in_child(void)
{
    sum++;
}

/* Its second instruction lies on two pages. */
extern void crossing(void);
__asm__(".pushsection .text\n"
        ".balign 4096\n"
        ".skip 4092, 0x90\n"
        ".type crossing, @function\n"
        "crossing: xorl %eax, %eax\n"
        "movl $1, %ecx\n"
        "ret\n"
        ".size crossing, . - crossing\n"
        ".popsection");

static void *thread(void *argument)
{
    for (unsigned i = 0; i < *(unsigned *)argument; i++)
        in_thread(i);
    return NULL;
}

int main(int count, char **arguments)
{
    static char zeros[5000];
    unsigned counts[2] = {3000, 5000};
    pthread_t threads[2];
    if (count > 1 && strcmp(arguments[1], "terminate") == 0)
        raise(SIGTERM);
    loop(40000);
    recursive(15);
    crossing();
    copy(zeros, sizeof zeros);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, thread, &counts[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            in_child();
            if (i == 2)
                execl("/bin/true", "true", NULL);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    puts(count > 1 ? arguments[1] : "done");
    return 7;
}
