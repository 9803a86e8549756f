void vTaskDelay(uint32_t ticks);
