/* A function of its own has the registers for itself. All that touches the arena is one: where gcc 12 sees two pointers
 * of different steps into it in a loop, it may derive one from the other as a number, take that for an access of the
 * null pointer, and drop the whole loop. */
#ifdef __GNUC__
#define APART static __attribute__((noinline))
#define STAYS(v) __asm__("" : "+r"(v)) /* gcc does not rearrange across it */
#define TOGETHER(a, b) __asm__("" : "+r"(a), "+r"(b))
#define UNROLLED(n) _Pragma(TEXT(GCC unroll n))
#define TEXT(t) #t
#else
#define APART static
#define TOGETHER(a, b) (void)0
#define UNROLLED(n)
#define STAYS(v) (void)0
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "The network needs a little-endian processor."
#endif


/* Counts of signs: of four outputs in bytes, of two in halves. */
typedef union {
    uint32_t word;
    uint16_t half[2];
    uint8_t byte[4];
} cell;


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
typedef void dot(int32_t *sum, const void *map, int32_t at, int32_t drop, const uint8_t *w, int32_t n, int32_t rows);

static inline void convolve(int32_t *row, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t x, int32_t first, int32_t n, int32_t together, dot *add)
{
    const window *at = &l->at;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left, depth = l->depth;
    int32_t begin, end;
    inside(left, at->dilation_x, at->kernel_width, at->in_width, &begin, &end);
    const int side = at->dilation_x == 1 && together == 4 && end - begin == at->kernel_width;
    const int whole = side && at->dilation_y == 1 && top >= 0 && top + at->kernel_height <= at->in_height;
    const int32_t size = at->kernel_height * at->kernel_width * depth, row_size = at->kernel_width * depth;
    for (int32_t j = 0; j < n; j += together) {
        const uint8_t *w = weight + (first + j) * size;
        const int32_t channel = together == 4 ? 0 : (first + j) / l->outputs * depth;
        int32_t sum[4];
        for (int32_t i = 0; i < together; i++) sum[i] = bias[first + j + i];
        if (whole) add(sum, map, (top * at->in_width + left) * depth, at->in_width * depth, w, row_size, at->kernel_height);
        for (int32_t i = whole ? at->kernel_height : 0; i < at->kernel_height; i++) {
            const int32_t row_y = top + i * at->dilation_y;
            const int out = row_y < 0 || row_y >= at->in_height;
            if (side && !out) {
                add(sum, map, (row_y * at->in_width + left) * depth, 0, w, row_size, 1);
                w += together * row_size;
                continue;
            }
            for (int32_t k = 0; k < at->kernel_width; k++, w += together * depth) {
                if (!out && k >= begin && k < end) {
                    const int32_t pixel = row_y * at->in_width + left + k * at->dilation_x;
                    add(sum, map, pixel * l->channels + channel, 0, w, depth, 1);
                } else if (outside) {
                    add(sum, outside, channel, 0, w, depth, 1);
                }
            }
        }
        for (int32_t i = 0; i < together && j + i < n; i++) row[j + i] = sum[i];
    }
}


/* Four outputs at a time of values of 16 bits, whose weights lie side by side, each 128 more: a byte is loaded in one instruction. Without a
 * sign, sums that pass 32 bits on their way come back. */
typedef struct {
    uint32_t a, b, c, d;
} four;

static inline void add_products(four *sum, uint32_t v, const uint8_t *w)
{
    sum->a += v * w[0], sum->b += v * w[1], sum->c += v * w[2], sum->d += v * w[3];
    STAYS(sum->a);
    STAYS(sum->b);
    STAYS(sum->c);
    STAYS(sum->d);
}

static inline void hand_back(int32_t *sum, const four *found, uint32_t all)
{
    sum[0] = (int32_t)(found->a - 128 * all), sum[1] = (int32_t)(found->b - 128 * all);
    sum[2] = (int32_t)(found->c - 128 * all), sum[3] = (int32_t)(found->d - 128 * all);
}


static inline void products(int32_t *sum, const void *map, int32_t at, int32_t drop, const uint8_t *w, int32_t n,
    int32_t rows)
{
    four found = {(uint32_t)sum[0], (uint32_t)sum[1], (uint32_t)sum[2], (uint32_t)sum[3]};
    uint32_t all = 0;
    for (const int16_t *start = (const int16_t *)map + at; rows; rows--, start += drop) {
        const int16_t *x = start, *const end = x + n;
        for (; end - x >= 2; x += 2, w += 8) {
            all += (uint32_t)x[0] + (uint32_t)x[1];
            STAYS(all);
            add_products(&found, (uint32_t)x[0], w), add_products(&found, (uint32_t)x[1], w + 4);
        }
        if (x != end) all += (uint32_t)*x, add_products(&found, (uint32_t)*x, w), w += 4;
    }
    hand_back(sum, &found, all);
}

/* Sums of up to 8 outputs for a row of windows. Those of a pixel that is always on the map need not look where they lie. */
APART void conv(cell *sums, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t first, int32_t n)
{
    const window *at = &l->at;
    const int32_t depth = l->depth, row = y * at->stride_y * at->in_width;
    const int pixel = at->kernel_height * at->kernel_width == 1 && at->top + at->left == 0 &&
                      (at->out_height - 1) * at->stride_y < at->in_height && (at->out_width - 1) * at->stride_x < at->in_width;
    for (int32_t x = 0; x < at->out_width; x++, sums += 8) {
        int32_t *sum = (int32_t *)sums;
        if (!pixel) {
            convolve(sum, map, l, weight, bias, outside, y, x, first, n, 4, products);
            continue;
        }
        for (int32_t j = first; j < first + n; j += 4, sum += 4) {
            for (int32_t i = 0; i < 4; i++) sum[i] = bias[j + i];
            products(sum, map, (row + x * at->stride_x) * depth, 0, weight + j * depth, depth, 1);
        }
    }
}


/* Layers of pixels: `pitch` words are a row under windows, in which columns that a window sees are neighbours, `columns` to
 * each of its dilation's remainders. */
typedef struct {
    window at;
    int32_t channels, columns, pitch;
} paired;


/* The rows under a row of windows. A word is x0 + 2^16 x1, of a value and the next one, and one of weights w1 + 2^16 w0: the
 * upper half of their product is x0 w0 + x1 w1 if 2^15 is added, so that nothing is borrowed by the lower half, x0 w1. */
APART void pair_up(uint32_t *rows, const uint8_t *map, const paired *l, const uint8_t *outside, int32_t y)
{
    const window *at = &l->at;
    const int32_t apart = at->dilation_x, depth = l->channels, pitch = l->pitch, kept = pitch * (at->kernel_height - 1);
    const int moves = y > 0 && at->stride_y == 1 && at->dilation_y == 1;
    for (int32_t i = 0; moves && i < kept; i++) rows[i] = rows[i + pitch];
    if (moves) rows += kept;
    for (int32_t i = moves ? at->kernel_height - 1 : 0; i < at->kernel_height; i++) {
        const int32_t row_y = y * at->stride_y - at->top + i * at->dilation_y;
        const int out = row_y < 0 || row_y >= at->in_height;
        uint32_t next = 0, *to = rows += pitch;
        for (int32_t r = apart; r--;)
            for (int32_t x = (l->columns - 1) * apart + r - at->left; x >= -at->left; x -= apart) {
                const int beside = x < 0 || x >= at->in_width;
                const uint8_t *begin = out || beside ? outside : map + (row_y * at->in_width + x) * depth;
                for (const uint8_t *from = begin + depth; from != begin;) {
                    const uint32_t value = (uint32_t)*--from - 128;
                    *--to = value + (next << 16);
                    next = value;
                }
            }
    }
}


/* Sums of 8 outputs for a row of windows, four at a time; `words` are a row of one. */
static inline void conv_pixels(cell *sums, const uint32_t *rows, const paired *l, const uint32_t *weight,
    const int32_t *bias, const int32_t words)
{
    const window *at = &l->at;
    const int32_t pitch = l->pitch, depth = l->channels;
    uint32_t half = 1 << 15;
    STAYS(half);
    for (int32_t x = 0, r = 0, q = 0; x < at->out_width; x++, r += at->stride_x) {
        for (; r >= at->dilation_x; q++) r -= at->dilation_x;
        const uint32_t *w = weight;
        UNROLLED(1) for (int32_t j = 0; j < 8; j += 4, sums += 4) {
            int32_t a = bias[j], b = bias[j + 1], c = bias[j + 2], d = bias[j + 3];
            const uint32_t *row = rows + (r * l->columns + q) * depth;
            for (int32_t i = at->kernel_height; i; i--, row += pitch) {
                const uint32_t *v = row;
                UNROLLED(8) for (int32_t k = 0; k < words; k++, w += 4, v += 2) {
                    a += (int32_t)(*v * w[0] + half) >> 16, b += (int32_t)(*v * w[1] + half) >> 16;
                    c += (int32_t)(*v * w[2] + half) >> 16, d += (int32_t)(*v * w[3] + half) >> 16;
                }
            }
            sums[0].word = (uint32_t)a, sums[1].word = (uint32_t)b, sums[2].word = (uint32_t)c, sums[3].word = (uint32_t)d;
        }
    }
}


/* One output at a time, for layers in groups. */
static inline void product_of_pixels(int32_t *sum, const void *map, int32_t at, int32_t drop, const uint8_t *w, int32_t n,
    int32_t rows)
{
    (void)drop, (void)rows;
    for (const uint8_t *x = (const uint8_t *)map + at, *end = x + n; x != end;) *sum += *x++ * (*w++ - 128);
}

APART void grouped_conv_pixels(int32_t *row, const void *map, const layer *l, const uint8_t *weight,
    const int32_t *bias, const void *outside, int32_t y, int32_t x, int32_t first, int32_t n)
{
    convolve(row, map, l, weight, bias, outside, y, x, first, n, 1, product_of_pixels);
}


static inline void product(int32_t *sum, const void *map, int32_t at, int32_t drop, const uint8_t *w, int32_t n,
    int32_t rows)
{
    (void)drop, (void)rows;
    for (const int16_t *x = (const int16_t *)map + at, *end = x + n; x != end;) *sum += *x++ * (*w++ - 128);
}

APART void grouped_conv(int32_t *row, const void *map, const layer *l, const uint8_t *weight, const int32_t *bias,
    const void *outside, int32_t y, int32_t x, int32_t first, int32_t n)
{
    convolve(row, map, l, weight, bias, outside, y, x, first, n, 1, product);
}


/* rnd(a M, k) within bounds, in 32 bits: a = 2^16 * high + low, and what is added to round is so split, too. For k < 16
 * what is far beyond 16 bits is so after it was cut, too. */
static inline int32_t scaled(int32_t a, int32_t m, int32_t k, const int near)
{
    const int32_t high = (a >> 16) * m, half = k ? (int32_t)1 << (k - 1) : 0, far = (int32_t)3 << 14;
    if (k >= 16) return (high + (((a & 0xffff) * m + (half & 0xffff)) >> 16) + (half >> 16)) >> (k - 16);
    if (k >= 2) return (near ? high : within(high, -far, far)) * (1 << (16 - k)) + (((a & 0xffff) * m + half) >> k);
    return (within(a, -65536, 65536) * m + half) >> k;
}


APART void scale_sums(int32_t *row, const int16_t *multiplier, int32_t k, int32_t lower, int32_t upper, int32_t n)
{
    for (int32_t i = 0; i < n; i++) row[i] = within(scaled(row[i], multiplier[i], k, 0), lower, upper);
}


/* A binary layer, of windows on a map of `channels` whose rows are `pitch` pixels apart. Rows of a window that are counted
 * together, of one plane, are a part; `next` words of counts further is the next pixel; all signs of a window. */
typedef struct {
    window at;
    int32_t channels, rows, parts, next, all, pitch, plane;
} binary;


#define ONES 0x11111111u
#define BYTES 0x01010101u
#define HIGH(v) ((v) >> 4 & nibbles)


/* Signs lie in planes of 8 channels, a byte a pixel. For a layer they become index bytes in planes of 16 channels, four a
 * pixel: 4 * (the bits of four channels) + 64 * (their place of four). A word of weights holds four inputs of 8 outputs,
 * bit 4 * output + input. Words of 16 entries for each: entry n counts in the nibble of an output how many of the signs n
 * are those of its weights. So a look-up and an addition stand for 32 products. */
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
static inline void count_pixel(cell *out, const uint8_t *p, const uint32_t *t, int32_t taps, int32_t rows,
    int32_t step, int32_t drop, int32_t t_drop, const int directly)
{
    uint32_t all = 0, high = 0, nibbles = 15 * BYTES;
    STAYS(nibbles);
    for (; rows; rows--, p += drop - taps * step, t += t_drop)
        for (int32_t i = 0; i < taps; i++, p += step, t += directly ? 4 : 64) {
            const uint32_t a = directly ? agree(t[0], p[0]) + agree(t[1], p[1]) : entry(t, p[0]) + entry(t, p[1]);
            const uint32_t b = directly ? agree(t[2], p[2]) + agree(t[3], p[3]) : entry(t, p[2]) + entry(t, p[3]);
            all += a + b, high += HIGH(a) + HIGH(b);
        }
    out[0].word = all, out[1].word = high;
}


/* The counts of a row of outputs, 8 channels: for each pixel and part two words. A tap outside the map counts half of its
 * channels. */
static inline void count_rows(cell *counts, const uint8_t *map, const binary *l, const uint32_t *t, int32_t y,
    const int directly)
{
    const window *at = &l->at;
    const int32_t width = at->kernel_width, drop = 4 * at->dilation_y * l->pitch, step = 4 * at->dilation_x;
    const int32_t next = l->next, tap = directly ? 4 : 64;
    for (int32_t c = 0; c < l->channels; c += 16, map += l->plane)
        for (int32_t r = 0, n; r < at->kernel_height; r += n, t += n * width * tap, counts += 2) {
            n = at->kernel_height - r < l->rows ? at->kernel_height - r : l->rows;
            int32_t up, down, begin, end;
            const int32_t top = y * at->stride_y - at->top + r * at->dilation_y;
            inside(top, at->dilation_y, n, at->in_height, &up, &down);
            const int32_t half = (l->channels - c < 16 ? l->channels - c : 16) / 2;
            cell *to = counts;
            for (int32_t x = 0, left = -at->left; x < at->out_width; x++, left += at->stride_x, to += next) {
                inside(left, at->dilation_x, width, at->in_width, &begin, &end);
                const int32_t rows = begin < end ? down - up : 0, taps = end - begin;
                const uint8_t *p = map + ((top + up * at->dilation_y) * l->pitch + left + begin * at->dilation_x) * 4;
                count_pixel(to, p, t + (up * width + begin) * tap, taps, rows, step, drop, (width - taps) * tap,
                    directly);
                const uint32_t outside = (uint32_t)((n * width - rows * taps) * half);
                to[0].word += 17 * BYTES * outside, to[1].word += BYTES * outside;
            }
        }
}


APART void count_row(cell *counts, const uint8_t *map, const binary *l, const uint32_t *tables, int32_t y)
{
    count_rows(counts, map, l, tables, y, 0);
}


APART void count_row_directly(cell *counts, const uint8_t *map, const binary *l, const uint32_t *weight, int32_t y)
{
    count_rows(counts, map, l, weight, y, 1);
}


/* Windows 3 wide, with a border of -1 at the map's sides. One row of taps for a row of outputs: three groups of a tap are a
 * sum of nibbles, the fourth ones of the three taps another. The tables come by way of a struct because gcc otherwise
 * derives them from one pointer each time. */
typedef struct {
    const uint32_t *left, *middle, *right;
    const cell *end;
    int32_t next, drop, rows;
} three;

static inline void add_three(const uint8_t *p, cell *out, const three *m, const int32_t step, const int begin)
{
    const uint32_t *left = m->left, *middle = m->middle, *right = m->right;
    const cell *end = m->end;
    uint32_t nibbles = 15 * BYTES; /* in a register, where a shift is free */
    STAYS(nibbles);
    for (const int32_t next = m->next; out != end; p += step, out += next) {
        const uint32_t a = entry(left, p[0]) + entry(left, p[1]) + entry(left, p[2]);
        const uint32_t d = entry(left, p[3]) + entry(middle, p[7]) + entry(right, p[11]);
        const uint32_t c = entry(right, p[8]) + entry(right, p[9]) + entry(right, p[10]);
        const uint32_t b = entry(middle, p[4]) + entry(middle, p[5]) + entry(middle, p[6]);
        uint32_t all = a + b + c + d, high = HIGH(a) + HIGH(b) + HIGH(c) + HIGH(d);
        TOGETHER(all, high); /* then both can be loaded, and stored, in one instruction */
        const uint32_t before = begin ? 0 : out[0].word, high_before = begin ? 0 : out[1].word;
        all += before, high += high_before;
        TOGETHER(all, high);
        out[0].word = all, out[1].word = high;
    }
}

static inline void add_threes(const uint8_t *p, cell *out, three *m, const int32_t step)
{
    add_three(p, out, m, step, 1);
    for (int32_t rows = m->rows; --rows;) {
        p += m->drop, m->left += 192, m->middle += 192, m->right += 192;
        add_three(p, out, m, step, 0);
    }
}

APART void add_threes_1(const uint8_t *p, cell *out, three *m) { add_threes(p, out, m, 4); }
APART void add_threes_2(const uint8_t *p, cell *out, three *m) { add_threes(p, out, m, 8); }


/* What a border counts beyond half of its taps, of first taps and of last ones: for the kernel's rows before each. */
APART void count_edges(uint32_t *to, const uint32_t *t, const binary *l)
{
    const uint32_t nibbles = 15 * BYTES;
    for (int32_t c = 0; c < l->channels; c += 16) {
        const uint32_t half = BYTES * (uint32_t)(l->channels - c < 16 ? l->channels - c : 16) / 2;
        to[0] = to[1] = to[2] = to[3] = 0;
        to += 4;
        for (int32_t i = 2 * l->at.kernel_height; i; i--, to += 2, t += i & 1 ? 128 : 64) {
            const uint32_t v = t[0] + t[16] + t[32];
            to[0] = to[-4] + v + t[48] - 17 * half, to[1] = to[-3] + HIGH(v) + HIGH(t[48]) - half;
        }
    }
}


APART void count_threes(cell *counts, const uint8_t *map, const binary *l, const uint32_t *t, const uint32_t *edges,
    int32_t y)
{
    const window *at = &l->at;
    const int32_t height = at->kernel_height, top = y * at->stride_y - at->top, next = l->next;
    const int32_t last = next * (at->out_width - 1);
    const int right = (at->out_width - 1) * at->stride_x - at->left + 3 > at->in_width;
    int32_t up, down;
    inside(top, 1, height, at->in_height, &up, &down);
    map += 4 * ((top + up) * l->pitch - at->left);
    for (int32_t c = 0; c < l->channels; c += 16, map += l->plane, t += 192 * height, edges += 4 * height + 4, counts += 2) {
        const uint32_t *u = t + 192 * up;
        three m = {u, u + 64, u + 128, counts + last + next, next, 4 * l->pitch, down - up};
        if (at->stride_x == 1) add_threes_1(map, counts, &m);
        else add_threes_2(map, counts, &m);
        const uint32_t *const e = edges + 4 * up, *const f = edges + 4 * down;
        if (at->left) counts[0].word -= f[0] - e[0], counts[1].word -= f[1] - e[1];
        if (right) counts[last].word -= f[2] - e[2], counts[last + 1].word -= f[3] - e[3];
        if (down - up < height) {
            const int32_t half = (l->channels - c < 16 ? l->channels - c : 16) / 2;
            const uint32_t outside = (uint32_t)((height - down + up) * 3 * half) * BYTES;
            for (cell *to = counts; to != m.end; to += next) to[0].word += 17 * outside, to[1].word += outside;
        }
    }
}


/* A pixel's counts in halves, in the order of the channels. */
static inline void widen(cell *wide, const cell *n, int32_t parts)
{
    const uint32_t halves = 0x00ff00ffu;
    uint32_t a = 0, b = 0, c = 0, d = 0;
    for (const cell *end = n + 2 * parts; n != end; n += 2) {
        const uint32_t odd = n[1].word, even = n[0].word - (odd << 4);
        a += even & halves, b += odd & halves, c += even >> 8 & halves, d += odd >> 8 & halves;
    }
    wide[0].word = a, wide[1].word = b, wide[2].word = c, wide[3].word = d;
}


/* Sums of signs, 2 * (those that agree) - all. */
APART void take(int32_t *row, const cell *n, const binary *l)
{
    cell wide[4];
    widen(wide, n, l->parts);
    for (int32_t i = 0; i < 8; i++) row[i] = 2 * wide[i / 2].half[i & 1] - l->all;
}


/* How a row of outputs ends in the stream: bounds and offsets are for values less `lower`. A slope has been multiplied by
 * 2^slope_shift. */
typedef struct {
    int32_t pixels, next, channels, all, down, lower, most, slope_shift;
} ending;


/* `v` within 0 and `most`. */
static inline int32_t bounded(int32_t v, int32_t most)
{
#if defined(__GNUC__) && defined(__thumb2__)
    __asm__("cmp %0, %1\n\tit hi\n\tbichi %0, %1, %0, asr #31" : "+r"(v) : "r"(most) : "cc");
    return v;
#else
    return (uint32_t)v > (uint32_t)most ? most & ~(v >> 31) : v;
#endif
}


/* `marks` has a byte of the signs that count, and one that changes them. */
enum { NO_SIGNS, NARROW, WIDE };

/* Two neighbours' signs. Where no two values of a channel are more than 2^15 apart, `limit` is added to a word of both, and
 * leaves them in the top bits of the halves; else it is two thresholds. */
static inline uint32_t signs_of_two(int32_t a, int32_t b, const int32_t *limit, uint32_t bits, const int signs)
{
    if (signs == NARROW) return bits >> 2 | (((uint32_t)a + ((uint32_t)b << 16) + (uint32_t)limit[0]) & 0x80008000u);
    if (signs == WIDE) bits >>= 2, bits |= (uint32_t)(limit[0] - a) >> 31 << 30 | ((uint32_t)(limit[1] - b) >> 31 << 31);
    return bits;
}

static inline uint8_t signs_of(uint32_t bits, uint32_t marks, const int signs)
{
    if (signs == NARROW) bits = (bits >> 9 & 0x55) | (bits >> 24 & 0xaa);
    if (signs == WIDE) bits >>= 24;
    return (uint8_t)((bits & marks) ^ marks >> 8);
}


/* The term of a count: a channel has one factor of counts or, where a term is bent, two, of sums above 0 and of others; and
 * an offset. */
static inline int32_t term_of(const int32_t *f, int32_t count, int32_t all, const int bent, const int shift)
{
    const int32_t sum = 2 * count - all;
    if (!bent) return (count * f[0] + f[1]) >> shift;
    return (sum * (sum > 0 ? f[0] : f[1]) + f[2]) >> shift;
}


/* Adds a row's terms to the stream. The counts of a pixel are in bytes, or in halves if `parts` were counted apart. With a
 * `curve` what is stored comes from the sum: a slope where that is not above 0 and, with 3 numbers a channel, what is added
 * before and behind, that less `lower`. Signs are those of values before that last addition. */
static inline void finish_row(cell *x, uint8_t *to, cell *n, const int32_t *f, const ending *e, uint32_t marks,
    const int shift, const int bent, const int same, const int bytes, const int signs, const int curve)
{
    const int32_t down = same ? 0 : e->down, lower = e->lower, most = e->most, next = e->next, all = e->all;
    const int32_t rest = e->channels / 2 - 4, size = bent ? 3 : 2, two = 2 * (size + curve) + signs;
    for (const cell *end = n + e->pixels * next; n != end; n += next, x += rest, f -= 4 * two) {
        uint32_t bits = 0;
        if (bytes) n[0].word -= n[1].word << 4;
        const uint8_t *byte = n->byte;
        const uint16_t *half = n->half;
        for (const cell *last = x + 4; x != last; x++, f += two) {
            int32_t v[2];
            for (int32_t k = 0; k < 2; k++) {
                const int32_t of = bytes ? byte[4 * k] : half[k], old = (int16_t)x->half[k];
                const int32_t *const c = f + 2 * size + signs + k * curve;
                const int32_t term = term_of(f + k * size, of, all, bent, shift);
                v[k] = bounded(term + (same ? old : rounded(old, down)), most);
                if (curve == 3) v[k] = bounded(v[k] + c[1], most);
                v[k] += lower;
                if (curve && v[k] <= 0) v[k] = rounded(v[k] * c[0], e->slope_shift);
                x->half[k] = (uint16_t)(curve == 3 ? bounded(v[k] + c[2], most) + lower : v[k]);
            }
            bits = signs_of_two(v[0], v[1], f + 2 * size, bits, signs);
            byte++, half += 2;
        }
        if (signs) *to++ = signs_of(bits, marks, signs);
    }
}


/* Scales a row's sums, stores them, and tells their signs: two multipliers and what tells the signs of two channels. Where
 * products are `near`, they fit 32 bits once shifted. */
static inline void scale_row(cell *x, uint8_t *to, cell *n, const int32_t *f, const ending *e, uint32_t marks,
    const int shift, const int near, const int signs)
{
    const int32_t lower = e->lower, most = e->most, rest = e->channels / 2 - 4, two = 2 + signs;
    for (const cell *end = n + e->pixels * 8; n != end; x += rest, f -= 4 * two) {
        uint32_t bits = 0;
        for (const cell *last = x + 4; x != last; x++, f += two, n += 2) {
            int32_t v[2];
            for (int32_t k = 0; k < 2; k++) {
                v[k] = bounded(scaled((int32_t)n[k].word, f[k], shift, near) - lower, most) + lower;
                x->half[k] = (uint16_t)v[k];
            }
            bits = signs_of_two(v[0], v[1], f + 2, bits, signs);
        }
        if (signs) *to++ = signs_of(bits, marks, signs);
    }
}


APART void widen_row(cell *n, int32_t pixels, int32_t parts, int32_t next)
{
    for (; pixels; pixels--, n += next) widen(n, n, parts);
}


/* Sums in groups, or of a padded map with an odd number of channels, a product at a time: bits of weights, output by
 * output. */
APART void grouped_binary_conv(int32_t *row, const uint8_t *map, const layer *l, const uint8_t *weight, int32_t y,
    int32_t x, int32_t first, int32_t n)
{
    const window *at = &l->at;
    const int32_t top = y * at->stride_y - at->top, left = x * at->stride_x - at->left;
    const int32_t plane = at->in_height * at->in_width;
    int32_t up, down, begin, end;
    inside(top, at->dilation_y, at->kernel_height, at->in_height, &up, &down);
    inside(left, at->dilation_x, at->kernel_width, at->in_width, &begin, &end);
    for (int32_t j = 0; j < n; j++) {
        const int32_t channel = (first + j) / l->outputs * l->depth;
        int32_t sum = 0;
        for (int32_t i = up; i < down; i++)
            for (int32_t k = begin; k < end; k++) {
                const uint8_t *pixel = map + (top + i * at->dilation_y) * at->in_width + left + k * at->dilation_x;
                int32_t bit = (((first + j) * at->kernel_height + i) * at->kernel_width + k) * l->depth;
                for (int32_t c = channel; c < channel + l->depth; c++, bit++) {
                    const int sign = pixel[c / 8 * plane] >> c % 8 & 1;
                    sum += sign == (weight[bit / 8] >> bit % 8 & 1) ? 1 : -1;
                }
            }
        row[j] = sum;
    }
}


/* A map of signs with a border of +1 or -1: a byte of it for each 8 channels. */
APART void surround(uint8_t *to, const uint8_t *from, int32_t height, int32_t width, int32_t planes, int32_t top,
    int32_t left, int32_t bottom, int32_t right, const uint8_t *border)
{
    for (; planes; planes--, border++, from += height * width)
        for (int32_t y = -top; y < height + bottom; y++)
            for (int32_t x = -left; x < width + right; x++)
                *to++ = y >= 0 && y < height && x >= 0 && x < width ? from[y * width + x] : *border;
}


/* Index bytes from the signs of a map, with `beside` pixels of -1 before each row and behind the last one. */
APART void spread(uint32_t *to, const uint8_t *from, int32_t height, int32_t width, int32_t channels, int32_t beside)
{
    const uint32_t places = 0xc0804000u, nibbles = 0x0f0f0f0fu;
    for (int32_t c = 0; c < channels; c += 16, from += height * width) {
        const int32_t other = channels - c > 8 ? height * width : 0; /* or none */
        for (int32_t y = 0; y < height; y++) {
            for (int32_t i = 0; i < beside; i++) *to++ = places;
            for (const uint8_t *end = from + width; from != end; from++) {
                const uint32_t v = from[0] | (other ? (uint32_t)from[other] << 16 : 0);
                *to++ = ((v | v << 4) & nibbles) << 2 | places;
            }
        }
        for (int32_t i = 0; i < beside; i++) *to++ = places;
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


/* Pixels from `down` and `right` apart, with filled channels around; also to where they came from, where they come closer
 * together. */
APART void shrink(int16_t *to, const int16_t *from, int32_t height, int32_t width, int32_t down, int32_t right,
    int32_t used, int32_t channels, int32_t before, int32_t fill)
{
    for (int32_t y = 0; y < height; y++)
        for (int32_t x = 0; x < width; x++, to += channels) {
            const int16_t *pixel = from + y * down + x * right;
            if (to + before > pixel)
                for (int32_t c = used; c--;) to[before + c] = pixel[c];
            else
                for (int32_t c = 0; c < used; c++) to[before + c] = pixel[c];
            for (int32_t c = 0; c < before; c++) to[c] = (int16_t)fill;
            for (int32_t c = before + used; c < channels; c++) to[c] = (int16_t)fill;
        }
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


/* A byte of n signs, which are where the difference to the threshold, of 17 bits, is below 0, or the opposite where
 * `falls` has its bit; channels that there are not are -1. */
APART void signs(uint8_t *to, const int32_t *row, const int16_t *threshold, uint32_t falls, int32_t n)
{
    uint32_t bits = 0;
    for (int32_t i = 0; i < n; i++) bits |= (uint32_t)(threshold[i] - row[i]) >> 31 << i;
    *to = (uint8_t)(bits ^ falls);
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
            *y++ = map[c / 8 * pixels + i] >> c % 8 & 1 ? 1 : -1;
}


/* Ends of rows follow. Where registers are few, gcc's other way moves values more often. */
#if defined(__ARM_ARCH_6M__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("ira-algorithm=priority")
#endif
