// What an instruction set offers: one table of function pointers, filled by each file in isa/.
//
// Layout of values, one sample at a time:
//   - real numbers and integer sums: float, (pixels, channels), pixels in row-major order. Sums stay below
//     2^24, so a float holds them exactly;
//   - signs: 32-bit words, (pixels, words), channel c is bit c % 32 of word c / 32, 1 is +1, unused bits are
//   0.
//     The number of words is even, which makes it the 64-bit little-endian layout of bitfactor.format.bits.
//
// Every operation that makes a feature map gives it as rows, a few pixels at a time, into a small scratch
// that stays in the L1 cache; `epilogue` then does all that follows and writes to memory once.
//
// Results are the same bits in every set: integers are exact, a fused multiply-add is used where it is asked
// for by name and nowhere else, and no sum is reordered.

#pragma once

#include <cstddef>
#include <cstdint>

namespace bitfactor {

// A window that slides over a map. Sizes are in pixels; padding on the bottom and right follows from out_*.
struct Window {
    int in_h, in_w, out_h, out_w;
    int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
};

// A convolution of real numbers. A linear layer is one over a map of 1 x 1.
struct Conv {
    Window window;
    int groups, in_channels, out_channels;  // channels of one group
    const float* weight;                    // (groups, vectors, taps * in_channels, lanes), see pack.h
    const float* bias;                      // (groups, vectors, lanes)
    const float* padding;                   // (in_channels): zeros, read where a tap falls outside the map
    // (groups), or nullptr: a depthwise sum begins at 0, and then y = fma(sum, scale, bias).
    const float* scale = nullptr;
};

// Where the windows of a map of signs lie: in the map, or in a copy of its lines with their padding. Each is
// `runs` of so many words, at offsets from its corner.
struct SignLayout {
    bool padded;
    ptrdiff_t line, position, group;  // words from one to the next
    int runs, run_words;
    const ptrdiff_t* offsets;
};

// A convolution of signs by signs; its results are the exact sums.
struct BinaryConv {
    Window window;
    int groups, words, out_channels;  // `words`: 32-bit words of one group that hold signs
    int group_stride, pixel_stride;   // words from group to group and from pixel to pixel of the input
    SignLayout layout;
    const uint32_t* weight;   // (groups, vectors, taps * words, lanes), see pack.h
    const uint32_t* padding;  // (words): what a position outside the map is
    const int32_t* base;      // (classes, groups, vectors, lanes): sum = base - 2 * popcount
    const int* row_class;     // (out_h): a pixel's class begins at base[row_class[y] + column_class[x]]
    const int* column_class;  // (out_w)
};

// Words of the lines that the windows of so many pixels lie in.
static inline size_t band_words(const BinaryConv& conv, int pixels) {
    const Window& w = conv.window;
    const int rows = (pixels + w.out_w - 2) / w.out_w + 1;
    const int lines = (rows - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
    return conv.layout.padded ? lines * conv.layout.line : 0;
}

// Maximum or mean over a window.
struct Pool {
    Window window;
    int channels;
    bool count_include_pad;  // the mean divides by the taps inside the padded map, else by those inside the
                             // map
    int pad_bottom, pad_right;
};

// What many numbers become; the order is that of bitfactor.format.operations.pool.
enum class Reduction { mean, sum, max, min };

// A map whose rows and columns lie between two of another's, `down` and `along` of the way to the second.
struct Resize {
    int in_h, in_w, out_h, out_w, channels;
    const int32_t *top, *bottom, *left, *right;
    const float *down, *along;
};

constexpr int weigh_block = 32, integer_tile = 4;

// Of precision `integer`, see integer.h: x = cut(offset + rnd(x (x > 0 ? P : Q), k) + that of a second
// value). Constants are of channels, filled up to blocks of weigh_block.
struct Weigh {
    const int32_t *positive[2], *negative[2], *offset;
    int shift[2], lower, upper;
    bool two;    // there is a second value, in the stage's buffer
    bool bends;  // what is above 0 stays as it is
};

// A map of numbers as integers: rint(x factor + offset), cut.
struct Quantise {
    int period;                    // of the constants, whole pixels
    const float *factor, *offset;  // (period)
    double lower, upper;
};

// A convolution of 16-bit integers by 8-bit weights; sums fit 32 bits.
struct IntegerConv {
    Window window;
    int groups, in_channels, out_channels;  // channels of one group
    int pairs;                              // words of two values that a window of a group takes
    int largest;                            // magnitude of what is read
    const uint32_t* weight;                 // (groups, vectors, pairs, lanes): two weights a word
    const uint32_t* bias;                   // (groups, vectors, lanes)
    const float* factor;                    // likewise: M / 2^k, or what a sum stands for
    const int16_t* outside;                 // (groups * in_channels): what a tap outside the map is
    bool last;                              // sums are not rounded and cut, but given as real numbers
    float half;                             // what is added before they are: 0 for k = 0
};

// One thing that `epilogue` does to a row; x is the row's value so far.
struct Stage {
    enum Kind {
        scale,    // x = x * a
        affine,   // x = fma(x, a, b)
        relu,     // x = x > 0 ? x : 0
        prelu,    // x = x > 0 ? x : a * x
        clip,     // x = min(max(x, a), b)
        sigmoid,  // x = 1 / (1 + exp(-x))
        exp,
        log,
        sqrt,
        reciprocal,
        gelu,      // functions of x, see functions.h
        add,       // x = x + buffer[pixel], or of the buffer's only pixel where spread is true
        multiply,  // x = x * buffer[pixel], likewise
        store,     // buffer[pixel] = x
        signs,     // bits of buffer[pixel] = a * x > b; a is -1 or +1
        weigh,     // see Weigh
    } kind;
    const float* a;    // (channels), or (pixels, channels) where a_step is not 0
    const float* b;    // likewise, with b_step
    ptrdiff_t a_step;  // floats from pixel to pixel of a
    ptrdiff_t b_step;
    size_t buffer;  // byte offset in the arena
    bool spread;    // the buffer has one pixel, used for all
    const Weigh* weigher = nullptr;
};

struct ByteMap;
struct RunMap;

// A convolution of signs by signs as products of tiles, over the map of byte_map.h. A step is 64 channels of
// a tap.
struct TileConv {
    int steps, vectors, pixel_bytes;  // `vectors`: of 16 output channels
    const ptrdiff_t* offsets;         // (steps): bytes from a result's position to what the step reads
    const uint64_t* weight;           // (vectors, steps, 16), see pack.h
};

// A convolution of real numbers likewise, over the map of run_map.h. A step is 32 numbers of a run.
struct RunConv {
    int steps, vectors, parts;  // of a number, see run_map.h
    ptrdiff_t position_numbers, part_numbers;
    const ptrdiff_t* offsets;  // (steps): in numbers
    const uint16_t* weight;    // (vectors, steps, parts, 16, 32), see pack.h
    const float* bias;         // (vectors, 16)
};

// What follows one by tiles. Its rows are positions of its map; those with x >= out_w are not pixels, and are
// left out.
struct TileStages {
    const Stage* stages;
    size_t count;
    int out_w, pitch, channels;
    char* arena;
};

// What a set with matrix tiles adds. Its convolutions take positions first ... first + count of the result
// through the stages.
struct TileKernels {
    int strip;                       // positions at once
    double cycles, popcount_cycles;  // of 16 pixels, 64 channels and 16 outputs, by tiles and without
    void (*expand)(const ByteMap&, const uint64_t* signs, int first, int count, int8_t* bytes);
    void (*conv)(const TileConv&, const int8_t* bytes, int first, int count, const TileStages&);
    // first and count are lines from top to bottom; the last is what lies behind the lines.
    void (*split)(const RunMap&, const float* map, int first, int count, uint16_t* numbers);
    void (*run_conv)(const RunConv&, const uint16_t* numbers, int first, int count, const TileStages&);
};

// A map of signs for lookups, four signs of a group a byte, (lines, pitch, groups, nibbles), padding and all:
// the corner of the window of the result's pixel (y, x) is position (y * stride_h, x * stride_w). The upper
// four bits are the signs of the position `stride_w` further on, so that two pixels are looked up at once.
struct LookupMap {
    Window window;
    int groups, channels, nibbles;  // `channels` and `nibbles` of one group
    int pad_value, lines, pitch;

    ptrdiff_t position_bytes() const { return static_cast<ptrdiff_t>(groups) * nibbles; }
};

// A convolution over it.
struct LookupConv {
    LookupMap map;
    int out_channels;          // of one group
    int runs, run_nibbles;     // what lies side by side of a window, in the order of the weights
    const ptrdiff_t* offsets;  // (runs): bytes from the corner
    const uint8_t* weight;     // (groups, vectors, taps * nibbles, lanes), four signs a byte
    const int32_t* base;       // these as in BinaryConv
    const int* row_class;
    const int* column_class;
};

// What a set whose registers have no population count adds: a shuffle that looks it up.
struct LookupKernels {
    int lanes;  // output channels in a vector
    // Lines first ... first + count of the map.
    void (*expand)(const LookupMap&, const uint32_t* signs, int first, int count, uint8_t* bytes);
    void (*conv)(const LookupConv&, const uint8_t* map, int first, int count, float* rows);
};

// counts[x][w]: how many of the four lower signs of x are not those of w, and how many of the upper ones,
// times
// 16. One table for all sets.
struct CountTable {
    alignas(64) uint8_t counts[256][16];
};
extern const CountTable count_table;

// A map of real numbers as levels from 0 to 255, (lines, pitch, channels), padding and all: the corner of the
// window of the result's pixel (y, x) is position (y * stride_h, x * stride_w). A level is rint((x + shift) *
// inverse), cut; where `skip` is not 1, only the pixels that a 1x1 kernel reads are there.
struct QuantisedMap {
    Window window;  // over the map
    int in_h, in_w, skip_h, skip_w;
    int channels, lines, pitch;
    int period;                    // of the constants, whole registers
    const float *shift, *inverse;  // (period)

    size_t levels() const { return static_cast<size_t>(lines) * pitch * channels; }
};

// A convolution of levels by integers of 8 bits: y = fma(sum, scale, bias).
struct QuantisedConv {
    QuantisedMap map;
    int groups, in_channels, out_channels;  // channels of one group
    int runs, run_words;                    // what lies side by side of a window, in words of 32 bits
    const ptrdiff_t* offsets;               // (runs): levels from the corner
    const uint32_t* weight;                 // (groups, vectors, runs * run_words, lanes)
    const int32_t* base;                    // (groups, vectors, lanes): what a sum begins at
    const float *scale, *bias;              // (groups, vectors, lanes)
};

struct QuantisedKernels {
    int level_bytes;
    int zero;    // what a level that is stored as 0 is
    int pixels;  // of a row of the result at once, or 0 where that does not matter
    // Lines first ... first + count of the map.
    void (*quantise)(const QuantisedMap&, const float* map, int first, int count, void* levels);
    void (*conv)(const QuantisedConv&, const void* levels, int first, int count, float* rows);
};

// All but the layers below. Each of these tables may serve several sets: a table is compiled again only for
// instructions that it gains from.
struct CommonKernels {
    // Pixels first ... first + count of the result, (count, groups * out_channels). `pointers` is scratch for
    // (count rounded up to tile) * taps pointers.
    void (*conv)(const Conv&, const float* map, int first, int count, const void** pointers, float* rows);
    // Of single channels, `groups` of them; the weights are (taps, groups).
    void (*depthwise)(const Conv&, const float* map, int first, int count, float* rows);
    // As `quantise` of QuantisedKernels, a float for each level.
    void (*quantise)(const QuantisedMap&, const float* map, int first, int count, void* levels);
    void (*max_pool)(const Pool&, const float* map, int first, int count, float* rows);
    void (*avg_pool)(const Pool&, const float* map, int first, int count, float* rows);
    // (pixels, channels) -> (channels): the mean, summed in the order of the pixels.
    void (*global_avg_pool)(const float* map, int pixels, int channels, float* row);
    // softmax over the channels of `count` pixels; map and rows are (count, channels).
    void (*softmax)(const float* map, int count, int channels, float* rows);
    // (x - mean) / sqrt(variance + eps) over the channels of `count` pixels.
    void (*layer_norm)(const float* map, int count, int channels, float eps, float* rows);
    // A number for each of `count` pixels; a row (channels) for all pixels.
    void (*reduce_channels)(Reduction, const float* map, int count, int channels, float* rows);
    void (*reduce_pixels)(Reduction, const float* map, int pixels, int channels, float* row);
    // Pixels first ... first + count of a map between the pixels of another.
    void (*resize)(const Resize&, const float* map, int first, int count, float* rows);
    // Of precision `integer`. `windows` is scratch for integer_tile windows of all groups.
    void (*to_integers)(const Quantise&, const float* numbers, int count, float* integers);
    void (*integer_conv)(const IntegerConv&, const float* map, int first, int count, uint32_t* windows,
                         float* rows);
    void (*integer_avg_pool)(const Pool&, const float* map, int first, int count, float* rows);
    bool (*all_finite)(const float* numbers, ptrdiff_t count);
    // (height, width) -> (width, height); the rows of map are `stride` floats apart.
    void (*transpose)(const float* map, int height, int width, ptrdiff_t stride, float* out);
    // Walks the stages over rows (count, channels) of pixels first ... first + count.
    void (*epilogue)(const Stage* stages, size_t stage_count, const float* rows, int first, int count,
                     int channels, char* arena);
};

struct BinaryKernels {
    // `band` is scratch for band_words(conv, count) words: the lines that the windows lie in, padding and
    // all.
    void (*conv)(const BinaryConv&, const uint32_t* map, int first, int count, uint32_t* band, float* rows);
    const LookupKernels* lookups;  // nullptr where the registers have a population count
};

// Sets of one width have one layout of weights.
struct KernelSet {
    const char* name;
    bool (*supported)();  // does this machine run it?
    int lanes;            // output channels in a vector: how pack.h lays out weights
    int tile;             // pixels computed at once; a strip of rows should be a multiple
    const CommonKernels* common;
    const BinaryKernels* binary;
    const QuantisedKernels* quantised;
    // The same of numbers in bfloat16 in place of levels, or nullptr where this machine has none that are
    // faster than float32.
    const QuantisedKernels* (*bfloat16)();
    const TileKernels* tiles;  // nullptr where the set has none
};

// The sets compiled in that this machine runs, best first. Ends with nullptr.
const KernelSet* const* kernel_sets();

}  // namespace bitfactor
