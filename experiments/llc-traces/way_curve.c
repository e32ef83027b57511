/*
 * Misses of a last-level cache by the number of its ways, exact, from the records of cache_filter.c.
 *
 * The cache is the 11-way one of a Xeon Silver 4210R: ten slices of 2,048 sets, 1.25 MiB a way, LRU. One pass gives
 * every way count at once, since what a set of w ways holds are the w most recent lines of a set of w + 1 (Mattson et
 * al., 1970). Virtual pages lie in random frames, and a hash spreads lines over slices. With SAMPLE, one line in so
 * many is kept, by the hash that nigh-sim's `Sampling` has, and meets a cache with one in so many of the sets; its
 * misses are printed times SAMPLE, so that both are of one scale.
 *
 * This shares no code with nigh-sim, so that each can be held against the other.
 *
 *     way_curve RECORDS [SAMPLE]      prints {"cold": [...], "warm": [...]}, misses with 1 to 11 ways
 *
 * "cold" begins with an empty cache; "warm" is the same trace once more, after itself.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { WAYS = 11, SLICES = 10, SETS_PER_SLICE = 2048, LINES_PER_PAGE = 64 };

static uint64_t sets[SLICES * SETS_PER_SLICE][WAYS];

static uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

/* The finaliser of MurmurHash3. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static void pass(const uint64_t *records, size_t count, unsigned sample, uint64_t misses[WAYS]) {
    uint64_t at_depth[WAYS + 1] = {0};
    for (size_t i = 0; i < count; i++) {
        if ((records[i] & 7) > 2)
            continue;
        uint64_t line = records[i] >> 22;
        if (sample > 1 && mix(line) / (UINT64_MAX / sample + 1))
            continue;
        uint64_t frame = scramble(line / LINES_PER_PAGE + 1) >> 20;
        uint64_t physical = frame * LINES_PER_PAGE + line % LINES_PER_PAGE;
        unsigned sets_per_slice = SETS_PER_SLICE / sample;
        uint64_t *set = sets[scramble(physical) % SLICES * sets_per_slice + physical % sets_per_slice];
        int depth = 0;
        while (depth < WAYS && set[depth] != line)
            depth++;
        at_depth[depth]++;
        memmove(set + 1, set, (depth < WAYS ? depth : WAYS - 1) * sizeof *set);
        set[0] = line;
    }
    uint64_t sum = at_depth[WAYS];
    for (int ways = WAYS; ways >= 1; ways--) {
        misses[ways - 1] = sum * sample;
        sum += at_depth[ways - 1];
    }
}

static void print(const char *name, const uint64_t misses[WAYS]) {
    printf("\"%s\": [", name);
    for (int i = 0; i < WAYS; i++)
        printf("%s%" PRIu64, i ? ", " : "", misses[i]);
    printf("]");
}

int main(int argc, char **argv) {
    unsigned sample = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    struct stat status;
    if (file < 0 || fstat(file, &status) || sample == 0 || SETS_PER_SLICE % sample) {
        fprintf(stderr, "way_curve RECORDS [SAMPLE]: a readable file, and a power of two up to 2048\n");
        return 1;
    }
    const uint64_t *records = NULL;
    if (status.st_size > 0) {
        records = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (records == MAP_FAILED) {
            perror("way_curve");
            return 1;
        }
    }
    size_t count = status.st_size / sizeof *records;
    memset(sets, 0xff, sizeof sets);
    uint64_t cold[WAYS], warm[WAYS];
    pass(records, count, sample, cold);
    pass(records, count, sample, warm);
    printf("{");
    print("cold", cold);
    printf(", ");
    print("warm", warm);
    printf("}\n");
    return 0;
}
