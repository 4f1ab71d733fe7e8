/* Says what a program sees of how it was started, and what happens to programs that it starts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As the kernel has it: the C library hides two signals of its own. */
struct action {
	void (*handler)(int);
	unsigned long flags, restorer, mask;
};

/* Every signal and what is done at it: d(efault), i(gnored); b if it is blocked. */
static void signals(void)
{
	unsigned long mask;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask));
	for (int s = 1; s <= 64; s++) {
		struct action action;

		syscall(SYS_rt_sigaction, s, NULL, &action, sizeof(mask));
		printf("%d%c%s ", s, action.handler == SIG_IGN ? 'i' : 'd', mask >> (s - 1) & 1 ? "b" : "");
	}
	printf("\n");
}

/* Without handlers all of them are at their default then. */
static void do_default(void)
{
	struct action action = { SIG_DFL, 0, 0, 0 };

	for (int s = 1; s <= 64; s++)
		syscall(SYS_rt_sigaction, s, &action, NULL, sizeof(action.mask));
}

/* To a file, as the standard streams may be closed. */
static void descriptors(const char *path)
{
	static char text[1 << 16];
	char *end = text;
	int file;

	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFL);
		struct stat stat;

		if (flags != -1 && fstat(fd, &stat) == 0)
			end += sprintf(end, "%d flags %o kind %o\n", fd, flags, stat.st_mode & S_IFMT);
	}
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (write(file, text, end - text) != end - text)
		exit(1);
}

static void limits(void)
{
	for (int which = 0; which < RLIM_NLIMITS; which++) {
		struct rlimit limit;

		getrlimit(which, &limit);
		printf("%d: %ld %ld\n", which, (long)limit.rlim_cur, (long)limit.rlim_max);
	}
}

static void attributes(void)
{
	int adopts = -1, death = -1;
	struct timespec slice;

	prctl(PR_GET_CHILD_SUBREAPER, &adopts);
	prctl(PR_GET_PDEATHSIG, &death);
	sched_rr_get_interval(0, &slice);
	printf("adopts %d death %d slack %d dumpable %d keepcaps %d new-privs %d securebits %d thp %d\n", adopts,
		death,
	       prctl(PR_GET_TIMERSLACK), prctl(PR_GET_DUMPABLE), prctl(PR_GET_KEEPCAPS),
	       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECUREBITS), prctl(PR_GET_THP_DISABLE, 0, 0, 0,
	       	0));
	printf("personality %x policy %d nice %d io %ld seccomp %d\n", personality(0xffffffff),
		sched_getscheduler(0),
	       getpriority(PRIO_PROCESS, 0), syscall(SYS_ioprio_get, 1, 0), prctl(PR_GET_SECCOMP));
}

static void timers(void)
{
	for (int which = 0; which < 3; which++) {
		struct itimerval timer;

		getitimer(which, &timer);
		printf("timer %d: %ld s left, every %ld s\n", which, (timer.it_value.tv_sec + 9) / 10,
			timer.it_interval.tv_sec);
	}
}

static void terminal(void)
{
	printf("session %s, group %s, foreground %s\n", getsid(0) == getsid(getppid()) ? "the parent's" : "own",
	       getpgrp() == getpgid(getppid()) ? "the parent's" : "own", tcgetpgrp(0) == getpgrp() ? "yes" : "no");
	printf("standard input is %s\n", isatty(0) ? ttyname(0) != NULL ? "a terminal" : "a nameless terminal" :
		"no terminal");
}

static void all_but(sigset_t *set, int how)
{
	sigfillset(set);
	sigprocmask(how, set, NULL);
}

/* Says "ready", then which signals come, with their values, until none has come for a while. */
static void hear(void)
{
	struct timespec patience = { 60, 0 };
	siginfo_t info;
	sigset_t all;

	all_but(&all, SIG_BLOCK);
	printf("ready\n");
	while (sigtimedwait(&all, &info, &patience) > 0) {
		printf("got %d", info.si_signo);
		if (info.si_code == SI_QUEUE)
			printf(" value %d", info.si_value.sival_int);
		printf("\n");
		patience = (struct timespec){ 1, 0 };
	}
	printf("no more\n");
}

static void dies(int number)
{
	sigset_t all;

	signal(number, SIG_DFL);
	all_but(&all, SIG_UNBLOCK);
	raise(number);
	printf("survived %d\n", number);
}

/* Runs the command as a job of its own and says everything that a shell could know of it. */
static int job(char **command)
{
	int status, fresh = 1;
	pid_t pid = fork();

	if (pid == 0) {
		setpgid(0, 0);
		execvp(*command, command);
		_exit(127);
	}
	setpgid(pid, pid);
	while (waitpid(pid, &status, WUNTRACED | WCONTINUED) == pid) {
		if (WIFEXITED(status))
			return printf("exited %d\n", WEXITSTATUS(status)), 0;
		if (WIFSIGNALED(status))
			return printf("killed by %d\n", WTERMSIG(status)), 0;
		if (WIFCONTINUED(status)) {
			printf("continued\n");
			continue;
		}
		printf("stopped by %d\n", WSTOPSIG(status));
		if (getenv("CONTINUE") && fresh)
			kill(strcmp(getenv("CONTINUE"), "group") ? pid : -pid, SIGCONT);
		fresh = 0;
	}
	return 1;
}

/* Takes a property on, and becomes the command. */
static int with(const char *what, char **command)
{
	struct itimerval timer = { { 7, 0 }, { 1000, 0 } };
	sigset_t set;

	sigemptyset(&set);
	if (!strcmp(what, "blocked")) {
		sigaddset(&set, SIGUSR1);
		sigaddset(&set, SIGCHLD);
		sigaddset(&set, 40);
		sigprocmask(SIG_BLOCK, &set, NULL);
	} else if (!strcmp(what, "defaults")) {
		do_default();
	} else if (!strncmp(what, "ignored", 7)) {
		signal(atoi(what + 7), SIG_IGN);
	} else if (!strcmp(what, "timers")) {
		for (int which = 0; which < 3; which++)
			setitimer(which, &timer, NULL);
	} else if (!strcmp(what, "alarm")) {
		ualarm(600000, 0);
	} else if (!strcmp(what, "adopts")) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	} else if (!strcmp(what, "slack")) {
		prctl(PR_SET_TIMERSLACK, 123456);
	} else if (!strcmp(what, "group")) {
		setpgid(0, 0);
	} else {
		return fprintf(stderr, "with what?\n"), 2;
	}
	execvp(*command, command);
	return 127;
}

/* Becomes the command, with its standard output in the file `seen`, which is locked until it ends. */
static int keep(const char *folder, char **command)
{
	char path[4096];
	struct stat output;
	int file;

	snprintf(path, sizeof(path), "%s/seen", folder);
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	/* A policy that closes its output is given up at once. */
	if (fstat(1, &output) == 0 && S_ISFIFO(output.st_mode) && dup(1) == -1)
		return perror("dup"), 126;
	if (flock(file, LOCK_EX) != 0 || dup2(file, 1) == -1)
		return perror(path), 126;
	close(file);
	execvp(*command, command);
	return perror(*command), 127;
}

/* Waits until such a command has said something and has ended. */
static int await(const char *folder)
{
	char path[4096];
	struct stat stat;
	int file;

	snprintf(path, sizeof(path), "%s/seen", folder);
	while ((file = open(path, O_RDONLY)) == -1 || fstat(file, &stat) != 0 || stat.st_size == 0) {
		close(file);
		usleep(10000);
	}
	return flock(file, LOCK_EX) != 0;
}

/* Appends the words as a shell would read them. */
static void quote(char *line, char **words)
{
	for (; *words != NULL; words++) {
		line = stpcpy(line, "'");
		for (const char *next = *words; *next != '\0'; next++)
			line = *next == '\'' ? stpcpy(line, "'\\''") : mempcpy(line, next, 1);
		line = stpcpy(line, "' ");
	}
	*line = '\0';
}

/* Becomes the words up to "::", in which those after it stand for a word "@", and as a shell would read them
 * for an "@" in a word. They are kept; what the words before say goes to the file `log`. */
static int start(const char *self, const char *folder, char **words)
{
	static char lines[1 << 16];
	char *all[512], *kept[256] = { (char *)self, "keep", (char *)folder }, log[4096];
	char **command = words, **next = all, *line = lines;
	int file, length = 3;

	while (strcmp(*command, "::") != 0)
		command++;
	for (char **word = command + 1; *word != NULL; word++)
		kept[length++] = *word;
	for (; words < command; words++) {
		char *at = strchr(*words, '@');

		*next++ = *words;
		if (strcmp(*words, "@") == 0) {
			next = (char **)memcpy(next - 1, kept, length * sizeof(*kept)) + length;
		} else if (at != NULL) {
			next[-1] = line;
			line = mempcpy(line, *words, at - *words);
			quote(line, kept);
			strcat(line, at + 1);
			line += strlen(line) + 1;
		}
	}
	*next = NULL;
	snprintf(log, sizeof(log), "%s/log", folder);
	file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (dup2(file, 1) == -1 || dup2(file, 2) == -1)
		return perror(log), 126;
	close(file);
	execvp(*all, all);
	return perror(*all), 127;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";

	setvbuf(stdout, NULL, _IONBF, 0);
	if (!strcmp(what, "signals"))
		signals();
	else if (!strcmp(what, "descriptors"))
		descriptors(words[2]);
	else if (!strcmp(what, "limits"))
		limits();
	else if (!strcmp(what, "attributes"))
		attributes();
	else if (!strcmp(what, "timers"))
		timers();
	else if (!strcmp(what, "terminal"))
		terminal();
	else if (!strcmp(what, "hear"))
		hear();
	else if (!strcmp(what, "dies"))
		dies(atoi(words[2]));
	else if (!strcmp(what, "job"))
		return job(words + 2);
	else if (!strcmp(what, "with"))
		return with(words[2], words + 3);
	else if (!strcmp(what, "keep"))
		return keep(words[2], words + 3);
	else if (!strcmp(what, "await"))
		return await(words[2]);
	else if (!strcmp(what, "start"))
		return start(words[0], words[2], words + 3);
	else if (!strcmp(what, "queue"))
		return sigqueue(atoi(words[2]), atoi(words[3]), (union sigval){ .sival_int = atoi(words[4]) });
	else if (!strcmp(what, "words"))
		for (int at = 0; at < count; at++)
			printf("<%s>\n", words[at]);
	else
		return 2;
	return 0;
}
