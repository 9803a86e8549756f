/* Says what is in an image, with the C library and stb_image (Debian: libstb-dev).
 *
 *     bitfactor freeze digits -o digits.bfp
 *     cc classify.c -o classify $(pkg-config --cflags --libs bitfactor stb) -lm
 *     ./classify digits.bfp image.png
 */
#include <bitfactor.h>
#include <stdio.h>
#include <stdlib.h>

#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

static int fail(const char *what, const char *text) {
    fprintf(stderr, "%s: %s\n", what, text);
    return 2;
}

static int classify(bf_network *network, const char *path) {
    bf_error error;
    bf_tensor x, y;
    if (bf_input(network, 0, &x, &error) || bf_output(network, 0, &y, &error)) return fail(path, error.text);
    if (y.dimensions != 1) return fail(path, "expected a network that gives a score for each class");
    int width, height, channels;
    unsigned char *pixels = stbi_load(path, &width, &height, &channels, 3);
    if (!pixels) return fail(path, stbi_failure_reason());
    float *input = malloc(x.size * sizeof *input), *scores = malloc(y.size * sizeof *scores);
    const float *inputs[] = {input};
    float *outputs[] = {scores};
    int status = 2;
    if (!input || !scores) {
        fail(path, "out of memory");
    } else if (bf_prepare_image(network, pixels, height, width, 3, input, &error) ||
               bf_run(network, 1, inputs, outputs, &error)) {
        fail(path, error.text);
    } else {
        size_t best = 0;
        for (size_t i = 1; i < y.size; ++i) {
            if (scores[i] > scores[best]) best = i;
        }
        const char *label = bf_label(network, best);
        if (label) printf("%s: %s, score %.3f\n", path, label, scores[best]);
        else printf("%s: class %zu, score %.3f\n", path, best, scores[best]);
        status = 0;
    }
    free(scores);
    free(input);
    stbi_image_free(pixels);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) return fail("usage", "classify NET.bfp IMAGE...");
    bf_error error;
    bf_network *network = bf_open(argv[1], &error);
    if (!network) return fail(argv[1], error.text);
    int status = 0;
    for (int i = 2; i < argc && !status; ++i) status = classify(network, argv[i]);
    bf_free(network);
    return status;
}
