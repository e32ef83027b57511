/* A small program whose memory accesses are the same in every run: no library, no start-up code, a stack of its own, fixed
 * addresses. It reads and writes at random, in order and across line borders, and its code is larger than a small first
 * level, so that every kind of miss occurs. */
#include <stdint.h>

#define WORDS 6144 /* 48 KiB */

static uint64_t table[WORDS] __attribute__((aligned(64)));
static char stack[16384] __attribute__((aligned(64), used));
static uint32_t state = 2463534242u;

static uint32_t next(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* Two hundred steps in a row, unrolled: code of many lines. */
#define STEP table[(mix = mix * 5 + 7) % 512] ^= mix;
#define TEN(step) step step step step step step step step step step
static __attribute__((noinline)) void long_code(uint32_t mix)
{
    TEN(TEN(STEP)) TEN(TEN(STEP))
}

static __attribute__((noinline)) uint64_t walk(void)
{
    uint64_t sum = 0;
    for (int round = 0; round < 12; round++) {
        for (int step = 0; step < 700; step++)
            sum += table[next() % WORDS];
        for (int step = 0; step < 700; step++)
            table[next() % 1500] = step;
        for (int word = 0; word < 2048; word += 3)
            table[word] += round;
        for (int step = 0; step < 300; step++) /* any byte: every eighth of these touches two lines */
            sum += *(volatile uint64_t __attribute__((aligned(1))) *)((char *)table + next() % (8 * WORDS - 8));
        long_code(round);
    }
    return sum;
}

__attribute__((used)) static void run(void)
{
    volatile uint64_t sink = walk();
    (void)sink;
    __asm__ volatile("mov $60, %eax; xor %edi, %edi; syscall");
    __builtin_unreachable();
}

__asm__(".globl _start\n_start: lea stack+16384(%rip), %rsp\n call run\n");
