/* From a frame of a camera, in RGB565, to a class; written by bitfactor. Copy it before you change it. */
#ifndef CAMERA_FRAME_H
#define CAMERA_FRAME_H

#include "@file@.h"

#ifndef FRAME_WIDTH
#define FRAME_WIDTH 96
#define FRAME_HEIGHT 96
#endif
#ifndef HIGH_BYTE_FIRST
#define HIGH_BYTE_FIRST 0 /* 1 for a camera that sends the high byte of a pixel first */
#endif

static uint8_t frame[FRAME_HEIGHT * FRAME_WIDTH * 2];
static uint8_t pixels[@NAME@_PIXELS_SIZE];
static int32_t scores[@NAME@_OUTPUT_SIZE];

/* Your camera's driver comes here. Until then a frame is a test image. */
static void read_frame(void)
{
    for (uint32_t y = 0, at = 0; y < FRAME_HEIGHT; y++) {
        for (uint32_t x = 0; x < FRAME_WIDTH; x++, at += 2) {
            const uint32_t red = y * 32 / FRAME_HEIGHT, green = x * 64 / FRAME_WIDTH, blue = (x ^ y) & 31;
            frame[at + HIGH_BYTE_FIRST] = (uint8_t)(green << 5 | blue);
            frame[at + 1 - HIGH_BYTE_FIRST] = (uint8_t)(red << 3 | green >> 3);
        }
    }
}

/* The class of the largest score, the first of equal ones. */
static int32_t classify(void)
{
    int32_t best = 0;
    for (uint32_t at = 0; HIGH_BYTE_FIRST && at < sizeof frame; at += 2) {
        const uint8_t high = frame[at];
        frame[at] = frame[at + 1], frame[at + 1] = high;
    }
    @name@_prepare(frame, FRAME_HEIGHT, FRAME_WIDTH, @NAME@_RGB565, pixels);
    @name@_run_image(pixels, scores);
    for (int32_t i = 1; i < @NAME@_OUTPUT_SIZE; i++) {
        if (scores[i] > scores[best]) best = i;
    }
    return best;
}

static const char *name_of(int32_t number)
{
    return @label@;
}

#endif
