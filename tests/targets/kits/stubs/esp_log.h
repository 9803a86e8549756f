void esp_log_write(const char* tag, const char* format, ...) __attribute__((format(printf, 2, 3)));
#define ESP_LOGI(tag, format, ...) esp_log_write(tag, format, __VA_ARGS__)
