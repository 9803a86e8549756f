/* A function of its own has the registers for itself. All that touches the arena is one: where gcc 12 sees two pointers
 * of different steps into it in a loop, it may derive one from the other as a number, take that for an access of the
 * null pointer, and drop the whole loop. */
#ifdef __GNUC__
#define APART static __attribute__((noinline))
#else
#define APART static
#endif


/* Where a window lies: its output's pixel is at (y, x), in rows of out_width. */
typedef struct {
    int32_t in_height, in_width, out_height, out_width;
    int32_t kernel_height, kernel_width, stride_y, stride_x, top, left, dilation_y, dilation_x;
} window;


/* A layer's channels in memory, those of one group, and the outputs of one. Of signs, bytes of a pixel for the
 * channels and, without groups, rows that are counted together for the outputs. */
typedef struct {
    window at;
    int32_t channels, depth, outputs;
} layer;


/* The taps [begin, end) of `kernel` at `start`, `dilation` apart, that lie inside of 0 to size - 1. */
static inline void inside(int32_t start, int32_t dilation, int32_t kernel, int32_t size, int32_t *begin, int32_t *end)
{
    *begin = start < 0 ? -start : 0, *end = size - start;
    if (dilation > 1) {
        for (*begin = 0; *begin < kernel && start + *begin * dilation < 0;) ++*begin;
        for (*end = kernel; *end > *begin && start + (*end - 1) * dilation >= size;) --*end;
    }
    if (*end > kernel) *end = kernel;
    if (*begin > *end) *begin = *end;
}


/* v / 2^k to nearest, halves up; `>>` of a negative number is arithmetic in all compilers for microcontrollers. */
static inline int32_t rounded(int32_t v, int32_t k) { return k ? (v + ((int32_t)1 << (k - 1))) >> k : v; }


static inline int32_t within(int32_t v, int32_t lower, int32_t upper)
{
    return v < lower ? lower : v > upper ? upper : v;
}


/* A pixel of a layer of 8-bit weights, 8 outputs that begin at `first`, `together` at a time. `outside` is what a
 * tap outside the map reads. */
typedef void dot(int32_t *sum, const void *map, int32_t at, const uint8_t *w, int32_t n);

static inline void convolve(int32_t *row, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t x, int32_t first, int32_t n, int32_t together, dot *add)
{
    const window *at = &l->at;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left, depth = l->depth;
    int32_t begin, end;
    inside(left, at->dilation_x, at->kernel_width, at->in_width, &begin, &end);
    const int whole = at->dilation_x == 1 && together == 4 && end - begin == at->kernel_width;
    const int32_t size = at->kernel_height * at->kernel_width * depth;
    for (int32_t j = 0; j < n; j += together) {
        const uint8_t *w = weight + (first + j) * size;
        const int32_t channel = together == 4 ? 0 : (first + j) / l->outputs * depth;
        int32_t sum[4];
        for (int32_t i = 0; i < together; i++) sum[i] = bias[first + j + i];
        for (int32_t i = 0; i < at->kernel_height; i++) {
            const int32_t row_y = top + i * at->dilation_y;
            const int out = row_y < 0 || row_y >= at->in_height;
            if (whole && !out) {
                add(sum, map, (row_y * at->in_width + left) * depth, w, at->kernel_width * depth);
                w += together * at->kernel_width * depth;
                continue;
            }
            for (int32_t k = 0; k < at->kernel_width; k++, w += together * depth) {
                if (!out && k >= begin && k < end) {
                    const int32_t pixel = row_y * at->in_width + left + k * at->dilation_x;
                    add(sum, map, pixel * l->channels + channel, w, depth);
                } else if (outside) {
                    add(sum, outside, channel, w, depth);
                }
            }
        }
        for (int32_t i = 0; i < together && j + i < n; i++) row[j + i] = sum[i];
    }
}


/* Four outputs at a time, whose weights lie side by side, each 128 more: a byte is loaded in one instruction. */
static inline void products_of_pixels(int32_t *sum, const void *map, int32_t at, const uint8_t *w, int32_t n)
{
    uint32_t a = (uint32_t)sum[0], b = (uint32_t)sum[1], c = (uint32_t)sum[2], d = (uint32_t)sum[3], all = 0;
    for (const uint8_t *x = (const uint8_t *)map + at, *end = x + n; x != end; w += 4) {
        const uint32_t v = (uint32_t)*x++; /* without a sign, sums that pass 32 bits on their way come back */
        all += v;
        a += v * w[0], b += v * w[1], c += v * w[2], d += v * w[3];
    }
    all *= 128;
    sum[0] = (int32_t)(a - all), sum[1] = (int32_t)(b - all), sum[2] = (int32_t)(c - all), sum[3] = (int32_t)(d - all);
}

APART void conv_pixels(int32_t *row, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t x, int32_t first, int32_t n)
{
    convolve(row, map, l, weight, bias, outside, y, x, first, n, 4, products_of_pixels);
}


/* The same of values of 16 bits. */
static inline void products(int32_t *sum, const void *map, int32_t at, const uint8_t *w, int32_t n)
{
    uint32_t a = (uint32_t)sum[0], b = (uint32_t)sum[1], c = (uint32_t)sum[2], d = (uint32_t)sum[3], all = 0;
    for (const int16_t *x = (const int16_t *)map + at, *end = x + n; x != end; w += 4) {
        const uint32_t v = (uint32_t)*x++; /* without a sign, sums that pass 32 bits on their way come back */
        all += v;
        a += v * w[0], b += v * w[1], c += v * w[2], d += v * w[3];
    }
    all *= 128;
    sum[0] = (int32_t)(a - all), sum[1] = (int32_t)(b - all), sum[2] = (int32_t)(c - all), sum[3] = (int32_t)(d - all);
}

APART void conv(int32_t *row, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t x, int32_t first, int32_t n)
{
    convolve(row, map, l, weight, bias, outside, y, x, first, n, 4, products);
}


/* One output at a time, for layers in groups. */
static inline void product_of_pixels(int32_t *sum, const void *map, int32_t at, const uint8_t *w, int32_t n)
{
    for (const uint8_t *x = (const uint8_t *)map + at, *end = x + n; x != end;) *sum += *x++ * (*w++ - 128);
}

APART void grouped_conv_pixels(int32_t *row, const void *map, const layer *l, const uint8_t *weight,
    const int32_t *bias, const void *outside, int32_t y, int32_t x, int32_t first, int32_t n)
{
    convolve(row, map, l, weight, bias, outside, y, x, first, n, 1, product_of_pixels);
}


static inline void product(int32_t *sum, const void *map, int32_t at, const uint8_t *w, int32_t n)
{
    for (const int16_t *x = (const int16_t *)map + at, *end = x + n; x != end;) *sum += *x++ * (*w++ - 128);
}

APART void grouped_conv(int32_t *row, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t x, int32_t first, int32_t n)
{
    convolve(row, map, l, weight, bias, outside, y, x, first, n, 1, product);
}


/* sat(rnd(a M, k)). For k >= 16 in 32 bits: a = 2^16 * high + low, and what is added to round is so split, too. */
APART void scale_sums(int32_t *row, const int16_t *multiplier, int32_t k, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const int32_t a = row[i], m = multiplier[i];
        if (k >= 16) {
            const int32_t half = k > 16 ? (int32_t)1 << (k - 17) : 0;
            const int32_t low = ((a & 0xffff) * m + (k > 16 ? 0 : 1 << 15)) >> 16;
            row[i] = within(((a >> 16) * m + low + half) >> (k - 16), -32767, 32767);
        } else {
            const int64_t v = ((int64_t)a * m + (k ? (int64_t)1 << (k - 1) : 0)) >> k;
            row[i] = v < -32767 ? -32767 : v > 32767 ? 32767 : (int32_t)v;
        }
    }
}


/* Signs lie as index bytes, one for four channels of a pixel: 4 * (the four bits) + 64 * (its place of four). A word
 * of weights holds four inputs of 8 outputs, bit 4 * output + input. Words of 16 entries for each: entry n counts in
 * the nibble of an output how many of the signs n are those of its weights. So a look-up and an addition stand for
 * 32 products. */
APART void build(uint32_t *t, const uint32_t *w, int32_t count)
{
    const uint32_t ones = 0x11111111u;
    for (const uint32_t *end = w + count; w != end; t += 16) {
        const uint32_t v = *w++, a = v & ones, b = v >> 1 & ones, c = v >> 2 & ones, d = v >> 3 & ones;
        const uint32_t first = 2 * a - ones, second = 2 * b - ones, third = 2 * c - ones, fourth = 2 * d - ones;
        uint32_t x = 4 * ones - a - b - c - d;
        const uint32_t jump[4] = {third, fourth - third, third, 0};
        for (int32_t n = 0; n < 16; n += 4) {
            t[n] = x, t[n + 1] = x + first, t[n + 2] = x + second, t[n + 3] = x + first + second;
            x += jump[n / 4];
        }
    }
}


static inline uint32_t entry(const uint32_t *t, uint32_t i)
{
    return *(const uint32_t *)(const void *)((const char *)t + i);
}


/* Adds the counts of rows of index bytes, a multiple of 4 each and 60 at most together: in bytes, even outputs and
 * odd ones, then in 16 bits. Three look-ups fit the nibbles. */
APART void count(uint32_t *wide, const uint8_t *p, const uint32_t *t, int32_t run, int32_t rows, int32_t p_step,
    int32_t t_step)
{
    const uint32_t nibbles = 0x0f0f0f0fu, halves = 0x00ff00ffu;
    uint32_t all = 0, odd = 0;
    int32_t rest = run;
    while (rest >= 12) rest -= 12;
    for (; rows; rows--, p += p_step, t += t_step) {
        const uint8_t *const end = p + run;
        for (const uint8_t *whole = end - rest; p != whole; p += 12, t += 192) {
            const uint32_t *u = t + 64, *v = t + 128;
            const uint32_t d = entry(t, p[3]) + entry(u, p[7]) + entry(v, p[11]);
            const uint32_t a = entry(t, p[0]) + entry(t, p[1]) + entry(t, p[2]);
            all += a + d, odd += (a >> 4 & nibbles) + (d >> 4 & nibbles);
            const uint32_t b = entry(u, p[4]) + entry(u, p[5]) + entry(u, p[6]);
            all += b, odd += b >> 4 & nibbles;
            const uint32_t c = entry(v, p[8]) + entry(v, p[9]) + entry(v, p[10]);
            all += c, odd += c >> 4 & nibbles;
        }
        for (; p != end; p += 4, t += 64) {
            const uint32_t a = entry(t, p[0]) + entry(t, p[1]), b = entry(t, p[2]) + entry(t, p[3]);
            all += a + b;
            odd += (a >> 4 & nibbles) + (b >> 4 & nibbles);
        }
    }
    all -= odd << 4;
    wide[0] += all & halves, wide[2] += all >> 8 & halves;
    wide[1] += odd & halves, wide[3] += odd >> 8 & halves;
}


/* A pixel of a binary layer, 8 outputs: sums of signs, 2 * (those that agree) - all. With `together`, the taps of a row
 * lie side by side; else they are dilated. */
static inline void convolve_signs(int32_t *row, const uint8_t *map, const layer *l, const uint32_t *tables, int32_t y,
    int32_t x, const int together)
{
    const window *at = &l->at;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left;
    const int32_t bytes = l->channels, step = together ? 1 : at->dilation_x, drop = together ? 1 : at->dilation_y;
    int32_t up, down, begin, end;
    uint32_t wide[4];
    wide[0] = wide[1] = wide[2] = wide[3] = 0;
    inside(top, drop, at->kernel_height, at->in_height, &up, &down);
    inside(left, step, at->kernel_width, at->in_width, &begin, &end);
    const int32_t taps = end - begin, run = together ? taps * bytes : bytes;
    const int32_t below = drop * at->in_width * bytes, all = (down - up) * taps * l->depth;
    const int32_t next = at->kernel_width * bytes;
    const uint8_t *p = map + ((top + up * drop) * at->in_width + left + begin * step) * bytes;
    const uint32_t *t = tables + (up * at->kernel_width + begin) * bytes * 16;
    if (together && down - up <= l->outputs && run <= 60 && run > 0 && up < down) {
        count(wide, p, t, run, down - up, below - run, (next - run) * 16);
        up = down;
    }
    if (taps == 0) up = down;
    while (up < down) {
        int32_t rows = together ? l->outputs : 1;
        if (rows > down - up) rows = down - up;
        for (int32_t k = 0; k < (together ? 1 : taps); k++)
            for (int32_t i = 0; i < run; i += 60) {
                const int32_t n = run - i < 60 ? run - i : 60, of = k * bytes + i;
                count(wide, p + k * step * bytes + i, t + of * 16, n, rows, below - n, (next - n) * 16);
            }
        up += rows, p += rows * below, t += rows * next * 16;
    }
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t two = wide[i];
        row[i] = 2 * (int32_t)(two & 0xffff) - all;
        row[i + 4] = 2 * (int32_t)(two >> 16) - all;
    }
}


APART void binary_conv(int32_t *row, const uint8_t *map, const layer *l, const uint32_t *tables, int32_t y, int32_t x)
{
    convolve_signs(row, map, l, tables, y, x, 1);
}


APART void dilated_binary_conv(int32_t *row, const uint8_t *map, const layer *l, const uint32_t *tables, int32_t y,
    int32_t x)
{
    convolve_signs(row, map, l, tables, y, x, 0);
}


/* The same in groups, a product at a time: bits of weights, output by output. */
APART void grouped_binary_conv(int32_t *row, const uint8_t *map, const layer *l, const uint8_t *weight, int32_t y,
    int32_t x, int32_t first, int32_t n)
{
    const window *at = &l->at;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left;
    int32_t up, down, begin, end;
    inside(top, at->dilation_y, at->kernel_height, at->in_height, &up, &down);
    inside(left, at->dilation_x, at->kernel_width, at->in_width, &begin, &end);
    for (int32_t j = 0; j < n; j++) {
        const int32_t channel = (first + j) / l->outputs * l->depth;
        int32_t sum = 0;
        for (int32_t i = up; i < down; i++)
            for (int32_t k = begin; k < end; k++) {
                const int32_t pixel = (top + i * at->dilation_y) * at->in_width + left + k * at->dilation_x;
                int32_t bit = (((first + j) * at->kernel_height + i) * at->kernel_width + k) * l->depth;
                for (int32_t c = channel; c < channel + l->depth; c++, bit++) {
                    const int sign = map[pixel * l->channels + c / 4] >> (2 + c % 4) & 1;
                    sum += sign == (weight[bit / 8] >> bit % 8 & 1) ? 1 : -1;
                }
            }
        row[j] = sum;
    }
}


/* A map of signs with a border of +1 or -1. */
APART void surround(uint8_t *to, const uint8_t *from, int32_t height, int32_t width, int32_t bytes, int32_t top,
    int32_t left, int32_t bottom, int32_t right, const uint8_t *border)
{
    for (int32_t y = -top; y < height + bottom; y++)
        for (int32_t x = -left; x < width + right; x++) {
            const int in = y >= 0 && y < height && x >= 0 && x < width;
            const uint8_t *pixel = in ? from + (y * width + x) * bytes : border;
            for (int32_t i = 0; i < bytes; i++) *to++ = pixel[i];
        }
}


APART void load(int32_t *row, const int16_t *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = x[i];
}


APART void copy(int16_t *to, const int16_t *from, int32_t n)
{
    for (int32_t i = 0; i < n; i++) to[i] = from[i];
}


APART void max_pool(int32_t *row, const int16_t *map, const window *at, int32_t channels, int32_t y, int32_t x,
    int32_t first, int32_t n)
{
    int32_t up, down, begin, end;
    inside(y * at->stride_y - at->top, 1, at->kernel_height, at->in_height, &up, &down);
    inside(x * at->stride_x - at->left, 1, at->kernel_width, at->in_width, &begin, &end);
    for (int32_t i = 0; i < n; i++) row[i] = -32767;
    for (int32_t i = up; i < down; i++)
        for (int32_t k = begin; k < end; k++) {
            const int32_t pixel = (y * at->stride_y - at->top + i) * at->in_width + x * at->stride_x - at->left + k;
            const int16_t *v = map + pixel * channels + first;
            for (int32_t c = 0; c < n; c++)
                if (v[c] > row[c]) row[c] = v[c];
        }
}


/* v / n towards minus infinity. */
static inline int32_t floor_of(int32_t v, int32_t n)
{
    const int32_t q = v / n;
    return q * n > v ? q - 1 : q;
}


/* A mean is over the values inside the map or, where padding counts, over the window. */
APART void avg_pool(int32_t *row, const int16_t *map, const window *at, int32_t channels, int32_t counts_padding,
    int32_t y, int32_t x, int32_t first, int32_t n)
{
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left;
    int32_t up, down, begin, end, count;
    inside(top, 1, at->kernel_height, at->in_height, &up, &down);
    inside(left, 1, at->kernel_width, at->in_width, &begin, &end);
    count = counts_padding ? at->kernel_height * at->kernel_width : (down - up) * (end - begin);
    for (int32_t i = 0; i < n; i++) row[i] = 0;
    for (int32_t i = up; i < down; i++)
        for (int32_t k = begin; k < end; k++) {
            const int16_t *v = map + ((top + i) * at->in_width + left + k) * channels + first;
            for (int32_t c = 0; c < n; c++) row[c] += v[c];
        }
    int32_t k = 0;
    while ((int32_t)1 << k < count) k++;
    const int exact = (int32_t)1 << k == count;
    for (int32_t c = 0; c < n; c++)
        row[c] = exact ? rounded(row[c], k) : floor_of(2 * row[c] + count, 2 * count);
}


/* From places of a map, in elements; below 0 stands `fill`. */
APART void gather(int32_t *row, const int16_t *map, const int32_t *places, int32_t fill, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = places[i] < 0 ? fill : map[places[i]];
}


/* Channels before and behind those of a map. */
APART void pad_channels(int32_t *row, const int16_t *pixel, int32_t channels, int32_t before, int32_t fill, int32_t first,
    int32_t n)
{
    for (int32_t i = 0, c = first - before; i < n; i++, c++) row[i] = c >= 0 && c < channels ? pixel[c] : fill;
}


APART void upsample(int32_t *row, const int16_t *map, int32_t in_width, int32_t scale_y, int32_t scale_x,
    int32_t channels, int32_t y, int32_t x, int32_t first, int32_t n)
{
    load(row, map + (y / scale_y * in_width + x / scale_x) * channels + first, n);
}


/* A map in the order (channels, pixels). */
APART void flatten(int32_t *row, const int16_t *map, int32_t channels, int32_t pixels, int32_t first, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = map[(first + i) % pixels * channels + (first + i) / pixels];
}


/* rnd(v (v > 0 ? P : Q), k) */
APART void bend(int32_t *row, const int16_t *positive, const int16_t *negative, int32_t k, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = rounded(row[i] * (row[i] > 0 ? positive[i] : negative[i]), k);
}


APART void times(int32_t *row, const int16_t *multiplier, int32_t k, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = rounded(row[i] * multiplier[i], k);
}


/* rnd(v 2^up, down) */
APART void shift(int32_t *row, int32_t up, int32_t down, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = rounded(row[i] * ((int32_t)1 << up), down);
}


APART void add(int32_t *row, const int16_t *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] += x[i];
}


APART void add_shifted(int32_t *row, const int16_t *x, int32_t up, int32_t down, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] += rounded(x[i] * ((int32_t)1 << up), down);
}


APART void add_times(int32_t *row, const int16_t *x, const int16_t *multiplier, int32_t k, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] += rounded(x[i] * multiplier[i], k);
}


APART void add_bend(int32_t *row, const int16_t *x, const int16_t *positive, const int16_t *negative, int32_t k,
    int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] += rounded(x[i] * (x[i] > 0 ? positive[i] : negative[i]), k);
}


/* A weighted sum of two, the one in the row and one in memory that is shifted; stored, too, where `to` is given. */
APART void join(int16_t *to, int32_t *row, const int16_t *positive, const int16_t *negative, int32_t k, const int16_t *x,
    int32_t down, int32_t n)
{
    const int32_t half = k ? (int32_t)1 << (k - 1) : 0, other = down ? (int32_t)1 << (down - 1) : 0;
    for (const int32_t *end = row + n; row != end;) {
        const int32_t p = *positive++, q = *negative++, v = *row;
        int32_t sum = ((v * (v > 0 ? p : q) + half) >> k) + ((*x++ + other) >> down);
        if (sum > 32767) sum = 32767;
        if (sum < -32767) sum = -32767;
        *row++ = sum;
        if (to) *to++ = (int16_t)sum;
    }
}


APART void plus(int32_t *row, const int32_t *offset, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] += offset[i];
}


APART void cut(int32_t *row, int32_t lower, int32_t upper, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = within(row[i], lower, upper);
}


APART void prelu(int32_t *row, const int16_t *slope, int32_t k, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (row[i] <= 0) row[i] = within(rounded(row[i] * slope[i], k), -32767, 32767);
}


APART void store(int16_t *to, const int32_t *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) to[i] = (int16_t)row[i];
}


APART void store_sums(int32_t *to, const int32_t *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++) to[i] = row[i];
}


/* Index bytes first / 4 to end - 1 of a pixel, where values are above a threshold, which is where the difference, of
 * 17 bits, is below 0; channels that there are not are -1. */
static inline void sign(uint8_t *to, const int32_t *row, const int16_t *threshold, const int8_t *direction, int32_t first,
    int32_t end, int32_t n)
{
    for (int32_t q = first / 4; q < end; q++, n -= 4) {
        uint32_t bits = 0;
        if (n >= 4 && !direction) {
            bits = ((uint32_t)(threshold[0] - row[0]) >> 31 << 28) | ((uint32_t)(threshold[1] - row[1]) >> 31 << 29) |
                   ((uint32_t)(threshold[2] - row[2]) >> 31 << 30) | ((uint32_t)(threshold[3] - row[3]) >> 31 << 31);
            row += 4, threshold += 4;
        } else {
            for (int32_t i = 0; i < 4; i++) {
                bits >>= 1;
                if (i >= n) continue;
                const int32_t v = *row++;
                bits |= (uint32_t)(*threshold++ - (direction ? v * *direction++ : v)) & 0x80000000u;
            }
        }
        to[q] = (uint8_t)(bits >> 26 | ((uint32_t)q & 3) << 6);
    }
}


APART void signs(uint8_t *to, const int32_t *row, const int16_t *threshold, int32_t first, int32_t end, int32_t n)
{
    sign(to, row, threshold, 0, first, end, n);
}


/* The same, where some channels are +1 below their threshold: direction -1. */
APART void signs_either(uint8_t *to, const int32_t *row, const int16_t *threshold, const int8_t *direction,
    int32_t first, int32_t end, int32_t n)
{
    sign(to, row, threshold, direction, first, end, n);
}


/* A map in the order (channels, pixels), as the caller gets it. */
APART void hand_out(int32_t *y, const int16_t *map, int32_t channels, int32_t pixels)
{
    for (int32_t c = 0; c < channels; c++)
        for (int32_t i = 0; i < pixels; i++) *y++ = map[i * channels + c];
}


APART void hand_out_sums(int32_t *y, const int32_t *map, int32_t channels, int32_t pixels)
{
    for (int32_t c = 0; c < channels; c++)
        for (int32_t i = 0; i < pixels; i++) *y++ = map[i * channels + c];
}


APART void hand_out_signs(int32_t *y, const uint8_t *map, int32_t channels, int32_t pixels, int32_t bytes)
{
    for (int32_t c = 0; c < channels; c++)
        for (int32_t i = 0; i < pixels; i++) *y++ = map[i * bytes + c / 4] >> (2 + c % 4) & 1 ? 1 : -1;
}
