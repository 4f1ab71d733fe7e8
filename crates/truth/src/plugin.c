/*
 * QEMU TCG plugin: which translation blocks each thread executes, as messages on a socket.
 *
 * The messages are those of `stream.rs`. QEMU's header is under the GPL and Debian ships none, so the few
 * functions of plugin API version 1 that are used here are declared below.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    const char *target_name;
    struct { int min, cur; } version;
    bool system_emulation;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*)(uint64_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *),
                                                 int flags, void *data);
extern void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, void (*)(uint64_t, unsigned, int64_t number,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
extern void qemu_plugin_register_vcpu_syscall_ret_cb(uint64_t id, void (*)(uint64_t, unsigned, int64_t number,
                                                                           int64_t result));
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*)(uint64_t, void *), void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(uint64_t id, const qemu_info_t *info, int argc, char **argv);

enum kind { LOADED, BLOCK, EXECUTED, FORKED, EXECUTES, ENDED };

struct header {
    uint32_t kind, pid, tid;
};

/* A message that tells of a block, before it is executed for the first time. */
struct block_message {
    struct header header;
    uint32_t id, module, instructions;
    uint64_t start, before_last, last; /* file offsets of the first and the last two instructions */
};

struct fork_message {
    struct header header;
    uint32_t parent, blocks; /* the blocks known to the parent are the child's too */
};

struct block {
    uint32_t id;
    bool repeats;         /* its last instruction is a repeated string instruction */
    uint64_t start, last; /* guest addresses */
};

#define IDS_MAX (16 * 1024)

/* What one thread has executed since its last message. */
struct thread {
    struct thread *next;
    const struct block *previous;
    size_t length;
    struct {
        struct header header;
        uint32_t ids[IDS_MAX];
    } message;
};

/* A mapped file that is traced. */
struct mapping {
    uintptr_t start, end;
    uint64_t offset;
    uint32_t module;
};

#define MAPPINGS_MAX 4096

static int channel = -1;
static bool broken;                           /* a message could not be sent: nothing more is */
static int64_t execve_number, execveat_number;
static char modules[1 << 16];                 /* paths of the traced modules, each ended by a zero */
static ssize_t modules_length;

/* Guards all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct thread *threads;
static uint32_t blocks_count;
static struct mapping mappings[MAPPINGS_MAX];
static size_t mappings_count;
static bool mappings_are_stale = true;

static __thread struct thread *self;
static pthread_key_t self_key;                /* for its destructor: it knows when a thread ends */

static struct header header(enum kind kind)
{
    return (struct header){kind, getpid(), syscall(SYS_gettid)};
}

static void transmit(const void *message, size_t length)
{
    while (!broken && send(channel, message, length, MSG_NOSIGNAL) < 0)
        broken = errno != EINTR;
}

static void flush(struct thread *thread)
{
    if (thread->length > 0)
        transmit(&thread->message, sizeof(struct header) + thread->length * sizeof(uint32_t));
    thread->length = 0;
}

static struct thread *new_thread(void)
{
    struct thread *thread = calloc(1, sizeof *thread);
    if (!thread)
        abort();
    thread->message.header = header(EXECUTED);
    pthread_mutex_lock(&lock);
    thread->next = threads;
    threads = thread;
    pthread_mutex_unlock(&lock);
    pthread_setspecific(self_key, thread);
    return self = thread;
}

static void thread_ends(void *data)
{
    struct thread *thread = data;
    flush(thread);
    pthread_mutex_lock(&lock);
    for (struct thread **link = &threads; *link; link = &(*link)->next)
        if (*link == thread) {
            *link = thread->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(thread);
    self = NULL;
}

static void executed(unsigned vcpu, void *data)
{
    const struct block *block = data;
    struct thread *thread = self ? self : new_thread();
    (void)vcpu;
    thread->previous = block;
    thread->message.ids[thread->length++] = block->id;
    if (thread->length == IDS_MAX)
        flush(thread);
}

/* A repeated string instruction is executed by QEMU as a block per repetition. */
static void executed_repetition(unsigned vcpu, void *data)
{
    const struct block *block = data;
    const struct block *previous = self ? self->previous : NULL;
    if (!previous || !previous->repeats || previous->last != block->start)
        executed(vcpu, data);
}

static bool is_repeated_string(const struct qemu_plugin_insn *instruction)
{
    const uint8_t *bytes = qemu_plugin_insn_data(instruction);
    size_t length = qemu_plugin_insn_size(instruction);
    bool repeated = false;
    for (size_t at = 0; at < length; at++) {
        uint8_t byte = bytes[at];
        if (byte == 0xf2 || byte == 0xf3)
            repeated = true;
        else if (!(byte >= 0x40 && byte <= 0x4f) && !(byte >= 0x64 && byte <= 0x67) &&
                 byte != 0x26 && byte != 0x2e && byte != 0x36 && byte != 0x3e)
            return repeated && ((byte >= 0xa4 && byte <= 0xa7) || (byte >= 0xaa && byte <= 0xaf) ||
                                (byte >= 0x6c && byte <= 0x6f));
    }
    return false;
}

/* Lists the mappings of traced modules. The list of QEMU itself holds those of the program. */
static void read_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    mappings_count = 0;
    while (file && getline(&line, &room, file) > 0 && mappings_count < MAPPINGS_MAX) {
        struct mapping mapping;
        const char *path = strchr(line, '/');
        if (!path || sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64, &mapping.start, &mapping.end,
                            &mapping.offset) != 3)
            continue;
        mapping.module = 0;
        for (const char *module = modules; module < modules + modules_length; mapping.module++) {
            size_t length = strlen(module);
            if (strncmp(path, module, length) == 0 && path[length] == '\n') {
                mappings[mappings_count++] = mapping;
                break;
            }
            module += length + 1;
        }
    }
    free(line);
    if (file)
        fclose(file);
    mappings_are_stale = false;
}

static const struct mapping *mapping_of(uintptr_t address)
{
    if (mappings_are_stale)
        read_mappings();
    for (size_t i = 0; i < mappings_count; i++)
        if (mappings[i].start <= address && address < mappings[i].end)
            return &mappings[i];
    return NULL;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb);
    const struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, 0);
    const struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, count - 1);
    uint64_t start = qemu_plugin_insn_vaddr(first);
    uint64_t before_last = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, count > 1 ? count - 2 : 0));
    uintptr_t address = (uintptr_t)qemu_plugin_insn_haddr(first);
    struct block *block = NULL;
    (void)id;
    pthread_mutex_lock(&lock);
    const struct mapping *mapping = mapping_of(address);
    if (mapping && (block = malloc(sizeof *block))) {
        uint64_t offset = address - mapping->start + mapping->offset;
        uint64_t last_address = qemu_plugin_insn_vaddr(last);
        *block = (struct block){blocks_count++, is_repeated_string(last), start, last_address};
        struct block_message message = {header(BLOCK), block->id, mapping->module, count, offset,
                                        offset + before_last - start, offset + block->last - start};
        transmit(&message, sizeof message);
    }
    pthread_mutex_unlock(&lock);
    if (block) {
        bool may_repeat = count == 1 && block->repeats;
        qemu_plugin_register_vcpu_tb_exec_cb(tb, may_repeat ? executed_repetition : executed, 0, block);
    }
}

static void system_call(uint64_t id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                        uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)vcpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number == execve_number || number == execveat_number) {
        struct header message = header(EXECUTES);
        if (self)
            flush(self);
        transmit(&message, sizeof message);
    }
}

/* It may have changed the mappings. */
static void system_call_returned(uint64_t id, unsigned vcpu, int64_t number, int64_t result)
{
    (void)id, (void)vcpu, (void)number, (void)result;
    __atomic_store_n(&mappings_are_stale, true, __ATOMIC_RELAXED);
}

static pid_t parent;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    parent = getpid();
}

static void parent_forked(void)
{
    pthread_mutex_unlock(&lock);
}

/* The child has this thread only; what was executed before the fork the parent will tell. */
static void child_forked(void)
{
    struct fork_message message = {header(FORKED), parent, blocks_count};
    transmit(&message, sizeof message);
    threads = self;
    if (self) {
        self->next = NULL;
        self->length = 0;
        self->message.header = header(EXECUTED);
    }
    pthread_mutex_unlock(&lock);
}

static void process_ends(uint64_t id, void *data)
{
    struct header message = header(ENDED);
    (void)id, (void)data;
    pthread_mutex_lock(&lock);
    for (struct thread *thread = threads; thread; thread = thread->next)
        flush(thread);
    transmit(&message, sizeof message);
    pthread_mutex_unlock(&lock);
}

EXPORT int qemu_plugin_install(uint64_t id, const qemu_info_t *info, int argc, char **argv)
{
    int given;
    if (argc != 1 || sscanf(argv[0], "fd=%d", &given) != 1)
        return 1;
    /* High up, where it does not change the numbers of the program's files. */
    channel = fcntl(given, F_DUPFD_CLOEXEC, 900);
    if (channel < 0)
        channel = fcntl(given, F_DUPFD_CLOEXEC, 0);
    close(given);
    modules_length = recv(channel, modules, sizeof modules, 0);
    struct header message = header(LOADED);
    transmit(&message, sizeof message);
    bool is_x86_64 = strcmp(info->target_name, "x86_64") == 0;
    execve_number = is_x86_64 ? 59 : 221;
    execveat_number = is_x86_64 ? 322 : 281;
    pthread_key_create(&self_key, thread_ends);
    pthread_atfork(before_fork, parent_forked, child_forked);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, system_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, system_call_returned);
    qemu_plugin_register_atexit_cb(id, process_ends, NULL);
    return 0;
}
