/* Runs a network on inputs that are linked in; prints for each the ticks that it took, and the output's bits. */
#include "board.h"
#include "_inputs.h"

static uint32_t laps[LAPS];
static int passed;

void lap(void) { laps[passed++] = ticks(); }

static void print_word(uint32_t word)
{
    char text[] = "........ ";
    for (int i = 0; i < 8; i++) text[i] = "0123456789abcdef"[word >> (28 - 4 * i) & 15];
    print(text);
}

int main(void)
{
    static union {
        OUTPUT values[OUTPUT_SIZE];
        uint32_t u[OUTPUT_SIZE];
    } output;
    for (int i = 0; i < INPUTS; i++) {
        passed = 0;
        start_clock();
        RUN(inputs[i], output.values);
        lap();
        for (int k = 0; k < LAPS; k++) print_word(laps[k]);
        for (int k = 0; k < OUTPUT_SIZE; k++) print_word(output.u[k]);
        print("\n");
    }
    return 0;
}
