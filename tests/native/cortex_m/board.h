#include <stdint.h>

void print(const char *text);
void start_clock(void);
uint32_t ticks(void); /* since the start, of 40 instructions each */
void lap(void);
