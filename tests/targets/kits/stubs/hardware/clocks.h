#include <stdint.h>
enum clock_index { clk_sys };
uint32_t clock_get_hz(enum clock_index clock);
