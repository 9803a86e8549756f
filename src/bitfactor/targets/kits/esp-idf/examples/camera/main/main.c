/* Prints the class of each frame and how long it took; written by bitfactor. Copy it before you change it. */
#include "esp_cpu.h"
#include "esp_log.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"

#include "camera_frame.h"

void app_main(void)
{
    for (;;) {
        uint32_t begun, taken;
        int32_t found;
        read_frame();
        begun = esp_cpu_get_cycle_count();
        found = classify();
        taken = esp_cpu_get_cycle_count() - begun;
        ESP_LOGI("camera", "class %d %s, cycles %u", (int)found, name_of(found), (unsigned)taken);
        vTaskDelay(pdMS_TO_TICKS(1000));
    }
}
