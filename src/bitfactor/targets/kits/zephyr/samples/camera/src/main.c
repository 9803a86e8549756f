/* Prints the class of each frame and how long it took; written by bitfactor. Copy it before you change it. */
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "camera_frame.h"

int main(void)
{
    for (;;) {
        uint32_t begun, taken;
        int32_t found;
        read_frame();
        begun = k_cycle_get_32();
        found = classify();
        taken = k_cycle_get_32() - begun;
        printk("class %d %s, microseconds %u\n", (int)found, name_of(found), (unsigned)k_cyc_to_us_floor32(taken));
        k_msleep(1000);
    }
    return 0;
}
