/* The least that a program needs on the board: vectors, memory set up, text and an end by semihosting, a clock. */
#include "board.h"

extern uint32_t data_begin[], data_end[], data_image[], bss_begin[], bss_end[];

int main(void);

#ifdef __riscv
static int host(int operation, const void *argument)
{
    register int a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = argument;
    __asm__ volatile(".balign 16\n.option push\n.option norvc\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}
#else
static int host(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
#endif

void print(const char *text) { host(4, text); }

static void end(void)
{
    static const uint32_t success[] = {0x20026, 0};
    host(0x20, success);
    for (;;) {
    }
}

static void fault(void)
{
    print("fault\n");
    end();
}

static void start(void)
{
    for (uint32_t *to = data_begin, *from = data_image; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_begin; to < bss_end;) *to++ = 0;
    main();
    end();
}

#ifdef __riscv
__attribute__((section(".vectors"), naked, used)) void reset(void)
{
    __asm__ volatile(".option arch, +zicsr\nla sp, stack_end\nla t0, %0\ncsrw mtvec, t0\nj %1" : : "i"(fault), "i"(start));
}

/* Instructions, as the emulator counts them. */
static uint32_t begun;

static uint32_t count(void)
{
    uint32_t n;
    __asm__ volatile(".option arch, +zicsr\ncsrr %0, minstret" : "=r"(n));
    return n;
}

void start_clock(void) { begun = count(); }

uint32_t ticks(void) { return count() - begun; }
#else
void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* the floating-point unit, where there is one */
    __asm__ volatile("dsb\n isb");
    start();
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))0x20400000, reset, fault, fault, fault, fault, fault};

/* A timer of 25 MHz, in the emulator's time: with -icount shift=0 an instruction is a nanosecond. */
#define TIMER ((volatile uint32_t *)0x40000000)

void start_clock(void)
{
    TIMER[2] = 0xFFFFFFFF;
    TIMER[1] = 0xFFFFFFFF;
    TIMER[0] = 1;
}

uint32_t ticks(void) { return 0xFFFFFFFF - TIMER[1]; }
#endif
