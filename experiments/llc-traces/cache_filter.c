/*
 * A plugin of QEMU's user mode: what a program asks of the last-level cache.
 *
 * Every instruction fetch, load and store of the guest goes through one core's private caches (L1I and L1D of 32 KiB,
 * 8 ways; L2 of 1 MiB, 16 ways; LRU, write-back, lines of 64 bytes; L2 holds no promise for L1's lines, as in Intel's
 * server cores since Skylake). What misses L2, and what L2 gives up, is written as records (below). All threads of
 * the guest share the one core: each thread's accesses are kept in a batch and go through when it is full or when the
 * thread makes a system call, as if the core switched between them.
 *
 * The kernel's copies are seen on the user's side: what read(2) fills is stored to, what write(2) takes is loaded.
 * Not seen: the page cache, zeroed pages, page walks, prefetchers. Children that are executed run outside the plugin.
 *
 * Options, after the plugin's path: out=FILE stats=FILE [start=now]
 *   start   "now" records the whole program; else from the mark getpriority(MARK, 1) to getpriority(MARK, 0)
 *
 * A record is a little-endian u64: line << 22 | instructions since the record before << 3 | kind. Kinds 0 to 4 are
 * those of nigh-sim's `AccessKind`; 7 carries instructions alone, where they do not fit.
 *
 * Debian's qemu-user can load plugins but comes without their header, so the part of API version 1 used is declared
 * here (documented at https://www.qemu.org/docs/master/devel/tcg-plugins.html).
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- QEMU's plugin API, version 1 ---- */
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t qemu_info_t;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *),
                                          enum qemu_plugin_cb_flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *),
                                      enum qemu_plugin_cb_flags, enum qemu_plugin_mem_rw, void *);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t,
                                          void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned, int64_t, int64_t));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);

EXPORT int qemu_plugin_version = 1;

/* ---- The private caches ---- */
enum { LINE_SHIFT = 6, L1_SETS = 64, L1_WAYS = 8, L2_SETS = 1024, L2_WAYS = 16 };
enum kind { FETCH, LOAD, STORE, CLEAN_EVICTION, DIRTY_EVICTION, INSTRUCTIONS_ONLY = 7 };

#define EMPTY UINT64_MAX
/* A way holds line << 1 | dirty; the ways of a set stand from the most to the least recently used. */
static uint64_t l1i[L1_SETS][L1_WAYS], l1d[L1_SETS][L1_WAYS], l2[L2_SETS][L2_WAYS];

static uint64_t instructions, accesses, l1_misses, l2_misses, evictions, records;

/* ---- Records ---- */
enum { RECORDS_HELD_MAX = 1 << 15, DELTA_BITS = 19 };
static uint64_t held[RECORDS_HELD_MAX];
static size_t held_count;
static FILE *out;
static const char *stats_path;
static pid_t recorder_pid;
static uint64_t last_record_at;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void write_held(void) {
    /* A forked child has a copy of what is held; only the parent writes it. */
    if (getpid() == recorder_pid && fwrite(held, sizeof held[0], held_count, out) != held_count)
        fail("cache_filter: the records cannot be written");
    held_count = 0;
}

static void put(uint64_t record) {
    held[held_count++] = record;
    if (held_count == RECORDS_HELD_MAX)
        write_held();
}

static volatile bool recording;

static void record(uint64_t line, enum kind kind) {
    const uint64_t most = (1ULL << DELTA_BITS) - 1;
    uint64_t delta = instructions - last_record_at;
    last_record_at = instructions;
    for (; delta > most; delta -= most)
        put(most << 3 | INSTRUCTIONS_ONLY);
    put(line << (DELTA_BITS + 3) | delta << 3 | kind);
    records++;
}

/* Puts `way` in front of a set; gives what falls off its end. */
static inline uint64_t insert(uint64_t *set, int ways, uint64_t way) {
    uint64_t victim = set[ways - 1];
    memmove(set + 1, set, (ways - 1) * sizeof *set);
    set[0] = way;
    return victim;
}

/* Whether the line is in the set; if so it is now in front, and dirty if it was or `dirty` is 1. */
static inline bool touch(uint64_t *set, int ways, uint64_t line, uint64_t dirty) {
    for (int i = 0; i < ways; i++) {
        if (set[i] >> 1 == line) {
            uint64_t way = set[i] | dirty;
            memmove(set + 1, set, i * sizeof *set);
            set[0] = way;
            return true;
        }
    }
    return false;
}

static void record_eviction(uint64_t way) {
    evictions++;
    record(way >> 1, way & 1 ? DIRTY_EVICTION : CLEAN_EVICTION);
}

static void fill_l2(uint64_t line, uint64_t dirty) {
    uint64_t victim = insert(l2[line % L2_SETS], L2_WAYS, line << 1 | dirty);
    if (victim != EMPTY)
        record_eviction(victim);
}

static inline void access_line(uint64_t (*l1)[L1_WAYS], uint64_t line, enum kind kind) {
    uint64_t *set = l1[line % L1_SETS];
    uint64_t dirty = kind == STORE;
    accesses++;
    if (set[0] >> 1 == line) {
        set[0] |= dirty;
        return;
    }
    if (touch(set, L1_WAYS, line, dirty))
        return;
    l1_misses++;
    if (!touch(l2[line % L2_SETS], L2_WAYS, line, 0)) {
        l2_misses++;
        record(line, kind);
        fill_l2(line, 0);
    }
    uint64_t victim = insert(set, L1_WAYS, line << 1 | dirty);
    if (victim != EMPTY && victim & 1 && !touch(l2[(victim >> 1) % L2_SETS], L2_WAYS, victim >> 1, 1))
        fill_l2(victim >> 1, 1);
}

/* ---- Batches, one a thread ---- */
enum { THREADS_MAX = 512, BATCH_MAX = 1024 };
enum tag { TAG_BLOCK, TAG_LOAD, TAG_STORE };

/* A translated block: what running it fetches. QEMU may run one as long as it lives, so none is freed. */
struct block {
    uint64_t first_line, last_line;
    uint32_t instructions;
};

struct batch {
    uint64_t entries[BATCH_MAX]; /* tag << 62 | line or pointer to a block */
    unsigned count;
    uint64_t buffer, length; /* of the read or write that is under way */
};
static struct batch batches[THREADS_MAX];
static pthread_mutex_t core = PTHREAD_MUTEX_INITIALIZER;
static unsigned threads; /* the most seen */

static void write_stats(void) {
    if (getpid() != recorder_pid)
        return;
    FILE *file = fopen(stats_path, "w");
    if (!file)
        fail("cache_filter: the stats cannot be written");
    fprintf(file,
            "{\"instructions\": %" PRIu64 ", \"accesses\": %" PRIu64 ", \"l1_misses\": %" PRIu64
            ", \"l2_misses\": %" PRIu64 ", \"evictions\": %" PRIu64 ", \"records\": %" PRIu64 ", \"threads\": %u}\n",
            instructions, accesses, l1_misses, l2_misses, evictions, records, threads);
    if (fclose(file))
        fail("cache_filter: the stats cannot be written");
}

static void empty_caches(void) {
    memset(l1i, 0xff, sizeof l1i);
    memset(l1d, 0xff, sizeof l1d);
    memset(l2, 0xff, sizeof l2);
}

static void begin(void) {
    empty_caches();
    recording = true;
}

/* What the private caches still hold goes down, as it will when something else runs on the core. */
static void end(void) {
    recording = false;
    for (int set = 0; set < L1_SETS; set++)
        for (int way = 0; way < L1_WAYS; way++) {
            uint64_t line = l1d[set][way] >> 1;
            if (l1d[set][way] != EMPTY && l1d[set][way] & 1 && !touch(l2[line % L2_SETS], L2_WAYS, line, 1))
                fill_l2(line, 1);
        }
    for (int set = 0; set < L2_SETS; set++)
        for (int way = L2_WAYS; way-- > 0;)
            if (l2[set][way] != EMPTY)
                record_eviction(l2[set][way]);
    write_held();
    if (getpid() == recorder_pid && fflush(out))
        fail("cache_filter: the records cannot be written");
    write_stats();
}

static void run_block(const struct block *block) {
    instructions += block->instructions;
    for (uint64_t line = block->first_line; line <= block->last_line; line++)
        access_line(l1i, line, FETCH);
}

static void drain(struct batch *batch) {
    pthread_mutex_lock(&core);
    for (unsigned i = 0; i < batch->count; i++) {
        uint64_t what = batch->entries[i] & ((1ULL << 62) - 1);
        switch ((enum tag)(batch->entries[i] >> 62)) {
        case TAG_BLOCK:
            run_block((const struct block *)what);
            break;
        case TAG_LOAD:
            access_line(l1d, what, LOAD);
            break;
        case TAG_STORE:
            access_line(l1d, what, STORE);
            break;
        }
    }
    batch->count = 0;
    pthread_mutex_unlock(&core);
}

static inline void add(struct batch *batch, enum tag tag, uint64_t what) {
    batch->entries[batch->count++] = (uint64_t)tag << 62 | what;
    if (batch->count == BATCH_MAX)
        drain(batch);
}

static inline void add_bytes(struct batch *batch, enum tag tag, uint64_t address, uint64_t bytes) {
    for (uint64_t line = address >> LINE_SHIFT; line <= (address + bytes - 1) >> LINE_SHIFT; line++)
        add(batch, tag, line);
}

/* ---- What QEMU calls ---- */
static inline struct batch *batch_of(unsigned thread) {
    if (thread >= THREADS_MAX) {
        fprintf(stderr, "cache_filter: more than %d threads\n", THREADS_MAX);
        exit(1);
    }
    if (thread >= threads)
        threads = thread + 1;
    return &batches[thread];
}

static inline void on_memory(unsigned thread, qemu_plugin_meminfo_t info, uint64_t address, enum tag tag) {
    if (!recording)
        return;
    /* No access is longer than 32 bytes, so only one that starts in the second half can reach the next line. */
    uint64_t bytes = (address & 63) > 32 ? 1ULL << qemu_plugin_mem_size_shift(info) : 1;
    add_bytes(batch_of(thread), tag, address, bytes);
}

static void on_load(unsigned thread, qemu_plugin_meminfo_t info, uint64_t address, void *unused) {
    (void)unused;
    on_memory(thread, info, address, TAG_LOAD);
}

static void on_store(unsigned thread, qemu_plugin_meminfo_t info, uint64_t address, void *unused) {
    (void)unused;
    on_memory(thread, info, address, TAG_STORE);
}

static void on_block(unsigned thread, void *block) {
    if (recording)
        add(batch_of(thread), TAG_BLOCK, (uint64_t)block);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(tb);
    if (count == 0)
        return;
    struct block *block = malloc(sizeof *block);
    if (!block)
        fail("cache_filter: no memory for a block");
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, count - 1);
    block->instructions = count;
    block->first_line = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0)) >> LINE_SHIFT;
    block->last_line = (qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last) - 1) >> LINE_SHIFT;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        qemu_plugin_register_vcpu_mem_cb(insn, on_load, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_R, NULL);
        qemu_plugin_register_vcpu_mem_cb(insn, on_store, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_W, NULL);
    }
}

static const uint64_t MARK = 0x4e696768; /* "Nigh": no `which` that getpriority(2) knows */

static void on_syscall(qemu_plugin_id_t id, unsigned thread, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                       uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    struct batch *batch = batch_of(thread);
    if (recording)
        drain(batch);
    if (number == SYS_getpriority && (uint32_t)a1 == MARK) {
        pthread_mutex_lock(&core);
        if (a2)
            begin();
        else
            end();
        pthread_mutex_unlock(&core);
    }
    batch->buffer = a2;
    batch->length = a3;
}

static void on_syscall_return(qemu_plugin_id_t id, unsigned thread, int64_t number, int64_t result) {
    (void)id;
    struct batch *batch = batch_of(thread);
    if (!recording || result <= 0 || (uint64_t)result > batch->length)
        return;
    if (number == SYS_read || number == SYS_pread64)
        add_bytes(batch, TAG_STORE, batch->buffer, result);
    else if (number == SYS_write || number == SYS_pwrite64)
        add_bytes(batch, TAG_LOAD, batch->buffer, result);
}

static void on_exit_of_guest(qemu_plugin_id_t id, void *unused) {
    (void)id, (void)unused;
    if (recording)
        end();
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    (void)info;
    bool now = false;
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        value = value ? value + 1 : argv[i] + strlen(argv[i]);
        if (!strncmp(argv[i], "out=", 4)) {
            out = fopen(value, "wb");
        } else if (!strncmp(argv[i], "stats=", 6)) {
            stats_path = strdup(value);
        } else if (!strcmp(argv[i], "start=now")) {
            now = true;
        } else {
            fprintf(stderr, "cache_filter: unknown option %s\n", argv[i]);
            return 1;
        }
    }
    if (!out || !stats_path) {
        fprintf(stderr, "cache_filter: out=FILE and stats=FILE are needed, and must be writable\n");
        return 1;
    }
    recorder_pid = getpid();
    if (now)
        begin();
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_syscall_return);
    qemu_plugin_register_atexit_cb(id, on_exit_of_guest, NULL);
    return 0;
}
