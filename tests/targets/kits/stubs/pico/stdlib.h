#include <stdint.h>
void stdio_init_all(void);
uint32_t time_us_32(void);
void sleep_ms(uint32_t ms);
