/* Prints the class of each frame and how long it took; written by bitfactor. Copy it before you change it. */
#include <stdio.h>

#include "hardware/clocks.h"
#include "pico/stdlib.h"

#include "camera_frame.h"

int main(void)
{
    stdio_init_all();
    for (;;) {
        uint32_t begun, taken;
        int32_t found;
        read_frame();
        begun = time_us_32();
        found = classify();
        taken = time_us_32() - begun;
        printf("class %d %s, microseconds %lu, cycles %llu\n", (int)found, name_of(found), (unsigned long)taken,
               (unsigned long long)taken * clock_get_hz(clk_sys) / 1000000);
        sleep_ms(1000);
    }
}
