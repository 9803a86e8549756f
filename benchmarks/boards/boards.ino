/* Prints what a run takes on this board, for a row of boards.csv: the shortest of ten. README.md says how. */
#include <network.h>

#ifndef F_CPU
#error "This package does not state the clock: write #define F_CPU above, in Hz, say 64000000L"
#endif

static uint8_t pixels[NETWORK_PIXELS_SIZE];
static int32_t scores[NETWORK_OUTPUT_SIZE];

void setup()
{
    uint32_t state = 1;
    Serial.begin(115200);
    for (uint32_t i = 0; i < NETWORK_PIXELS_SIZE; i++) {
        state = state * 1664525u + 1013904223u;
        pixels[i] = (uint8_t)(state >> 24);
    }
}

static void print(const char *name, unsigned long value)
{
    Serial.print(name);
    Serial.println(value);
}

void loop()
{
    unsigned long least = 0xFFFFFFFF;
    uint32_t checksum = 2166136261u;
    for (int i = 0; i < 10; i++) {
        const unsigned long begun = micros();
        network_run_image(pixels, scores);
        const unsigned long taken = micros() - begun;
        if (taken < least) least = taken;
    }
    for (int i = 0; i < NETWORK_OUTPUT_SIZE; i++) checksum = (checksum ^ (uint32_t)scores[i]) * 16777619u;
    Serial.print("compiler ");
    Serial.println(__VERSION__);
    print("clock_mhz ", F_CPU / 1000000);
    print("cycles ", (unsigned long)((uint64_t)least * F_CPU / 1000000));
    print("microseconds ", least);
    print("checksum ", checksum);
    delay(5000);
}
