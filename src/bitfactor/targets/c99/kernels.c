typedef union {
    float f;
    int32_t i;
    uint32_t u;
} cell;


typedef struct {
    int32_t in_height, in_width, out_height, out_width;
    int32_t kernel_height, kernel_width, stride_y, stride_x, top, left, dilation_y, dilation_x;
} window;


/* Channels and outputs are those of one group; the signs of a pixel take `words` words of a group's weights. */
typedef struct {
    window at;
    int32_t groups, channels, outputs, words, pad;
} binary_layer;


typedef struct {
    window at;
    int32_t groups, channels, outputs;
} real_layer;


/* The taps [begin, end) of `kernel` at `start`, `dilation` apart, that lie inside of 0 to size - 1. */
static void taps_inside(int32_t start, int32_t dilation, int32_t kernel, int32_t size, int32_t *begin, int32_t *end)
{
    *begin = start < 0 ? (-start + dilation - 1) / dilation : 0;
    *end = start >= size ? 0 : (size - 1 - start) / dilation + 1;
    if (*begin > kernel) *begin = kernel;
    if (*end > kernel) *end = kernel;
    if (*end < *begin) *end = *begin;
}


/* `count` signs, 32 at most, that begin at sign `start` of a pixel. */
static uint32_t signs_at(const cell *pixel, int32_t start, int32_t count)
{
    const int32_t shift = start % 32;
    uint32_t word;
    pixel += start / 32;
    word = pixel->u >> shift;
    if (shift + count > 32) word |= pixel[1].u << (32 - shift);
    return count < 32 ? word & (((uint32_t)1 << count) - 1) : word;
}


/* How many bits of a and b differ, n words each. */
#if defined(__POPCNT__) || defined(__riscv_zbb)
static uint32_t differing(const cell *a, const uint32_t *b, int32_t n)
{
    uint32_t total = 0;
    for (int32_t i = 0; i < n; i++) total += (uint32_t)__builtin_popcount(a[i].u ^ b[i]);
    return total;
}
#else
/* Bits are added within a word: pairs, fours (of three words, 12 at most), bytes, and those by a product. */
static uint32_t fours(uint32_t word)
{
    word -= word >> 1 & 0x55555555u;
    return (word & 0x33333333u) + (word >> 2 & 0x33333333u);
}

static uint32_t differing(const cell *a, const uint32_t *b, int32_t n)
{
    uint32_t total = 0;
    while (n > 0) {
        uint32_t sum = fours(a[0].u ^ b[0]);
        if (n > 2) {
            sum += fours(a[1].u ^ b[1]) + fours(a[2].u ^ b[2]);
        } else if (n > 1) {
            sum += fours(a[1].u ^ b[1]);
        }
        sum = (sum & 0x0F0F0F0Fu) + (sum >> 4 & 0x0F0F0F0Fu);
        total += sum * 0x01010101u >> 24;
        a += 3, b += 3, n -= 3;
    }
    return total;
}
#endif


/* The sum of the products of signs at each output of one pixel, exact; `taps` has room for a window of a group. */
static void binary_conv(cell *row, cell *taps, const cell *map, const binary_layer *layer, const uint32_t *weight,
                        int32_t pixel)
{
    const window *at = &layer->at;
    const int32_t y = pixel / at->out_width * at->stride_y - at->top;
    const int32_t x = pixel % at->out_width * at->stride_x - at->left;
    const int32_t pixel_words = (layer->groups * layer->channels + 31) / 32;
    const int32_t line = at->kernel_width * layer->words, size = at->kernel_height * line;
    int32_t above, below, left, right;
    taps_inside(y, at->dilation_y, at->kernel_height, at->in_height, &above, &below);
    taps_inside(x, at->dilation_x, at->kernel_width, at->in_width, &left, &right);
    for (int32_t group = 0; group < layer->groups; group++) {
        const int32_t first = group * layer->channels;
        const int32_t inside = layer->pad ? at->kernel_height * at->kernel_width : (below - above) * (right - left);
        for (int32_t tap = 0; tap < at->kernel_height * at->kernel_width; tap++) {
            const int32_t i = tap / at->kernel_width, j = tap % at->kernel_width;
            const cell *source = map + ((y + i * at->dilation_y) * at->in_width + x + j * at->dilation_x) * pixel_words;
            const int within = i >= above && i < below && j >= left && j < right;
            for (int32_t word = 0; word < layer->words; word++) {
                const int32_t count = layer->channels - 32 * word < 32 ? layer->channels - 32 * word : 32;
                const uint32_t padded = layer->pad > 0 ? 0xFFFFFFFFu >> (32 - count) : 0;
                taps[tap * layer->words + word].u = within ? signs_at(source, first + 32 * word, count) : padded;
            }
        }
        for (int32_t output = 0; output < layer->outputs; output++) {
            uint32_t differ = 0;
            if (inside == at->kernel_height * at->kernel_width) {
                differ = differing(taps, weight, size);
            } else {
                for (int32_t i = above; i < below; i++) {
                    const int32_t begin = i * line + left * layer->words;
                    differ += differing(taps + begin, weight + begin, (right - left) * layer->words);
                }
            }
            (row++)->i = inside * layer->channels - 2 * (int32_t)differ;
            weight += size;
        }
    }
}


/* The sum of products of n numbers and the weights from `at` on is added to `sum`. */
typedef float dot_product(const cell *x, const void *weight, int32_t at, int32_t n, float sum);

/* Without bias where it is 0. */
static void convolve(cell *row, const cell *map, const real_layer *layer, const void *weight, dot_product *dot,
                     const float *bias, int32_t pixel)
{
    const window *at = &layer->at;
    const int32_t y = pixel / at->out_width * at->stride_y - at->top;
    const int32_t x = pixel % at->out_width * at->stride_x - at->left;
    const int32_t pixel_cells = layer->groups * layer->channels;
    const int32_t taps = at->kernel_height * at->kernel_width;
    int32_t above, below, left, right;
    taps_inside(y, at->dilation_y, at->kernel_height, at->in_height, &above, &below);
    taps_inside(x, at->dilation_x, at->kernel_width, at->in_width, &left, &right);
    for (int32_t output = 0; output < layer->groups * layer->outputs; output++) {
        float sum = bias ? bias[output] : 0.0f;
        for (int32_t i = above; i < below; i++) {
            for (int32_t j = left; j < right; j++) {
                const cell *source = map + ((y + i * at->dilation_y) * at->in_width + x + j * at->dilation_x) * pixel_cells
                                     + output / layer->outputs * layer->channels;
                const int32_t tap = output * taps + i * at->kernel_width + j;
                sum = dot(source, weight, tap * layer->channels, layer->channels, sum);
            }
        }
        (row++)->f = sum;
    }
}


static float dot_floats(const cell *x, const void *weight, int32_t at, int32_t n, float sum)
{
    const float *taps = (const float *)weight + at;
    for (int32_t c = 0; c < n; c++) sum += x[c].f * taps[c];
    return sum;
}

static void real_conv(cell *row, const cell *map, const real_layer *layer, const float *weight, const float *bias,
                      int32_t pixel)
{
    convolve(row, map, layer, weight, dot_floats, bias, pixel);
}


/* Weights of 16 bits: a sign, 5 bits of exponent, 10 of mantissa. */
static float half(uint16_t bits)
{
    cell magnitude;
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
    magnitude.u = (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 0) magnitude.f = (float)mantissa * 5.9604644775390625e-8f;
    return bits >> 15 ? -magnitude.f : magnitude.f;
}

static float dot_halves(const cell *x, const void *weight, int32_t at, int32_t n, float sum)
{
    const uint16_t *taps = (const uint16_t *)weight + at;
    for (int32_t c = 0; c < n; c++) sum += x[c].f * half(taps[c]);
    return sum;
}

static void real_conv_halves(cell *row, const cell *map, const real_layer *layer, const uint16_t *weight,
                             const float *bias, int32_t pixel)
{
    convolve(row, map, layer, weight, dot_halves, bias, pixel);
}


/* Weights of 8 bits, with a step for each output: a sum is multiplied by it once. */
static float dot_levels(const cell *x, const void *weight, int32_t at, int32_t n, float sum)
{
    const int8_t *taps = (const int8_t *)weight + at;
    for (int32_t c = 0; c < n; c++) sum += x[c].f * (float)taps[c];
    return sum;
}

static void real_conv_levels(cell *row, const cell *map, const real_layer *layer, const int8_t *weight,
                             const float *step, const float *bias, int32_t pixel)
{
    convolve(row, map, layer, weight, dot_levels, 0, pixel);
    for (int32_t output = 0; output < layer->groups * layer->outputs; output++) {
        row[output].f = row[output].f * step[output] + bias[output];
    }
}


/* One of 256 levels, the nearest. */
static int32_t level_of(float x, float lowest, float inverse)
{
    const float scaled = (x - lowest) * inverse;
    if (!(scaled > 0.0f)) return 0;
    if (scaled >= 255.0f) return 255;
    const int32_t below = (int32_t)scaled;
    const float rest = scaled - (float)below;
    return below + (rest > 0.5f || (rest == 0.5f && below % 2));
}


/* A layer in 8-bit integers; `taps` has room for a window of a group. Ranges are of all channels, or of each. */
static void quantised_conv(cell *row, cell *taps, const cell *map, const real_layer *layer, const int8_t *weight,
                           const float *scale, const float *bias, const float *lowest, const float *inverse,
                           int32_t ranges, int32_t pixel)
{
    const window *at = &layer->at;
    const int32_t y = pixel / at->out_width * at->stride_y - at->top;
    const int32_t x = pixel % at->out_width * at->stride_x - at->left;
    const int32_t pixel_cells = layer->groups * layer->channels;
    const int32_t size = at->kernel_height * at->kernel_width * layer->channels;
    for (int32_t group = 0; group < layer->groups; group++) {
        const int32_t first = group * layer->channels;
        for (int32_t k = 0; k < size; k++) {
            const int32_t tap = k / layer->channels, c = first + k % layer->channels;
            const int32_t line = y + tap / at->kernel_width * at->dilation_y;
            const int32_t column = x + tap % at->kernel_width * at->dilation_x;
            const int within = line >= 0 && line < at->in_height && column >= 0 && column < at->in_width;
            const float number = within ? map[(line * at->in_width + column) * pixel_cells + c].f : 0.0f;
            const int32_t range = ranges > 1 ? c : 0;
            taps[k].i = level_of(number, lowest[range], inverse[range]);
        }
        for (int32_t output = 0; output < layer->outputs; output++, weight += size) {
            int32_t sum = 0;
            for (int32_t k = 0; k < size; k++) sum += taps[k].i * weight[k];
            (row++)->f = (float)sum * *scale++ + *bias++;
        }
    }
}


static void max_pool(cell *row, const cell *map, const window *at, int32_t channels, int32_t pixel)
{
    const int32_t y = pixel / at->out_width * at->stride_y - at->top;
    const int32_t x = pixel % at->out_width * at->stride_x - at->left;
    int32_t above, below, left, right;
    taps_inside(y, 1, at->kernel_height, at->in_height, &above, &below);
    taps_inside(x, 1, at->kernel_width, at->in_width, &left, &right);
    for (int32_t c = 0; c < channels; c++) {
        float most = map[((y + above) * at->in_width + x + left) * channels + c].f;
        for (int32_t i = above; i < below; i++) {
            for (int32_t j = left; j < right; j++) {
                const float value = map[((y + i) * at->in_width + x + j) * channels + c].f;
                if (value > most) most = value;
            }
        }
        row[c].f = most;
    }
}


/* The mean under the window; with `count_padding`, of all taps. */
static void avg_pool(cell *row, const cell *map, const window *at, int32_t channels, int count_padding, int32_t pixel)
{
    const int32_t y = pixel / at->out_width * at->stride_y - at->top;
    const int32_t x = pixel % at->out_width * at->stride_x - at->left;
    int32_t above, below, left, right;
    taps_inside(y, 1, at->kernel_height, at->in_height, &above, &below);
    taps_inside(x, 1, at->kernel_width, at->in_width, &left, &right);
    for (int32_t c = 0; c < channels; c++) {
        const int32_t inside = (below - above) * (right - left);
        float sum = 0;
        for (int32_t i = above; i < below; i++) {
            for (int32_t j = left; j < right; j++) sum += map[((y + i) * at->in_width + x + j) * channels + c].f;
        }
        row[c].f = sum / (float)(count_padding ? at->kernel_height * at->kernel_width : inside);
    }
}


/* What a mean, 0, or a sum, 1, becomes with another number, or the most, 2, or least, 3, of both. */
static float folded(float a, float b, int32_t how)
{
    if (how < 2) return a + b;
    return (how == 2 ? b > a : b < a) ? b : a;
}


/* The sum of n numbers, or of their squares: 16 side by side, in turns, which then are added in halves. */
static float sum_of(const cell *x, int32_t n, int squared)
{
    float sums[16] = {0};
    for (int32_t i = 0; i < n; i++) sums[i % 16] += squared ? x[i].f * x[i].f : x[i].f;
    for (int32_t half = 8; half; half /= 2) {
        for (int32_t i = 0; i < half; i++) sums[i] += sums[i + half];
    }
    return sums[0];
}


static void reduce_channels(cell *row, const cell *pixel, int32_t channels, int32_t how)
{
    float all = how < 2 ? sum_of(pixel, channels, 0) : pixel->f;
    for (int32_t c = 1; how >= 2 && c < channels; c++) all = folded(all, pixel[c].f, how);
    row->f = how == 0 ? all / (float)channels : all;
}


static void reduce_pixels(cell *row, const cell *map, int32_t channels, int32_t pixels, int32_t how)
{
    for (int32_t c = 0; c < channels; c++) {
        float all = how < 2 ? 0 : map[c].f;
        for (int32_t p = 0; p < pixels; p++) all = folded(all, map[p * channels + c].f, how);
        row[c].f = how == 0 ? all / (float)pixels : all;
    }
}


/* Rounded as IEEE 754 asks for, in integers, a bit behind the other; 0 of what is not positive. */
static float square_root(float x)
{
    cell number;
    uint64_t rest, root = 0;
    int32_t power;
    number.f = x > 0 ? x : 0;
    if (number.i == 0 || number.i >= 0x7F800000) return number.f;
    power = number.i < 0x800000 ? 1 : number.i >> 23;
    rest = number.i < 0x800000 ? number.u : (number.u & 0x7FFFFF) | 0x800000;
    for (; rest < 0x800000; power--) rest <<= 1;
    rest <<= power & 1 ? 23 : 24;  /* an even power of 2 is left */
    for (uint64_t bit = 0x800000; bit; bit >>= 1) {
        if ((root | bit) * (root | bit) <= rest) root |= bit;
    }
    if (rest - root * root > root) root++;
    power = (power + 126 + (power & 1)) / 2;
    number.u = (uint32_t)(power - 1) * 0x800000u + (uint32_t)root;
    return number.f;
}


static void layer_norm(cell *row, const cell *pixel, int32_t channels, float eps)
{
    const float mean = sum_of(pixel, channels, 0) / (float)channels;
    float factor;
    for (int32_t c = 0; c < channels; c++) row[c].f = pixel[c].f - mean;
    factor = 1.0f / square_root(sum_of(row, channels, 1) / (float)channels + eps);
    for (int32_t c = 0; c < channels; c++) row[c].f *= factor;
}


static void upsample_nearest(cell *row, const cell *map, int32_t in_width, int32_t scale_y, int32_t scale_x,
                             int32_t channels, int32_t pixel)
{
    const int32_t out_width = in_width * scale_x;
    const int32_t y = pixel / out_width / scale_y, x = pixel % out_width / scale_x;
    for (int32_t c = 0; c < channels; c++) row[c] = map[(y * in_width + x) * channels + c];
}


/* e to the x, -87 to 88, within two units in the last place: x = n ln 2 + r, and a polynomial in r. */
static float exponential(float x)
{
    static const float factors[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                                    5.0000001201e-1f};
    cell power;
    float n, r, sum = 1.9875691500e-4f;
    int32_t whole;
    x = x > -87.0f ? x : -87.0f;
    x = x < 88.0f ? x : 88.0f;
    n = x * 1.44269504f;
    whole = (int32_t)(n < 0 ? n - 0.5f : n + 0.5f);
    r = x - (float)whole * 0.693359375f + (float)whole * 2.12194440e-4f;
    for (int32_t i = 0; i < 5; i++) sum = sum * r + factors[i];
    power.i = (whole + 127) * (1 << 23);
    return (sum * (r * r) + r + 1.0f) * power.f;
}


static void softmax(cell *row, const cell *pixel, int32_t channels)
{
    float most = pixel[0].f, total = 0, below = 0;
    for (int32_t c = 1; c < channels; c++) most = pixel[c].f > most ? pixel[c].f : most;
    for (int32_t c = 0; c < channels; c++) {
        row[c].f = pixel[c].f - most > -87.0f ? exponential(pixel[c].f - most) : 0.0f;  /* 0 where masked */
        total += row[c].f;
        below += pixel[c].f - most;
    }
    if (below != below) total = below;  /* NaN, which the exponential would hide */
    for (int32_t c = 0; c < channels; c++) row[c].f /= total;
}


static void copy(cell *to, const cell *from, int32_t n)
{
    for (int32_t i = 0; i < n; i++) to[i] = from[i];
}


static void store_sums(cell *to, const cell *from, int32_t n)
{
    for (int32_t i = 0; i < n; i++) to[i].f = (float)from[i].i;
}


static void flatten(cell *row, const cell *map, int32_t channels, int32_t pixels)
{
    for (int32_t p = 0; p < pixels; p++) {
        for (int32_t c = 0; c < channels; c++) row[c * pixels + p] = *map++;
    }
}


/* Place -1 stands for `fill`. */
static void gather(cell *row, const cell *map, const int32_t *places, float fill, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = places[i] < 0 ? fill : map[places[i]].f;
}


/* Bits that are 1 where a real number passes its threshold: above it, or below where the bit of `falling` is 1. */
static void signs(cell *bits, const cell *row, const float *threshold, const uint32_t *falling, int32_t n)
{
    for (int32_t i = 0; i < n; bits++, falling++) {
        uint32_t word = 0;
        for (int32_t bit = 0; bit < 32 && i < n; bit++, i++) {
            const int down = *falling >> bit & 1;
            if (down ? row[i].f < threshold[i] : row[i].f > threshold[i]) word |= (uint32_t)1 << bit;
        }
        bits->u = word;
    }
}


/* The same of sums: above an integer, or not above where the bit of `falling` is 1. */
static void signs_of_sums(cell *bits, const cell *row, const int32_t *threshold, const uint32_t *falling, int32_t n)
{
    for (int32_t i = 0; i < n; bits++, falling++) {
        uint32_t word = 0;
        for (int32_t bit = 0; bit < 32 && i < n; bit++, i++) word |= (uint32_t)(row[i].i > threshold[i]) << bit;
        bits->u = word ^ *falling;
    }
}


static void scale(cell *row, const float *alpha, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f *= alpha[i];
}


static void scale_sums(cell *row, const float *alpha, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = (float)row[i].i * alpha[i];
}


static void affine(cell *row, const float *factor, const float *shift, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = row[i].f * factor[i] + shift[i];
}


static void relu(cell *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = row[i].f > 0 ? row[i].f : 0;
}


static void prelu(cell *row, const float *slope, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = row[i].f > 0 ? row[i].f : slope[i] * row[i].f;
}


static void clip(cell *row, const float *lower, const float *upper, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        row[i].f = row[i].f > *lower ? row[i].f : *lower;
        row[i].f = row[i].f < *upper ? row[i].f : *upper;
    }
}


static void sigmoid(cell *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = 1.0f / (1.0f + exponential(-row[i].f));
}


static void square_roots(cell *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = square_root(row[i].f);
}


static void reciprocal(cell *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f = 1.0f / row[i].f;
}


static void add(cell *row, const cell *other, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f += other[i].f;
}


static void multiply(cell *row, const cell *other, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i].f *= other[i].f;
}


/* From torch's order, a map for each channel, to the channels of each pixel. */
static void lay_out(cell *map, const float *x, int32_t channels, int32_t pixels)
{
    for (int32_t p = 0; p < pixels; p++) {
        for (int32_t c = 0; c < channels; c++) (map++)->f = x[c * pixels + p];
    }
}


/* Pixels of 0 to 255, the channels of each together. */
static void lay_out_image(cell *map, const uint8_t *x, const float *mean, const float *deviation, int32_t channels,
                          int32_t pixels)
{
    for (int32_t i = 0; i < pixels * channels; i++) {
        map[i].f = ((float)x[i] / 255.0f - mean[i % channels]) / deviation[i % channels];
    }
}


static void hand_out(float *y, const cell *map, int32_t channels, int32_t pixels)
{
    for (int32_t p = 0; p < pixels; p++) {
        for (int32_t c = 0; c < channels; c++) y[c * pixels + p] = (map++)->f;
    }
}


static void hand_out_signs(float *y, const cell *map, int32_t channels, int32_t pixels)
{
    for (int32_t p = 0; p < pixels; p++) {
        for (int32_t c = 0; c < channels; c++) {
            y[c * pixels + p] = map[p * ((channels + 31) / 32) + c / 32].u >> c % 32 & 1 ? 1.0f : -1.0f;
        }
    }
}


/* The indices of the k largest of n scores, the largest first. */
static void top_of(int32_t *classes, int32_t k, const float *scores, int32_t n)
{
    for (int32_t rank = 0; rank < k && rank < n; rank++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++) {
            int32_t taken = 0;
            for (int32_t r = 0; r < rank; r++) taken = taken || classes[r] == i;
            if (!taken && (best < 0 || scores[i] > scores[best])) best = i;
        }
        classes[rank] = best;
    }
}
