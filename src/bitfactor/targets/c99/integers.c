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


/* A binary layer, of windows on a map of `channels`. Rows of a window that are counted together, of one plane, are a
 * part; all signs of a window. */
typedef struct {
    window at;
    int32_t channels, rows, parts, all;
} binary;


#define ONES 0x11111111u
#define BYTES 0x01010101u
#define HIGH(v) ((v) >> 4 & 0x0f0f0f0fu)


/* Signs lie in planes of 16 channels, four index bytes a pixel: 4 * (the bits of four channels) + 64 * (their place of
 * four). A word of weights holds four inputs of 8 outputs, bit 4 * output + input. Words of 16 entries for each: entry n
 * counts in the nibble of an output how many of the signs n are those of its weights. So a look-up and an addition
 * stand for 32 products. */
APART void build(uint32_t *t, const uint32_t *w, int32_t count)
{
    for (const uint32_t *end = w + count; w != end; t += 16) {
        const uint32_t v = *w++, a = v & ONES, b = v >> 1 & ONES, c = v >> 2 & ONES, d = v >> 3 & ONES;
        const uint32_t first = 2 * a - ONES, second = 2 * b - ONES, third = 2 * c - ONES, fourth = 2 * d - ONES;
        uint32_t x = 4 * ONES - a - b - c - d;
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


/* What an entry holds, from the weights: cheaper where a map has few pixels. */
static inline uint32_t agree(uint32_t w, uint32_t i)
{
    const uint32_t v = ~(w ^ (i >> 2 & 15) * ONES);
    return v - (v >> 1 & 0x77777777u) - (v >> 2 & 0x33333333u) - (v >> 3 & ONES);
}


/* The counts of one pixel's part: the sum of all words, and that of their odd nibbles as bytes. At most 12 fit a
 * nibble. */
static inline void count_pixel(uint32_t *out, const uint8_t *p, const uint32_t *t, int32_t taps, int32_t rows,
    int32_t step, int32_t drop, int32_t t_drop, const int directly)
{
    uint32_t all = 0, high = 0;
    for (; rows; rows--, p += drop - taps * step, t += t_drop)
        for (int32_t i = 0; i < taps; i++, p += step, t += directly ? 4 : 64) {
            const uint32_t a = directly ? agree(t[0], p[0]) + agree(t[1], p[1]) : entry(t, p[0]) + entry(t, p[1]);
            const uint32_t b = directly ? agree(t[2], p[2]) + agree(t[3], p[3]) : entry(t, p[2]) + entry(t, p[3]);
            all += a + b, high += HIGH(a) + HIGH(b);
        }
    out[0] = all, out[1] = high;
}


/* Counts of one row of windows 3 wide, for a row of outputs: three groups of a tap are a sum of nibbles, the fourth ones
 * of the three taps another. The tables come by way of a struct because gcc otherwise derives them from one pointer. */
typedef struct {
    const uint32_t *left, *middle, *right, *end;
    int32_t next, drop, rows;
} three;

static inline void add_three(const uint8_t *p, uint32_t *out, const three *m, const int32_t step, const int begin)
{
    const uint32_t *left = m->left, *middle = m->middle, *right = m->right, *end = m->end;
    for (const int32_t next = m->next; out != end; p += step, out += next) {
        const uint32_t a = entry(left, p[0]) + entry(left, p[1]) + entry(left, p[2]);
        const uint32_t d = entry(left, p[3]) + entry(middle, p[7]) + entry(right, p[11]);
        const uint32_t c = entry(right, p[8]) + entry(right, p[9]) + entry(right, p[10]);
        const uint32_t b = entry(middle, p[4]) + entry(middle, p[5]) + entry(middle, p[6]);
        const uint32_t all = a + b + c + d, high = HIGH(a) + HIGH(b) + HIGH(c) + HIGH(d);
        if (begin) out[0] = all, out[1] = high;
        else out[0] += all, out[1] += high;
    }
}

static inline void count_threes(const uint8_t *p, uint32_t *out, three *m, const int32_t step)
{
    add_three(p, out, m, step, 1);
    while (--m->rows) {
        p += m->drop, m->left += 192, m->middle += 192, m->right += 192;
        add_three(p, out, m, step, 0);
    }
}

APART void count_threes_1(const uint8_t *p, uint32_t *out, three *m) { count_threes(p, out, m, 4); }
APART void count_threes_2(const uint8_t *p, uint32_t *out, three *m) { count_threes(p, out, m, 8); }


/* The counts of a row of outputs, 8 channels: for each pixel and part two words. A tap outside the map counts half of its
 * channels. */
static inline void count_rows(uint32_t *counts, const uint8_t *map, const binary *l, const uint32_t *t, int32_t y,
    const int directly)
{
    const window *at = &l->at;
    const int32_t width = at->kernel_width, drop = 4 * at->dilation_y * at->in_width, step = 4 * at->dilation_x;
    const int32_t reach = (width - 1) * at->dilation_x, next = 2 * l->parts, tap = directly ? 4 : 64;
    int32_t first = 0, last = at->out_width;
    while (first < last && first * at->stride_x < at->left) first++;
    while (last > first && (last - 1) * at->stride_x - at->left + reach >= at->in_width) last--;
    for (int32_t c = 0; c < l->channels; c += 16, map += 4 * at->in_height * at->in_width)
        for (int32_t r = 0, n; r < at->kernel_height; r += n, t += n * width * tap, counts += 2) {
            n = at->kernel_height - r < l->rows ? at->kernel_height - r : l->rows;
            int32_t up, down, x = 0, top = y * at->stride_y - at->top + r * at->dilation_y;
            inside(top, at->dilation_y, n, at->in_height, &up, &down);
            const uint8_t *p = map + 4 * (top + up * at->dilation_y) * at->in_width - 4 * at->left;
            const uint32_t *u = t + up * width * tap, half = (uint32_t)(l->channels - c < 16 ? l->channels - c : 16) / 2;
            const uint32_t out = (uint32_t)((n - down + up) * width) * half;
            uint32_t *to = counts;
            for (; x < at->out_width; x++, to += next) {
                if (x == first && !directly && width == 3 && step == 4 && up < down && at->stride_x < 3 && x < last) {
                    three m = {u, u + 64, u + 128, counts + last * next, next, drop, down - up};
                    if (at->stride_x == 1) count_threes_1(p + 4 * x, to, &m);
                    else count_threes_2(p + 8 * x, to, &m);
                    for (; out && to != m.end; to += next) to[0] += 17 * BYTES * out, to[1] += BYTES * out;
                    to = counts + last * next, x = last;
                    if (x == at->out_width) break;
                }
                int32_t begin = 0, end = width;
                if (x < first || x >= last)
                    inside(x * at->stride_x - at->left, at->dilation_x, width, at->in_width, &begin, &end);
                const int32_t taps = up < down ? end - begin : 0, all = (width - end + begin) * (down - up);
                count_pixel(to, p + 4 * x * at->stride_x + begin * step, u + begin * tap, taps, down - up, step, drop,
                    (width - taps) * tap, directly);
                const uint32_t beside = out + (uint32_t)all * half;
                to[0] += 17 * BYTES * beside, to[1] += BYTES * beside;
            }
        }
}

APART void count_row(uint32_t *counts, const uint8_t *map, const binary *l, const uint32_t *tables, int32_t y)
{
    count_rows(counts, map, l, tables, y, 0);
}


APART void count_row_directly(uint32_t *counts, const uint8_t *map, const binary *l, const uint32_t *weight, int32_t y)
{
    count_rows(counts, map, l, weight, y, 1);
}


/* A pixel's counts in halves of words: of channels 0 and 4, 1 and 5, 2 and 6, 3 and 7. */
static inline void widen(uint32_t *wide, const uint32_t *n, int32_t parts)
{
    const uint32_t halves = 0x00ff00ffu;
    wide[0] = wide[1] = wide[2] = wide[3] = 0;
    for (const uint32_t *end = n + 2 * parts; n != end; n += 2) {
        const uint32_t odd = n[1], even = n[0] - (odd << 4);
        wide[0] += even & halves, wide[1] += odd & halves, wide[2] += even >> 8 & halves, wide[3] += odd >> 8 & halves;
    }
}


/* Sums of signs, 2 * (those that agree) - all. */
APART void take(int32_t *row, const uint32_t *n, const binary *l)
{
    uint32_t wide[4];
    widen(wide, n, l->parts);
    for (int32_t i = 0; i < 4; i++) {
        row[i] = 2 * (int32_t)(wide[i] & 0xffff) - l->all;
        row[i + 4] = 2 * (int32_t)(wide[i] >> 16) - l->all;
    }
}


/* How a row of outputs ends in the stream. `border` of a channel is the least value above the next threshold; it and
 * the offset are for values less `lower`. Factors are for counts, or for sums above 0 and for others. */
typedef struct {
    int32_t pixels, parts, channels, all, shift, down, lower, most;
} ending;

typedef struct {
    int32_t factor, offset, border;
} straight;

typedef struct {
    int32_t positive, negative, offset, border;
} bent;


static inline int32_t kept(int32_t v, int32_t most) { return (uint32_t)v <= (uint32_t)most ? v : v < 0 ? 0 : most; }


/* Four channels: a term of the sums and what is in the stream. Returns their signs. */
static inline uint32_t end_straight(int16_t *x, const uint32_t *wide, int32_t half, const straight *f, int32_t shift,
    int32_t down, int32_t lower, int32_t most)
{
    uint32_t bits = 0;
    for (int32_t i = 3; i >= 0; i--) {
        const int32_t count = (int32_t)(wide[i] >> half & 0xffff), other = down ? rounded(x[i], down) : x[i];
        const int32_t v = kept(((count * f[i].factor + f[i].offset) >> shift) + other, most);
        x[i] = (int16_t)(v + lower);
        bits += bits + ((uint32_t)v >= (uint32_t)f[i].border);
    }
    return bits;
}


static inline void finish_straight(int16_t *x, uint8_t *to, const uint32_t *n, const straight *f, const ending *e,
    uint32_t marks, const int same, const int signs)
{
    const int32_t shift = e->shift, down = same ? 0 : e->down, lower = e->lower, most = e->most, next = 2 * e->parts;
    for (const uint32_t *end = n + e->pixels * next; n != end; n += next, x += e->channels) {
        uint32_t wide[4];
        widen(wide, n, e->parts);
        const uint32_t low = end_straight(x, wide, 0, f, shift, down, lower, most);
        const uint32_t high = end_straight(x + 4, wide, 16, f + 4, shift, down, lower, most);
        if (signs) to[0] = (uint8_t)(low << 2 ^ marks), to[1] = (uint8_t)(high << 2 ^ marks >> 8), to += 4;
    }
}


APART void finish(int16_t *x, uint8_t *to, const uint32_t *n, const straight *f, const ending *e, uint32_t marks)
{
    finish_straight(x, to, n, f, e, marks, 1, 1);
}


APART void finish_shifted(int16_t *x, uint8_t *to, const uint32_t *n, const straight *f, const ending *e, uint32_t marks)
{
    finish_straight(x, to, n, f, e, marks, 0, 1);
}


APART void finish_last(int16_t *x, const uint32_t *n, const straight *f, const ending *e)
{
    finish_straight(x, 0, n, f, e, 0, 0, 0);
}


static inline uint32_t end_bent(int16_t *x, const uint32_t *wide, int32_t half, const bent *f, int32_t all, int32_t shift,
    int32_t down, int32_t lower, int32_t most)
{
    uint32_t bits = 0;
    for (int32_t i = 3; i >= 0; i--) {
        const int32_t sum = 2 * (int32_t)(wide[i] >> half & 0xffff) - all, other = down ? rounded(x[i], down) : x[i];
        const int32_t factor = sum > 0 ? f[i].positive : f[i].negative;
        const int32_t v = kept(((sum * factor + f[i].offset) >> shift) + other, most);
        x[i] = (int16_t)(v + lower);
        bits += bits + ((uint32_t)v >= (uint32_t)f[i].border);
    }
    return bits;
}


static inline void finish_bends(int16_t *x, uint8_t *to, const uint32_t *n, const bent *f, const ending *e,
    uint32_t marks, const int same, const int signs)
{
    const int32_t shift = e->shift, down = same ? 0 : e->down, lower = e->lower, most = e->most, next = 2 * e->parts;
    for (const uint32_t *end = n + e->pixels * next; n != end; n += next, x += e->channels) {
        uint32_t wide[4];
        widen(wide, n, e->parts);
        const uint32_t low = end_bent(x, wide, 0, f, e->all, shift, down, lower, most);
        const uint32_t high = end_bent(x + 4, wide, 16, f + 4, e->all, shift, down, lower, most);
        if (signs) to[0] = (uint8_t)(low << 2 ^ marks), to[1] = (uint8_t)(high << 2 ^ marks >> 8), to += 4;
    }
}


APART void finish_bent(int16_t *x, uint8_t *to, const uint32_t *n, const bent *f, const ending *e, uint32_t marks)
{
    finish_bends(x, to, n, f, e, marks, 1, 1);
}


APART void finish_bent_shifted(int16_t *x, uint8_t *to, const uint32_t *n, const bent *f, const ending *e, uint32_t marks)
{
    finish_bends(x, to, n, f, e, marks, 0, 1);
}


APART void finish_bent_last(int16_t *x, const uint32_t *n, const bent *f, const ending *e)
{
    finish_bends(x, 0, n, f, e, 0, 0, 0);
}


/* Sums in groups, or of a padded map with an odd number of channels, a product at a time: bits of weights, output by
 * output. */
APART void grouped_binary_conv(int32_t *row, const uint8_t *map, const layer *l, const uint8_t *weight, int32_t y,
    int32_t x, int32_t first, int32_t n)
{
    const window *at = &l->at;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left;
    const int32_t plane = 4 * at->in_height * at->in_width;
    int32_t up, down, begin, end;
    inside(top, at->dilation_y, at->kernel_height, at->in_height, &up, &down);
    inside(left, at->dilation_x, at->kernel_width, at->in_width, &begin, &end);
    for (int32_t j = 0; j < n; j++) {
        const int32_t channel = (first + j) / l->outputs * l->depth;
        int32_t sum = 0;
        for (int32_t i = up; i < down; i++)
            for (int32_t k = begin; k < end; k++) {
                const uint8_t *pixel = map + 4 * ((top + i * at->dilation_y) * at->in_width + left + k * at->dilation_x);
                int32_t bit = (((first + j) * at->kernel_height + i) * at->kernel_width + k) * l->depth;
                for (int32_t c = channel; c < channel + l->depth; c++, bit++) {
                    const int sign = pixel[c / 16 * plane + c % 16 / 4] >> (2 + c % 4) & 1;
                    sum += sign == (weight[bit / 8] >> bit % 8 & 1) ? 1 : -1;
                }
            }
        row[j] = sum;
    }
}


/* A map of signs with a border of +1 or -1: an index byte of a border for each four channels. */
APART void surround(uint8_t *to, const uint8_t *from, int32_t height, int32_t width, int32_t planes, int32_t top,
    int32_t left, int32_t bottom, int32_t right, const uint8_t *border)
{
    for (; planes; planes--, border += 4, from += 4 * height * width)
        for (int32_t y = -top; y < height + bottom; y++)
            for (int32_t x = -left; x < width + right; x++) {
                const int in = y >= 0 && y < height && x >= 0 && x < width;
                const uint8_t *pixel = in ? from + (y * width + x) * 4 : border;
                for (int32_t i = 0; i < 4; i++) *to++ = pixel[i];
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


/* Index bytes of n channels: a sign is where the difference to the threshold, of 17 bits, is below 0, or the opposite
 * where `marks` has its bit; channels that there are not are -1. */
APART void signs(uint8_t *to, const int32_t *row, const int16_t *threshold, const uint8_t *marks, int32_t bytes,
    int32_t n)
{
    for (int32_t q = 0; q < bytes; q++, n -= 4) {
        uint32_t bits = 0;
        if (n >= 4) {
            bits = ((uint32_t)(threshold[0] - row[0]) >> 31 << 28) | ((uint32_t)(threshold[1] - row[1]) >> 31 << 29) |
                   ((uint32_t)(threshold[2] - row[2]) >> 31 << 30) | ((uint32_t)(threshold[3] - row[3]) >> 31 << 31);
            row += 4, threshold += 4;
        } else {
            for (int32_t i = 0; i < 4; i++) {
                bits >>= 1;
                if (i < n) bits |= (uint32_t)(*threshold++ - *row++) & 0x80000000u;
            }
        }
        to[q] = (uint8_t)(bits >> 26 ^ marks[q]);
    }
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


APART void hand_out_signs(int32_t *y, const uint8_t *map, int32_t channels, int32_t pixels)
{
    for (int32_t c = 0; c < channels; c++)
        for (int32_t i = 0; i < pixels; i++)
            *y++ = map[(c / 16 * pixels + i) * 4 + c % 16 / 4] >> (2 + c % 4) & 1 ? 1 : -1;
}
