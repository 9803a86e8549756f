/* Runs the golden input of each file with each instruction set of this machine; in C99, without C++. */
#include <bitfactor.h>
#include <stdio.h>

int main(int argc, char **argv) {
    bf_error error;
    for (int i = 1; i < argc; ++i) {
        bf_network *network = bf_open(argv[i], &error);
        if (!network) {
            fprintf(stderr, "%s: %s\n", argv[i], error.text);
            return 1;
        }
        for (size_t k = 0; bf_instruction_sets(k); ++k) {
            if (bf_set_instruction_set(network, bf_instruction_sets(k), &error) ||
                bf_verify(network, NULL, &error)) {
                fprintf(stderr, "%s, %s: %s\n", argv[i], bf_instruction_sets(k), error.text);
                return 1;
            }
            printf("%s by %s: the golden outputs\n", argv[i], bf_instruction_sets(k));
        }
        bf_free(network);
    }
    return 0;
}
