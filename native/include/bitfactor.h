/* bitfactor: runs a frozen binary network (a file .bfp, as `bitfactor freeze` writes it) on a CPU.
 *
 *     bf_error error;
 *     bf_network* network = bf_open("net.bfp", &error);
 *     if (!network) { fprintf(stderr, "%s\n", error.text); return 1; }
 *     const float* inputs[] = {x};   // one pointer for each input, samples one behind the other
 *     float* outputs[] = {y};        // likewise
 *     if (bf_run(network, 1, inputs, outputs, &error) != BF_OK) ...
 *     bf_free(network);
 *
 * Whatever the file holds, a function gives a status and a sentence; nothing is thrown, exits or is printed,
 * and there is no global state. `error` may be NULL. A network may be run from several threads at once; what
 * changes one (bf_set_*, bf_free) needs it alone. A run allocates nothing, once there was one of as many
 * samples.
 */
#ifndef BITFACTOR_H
#define BITFACTOR_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(BITFACTOR_BUILDS_SHARED)
#define BF_API __declspec(dllexport)
#elif defined(_WIN32) && !defined(BITFACTOR_STATIC)
#define BF_API __declspec(dllimport)
#elif defined(_WIN32)
#define BF_API
#else
#define BF_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum bf_status {
    BF_OK = 0,
    BF_BAD_ARGUMENT, /* a null pointer, an unknown name, a number out of range */
    BF_BAD_FILE,     /* no frozen program, damaged, of another version, or one that cannot run */
    BF_NOT_FOUND,    /* no such file, or the program does not have what was asked for */
    BF_NOT_FINITE,   /* the input holds NaN or infinity, or an output NaN; the outputs mean nothing */
    BF_DIFFERENT,    /* bf_verify: the outputs are not the golden ones */
    BF_NO_MEMORY,
    BF_FAILED /* the system did not give a thread, say; the text tells */
} bf_status;

typedef struct bf_error {
    bf_status status;
    char text[508]; /* what was expected, what was found, what to do; "" where all went well */
} bf_error;

typedef struct bf_network bf_network;

/* All values are float; which ones an output takes: */
typedef enum bf_values { BF_REAL = 0, BF_INTEGERS, BF_SIGNS /* -1 and +1 */ } bf_values;

typedef struct bf_tensor {
    const char* name; /* lives as long as the network */
    bf_values values;
    size_t dimensions;
    size_t shape[6]; /* of one sample, as in torch: (channels, height, width), or (features) */
    size_t size;     /* floats of one sample */
} bf_tensor;

/* How an image becomes the input: resized, cropped in the centre, then (x / 255 - mean) / std. */
typedef struct bf_image {
    int height, width, resize_height, resize_width;
    int keep_aspect; /* resized until it just covers the size, in its own proportions */
    int channels;    /* 1 is grey, 3 are red, green, blue */
    float mean[3], std[3];
} bf_image;

/* The memory, at a multiple of 8 bytes, is not copied: it stays until bf_free. NULL if it holds no program
 * that can run. Threads are as many as `bitfactor freeze --threads` said, 1 by default. */
BF_API bf_network* bf_load(const void* memory, size_t bytes, bf_error* error);
BF_API bf_network* bf_open(const char* path, bf_error* error);
/* For files from strangers: BF_NO_MEMORY, before it is allocated, where the network would take more than so
 * many bytes. They are the file (where it is opened), the weights as kernels hold them, and the memory of
 * each sample under way, in later runs too. Another instruction set, or other threads, may take as many
 * again. */
BF_API bf_network* bf_load_within(const void* memory, size_t bytes, size_t most_bytes, bf_error* error);
BF_API bf_network* bf_open_within(const char* path, size_t most_bytes, bf_error* error);
BF_API void bf_free(bf_network* network); /* NULL is fine */

/* Results do not depend on the threads, nor on the instruction set. */
BF_API bf_status bf_set_threads(bf_network* network, int threads, bf_error* error);
BF_API bf_status bf_set_instruction_set(bf_network* network, const char* name, bf_error* error);
BF_API const char* bf_instruction_set(const bf_network* network);
/* The i-th best of this machine; NULL beyond the last. */
BF_API const char* bf_instruction_sets(size_t i);

BF_API size_t bf_input_count(const bf_network* network);
BF_API size_t bf_output_count(const bf_network* network);
BF_API bf_status bf_input(const bf_network* network, size_t i, bf_tensor* tensor, bf_error* error);
BF_API bf_status bf_output(const bf_network* network, size_t i, bf_tensor* tensor, bf_error* error);

/* The names of classes, or of keypoints where the network has edges: pairs of them that a limb connects. */
BF_API size_t bf_label_count(const bf_network* network);
BF_API const char* bf_label(const bf_network* network, size_t i); /* NULL beyond the last */
BF_API size_t bf_edge_count(const bf_network* network);
BF_API bf_status bf_edge(const bf_network* network, size_t i, int32_t pair[2], bf_error* error);
BF_API bf_status bf_image_of(const bf_network* network, bf_image* image, bf_error* error);

/* From an image to the input of one sample, as bf_image says. Pixels are rows from the top, each pixel's
 * channels side by side: 1 grey, 3 red, green, blue, 4 with an alpha that is left out. */
BF_API bf_status bf_prepare_image(const bf_network* network, const uint8_t* pixels, int height, int width,
                                  int channels, float* input, bf_error* error);

/* Inputs and outputs do not share memory: BF_BAD_ARGUMENT where they do. */
BF_API bf_status bf_run(bf_network* network, size_t samples, const float* const* inputs,
                        float* const* outputs, bf_error* error);

/* Runs the golden input of the file: BF_DIFFERENT if an output has other bits than the golden one.
 * `difference`, if not NULL, gets the largest. */
BF_API bf_status bf_verify(bf_network* network, float* difference, bf_error* error);

#ifdef __cplusplus
}
#endif

#endif
