#include <stdint.h>
#define pdMS_TO_TICKS(ms) (ms)
