#include <stdint.h>

void print(const char *text);
void start_clock(void);
uint32_t ticks(void); /* since the start, as the clock steps */
void lap(void);
