// passes PASSES SET NET.bfp ...: checks golden outputs, then runs, with a mark of count.c after each pass.
#include <bitfactor.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

bool run(int passes, const char* set, const char* path, bf_error& error) {
    bf_network* network = bf_open(path, &error);
    bf_tensor input, output;
    if (!network || bf_set_instruction_set(network, set, &error) || bf_verify(network, nullptr, &error) ||
        bf_input(network, 0, &input, &error) || bf_output(network, 0, &output, &error))
        return false;
    std::vector<float> x(input.size), y(output.size);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i * 37 % 101) / 50 - 1;
    const float* inputs[] = {x.data()};
    float* outputs[] = {y.data()};
    for (int pass = 0; pass <= passes; ++pass) {
        if (bf_run(network, 1, inputs, outputs, &error)) return false;
        getppid();
    }
    bf_free(network);
    return true;
}

}  // namespace

int main(int count, char** arguments) {
    for (int i = 3; i < count; ++i) {
        bf_error error;
        std::fprintf(stderr, "bitfactor: %s\n", arguments[i]);
        if (!run(std::atoi(arguments[1]), arguments[2], arguments[i], error)) {
            std::fprintf(stderr, "%s\n", error.text);
            return 1;
        }
    }
}
