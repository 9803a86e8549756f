/* Pixels of an image: the middle of one that is resized, as training prepared it. */
typedef struct {
    int32_t height, width, resize_height, resize_width, keep_aspect, channels;
} image_rule;

/* One axis that is resized from `in` to `out`; what is kept begins at `start`. */
typedef struct {
    int64_t in, out;
    int32_t start, shrinks;
} axis;

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where result i begins, in parts of a pixel: 1 / out, or 1 / (2 out) where it lies between two pixels. */
static int64_t begin_of(const axis *a, int64_t i)
{
    if (a->shrinks) return i * a->in;
    return least_of(most_of((2 * i + 1) * a->in - a->out, 0), (a->in - 1) * 2 * a->out);
}

/* How much of pixel x is in the result that begins there, 0 beyond the last. */
static uint32_t part_of(const axis *a, int64_t begin, int64_t x)
{
    const int64_t unit = a->shrinks ? a->out : 2 * a->out;
    int64_t part;
    if (x >= a->in) return 0;
    if (a->shrinks) part = least_of(begin + a->in, (x + 1) * unit) - most_of(begin, x * unit);
    else part = unit - (x * unit > begin ? x * unit - begin : begin - x * unit);
    return part > 0 ? (uint32_t)part : 0;
}

/* Red, green and blue of a pixel: of bytes in this order, the other, grey, or of RGB565, the low byte first. */
static void read_pixel(uint32_t *colours, const uint8_t *image, int32_t format, uint32_t at)
{
    const uint8_t *bytes = image + (format == 2 ? at : format == 3 ? 2 * at : 3 * at);
    if (format == 2) {
        colours[0] = colours[1] = colours[2] = bytes[0];
    } else if (format == 3) {
        const uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
        const uint32_t red = word >> 11, green = word >> 5 & 63, blue = word & 31;
        colours[0] = red << 3 | red >> 2;
        colours[1] = green << 2 | green >> 4;
        colours[2] = blue << 3 | blue >> 2;
    } else {
        colours[0] = bytes[format == 1 ? 2 : 0];
        colours[1] = bytes[1];
        colours[2] = bytes[format == 1 ? 0 : 2];
    }
}

/* A side in the proportion of another that becomes `resized`. */
static int64_t in_proportion(int64_t side, int64_t other, int64_t resized)
{
    return (2 * side * resized + other) / (2 * other);
}

static axis axis_of(int32_t in, int64_t out, int32_t kept, int32_t shrinks)
{
    axis made;
    made.in = in, made.out = out;
    made.start = (int32_t)((out - kept) / 2), made.shrinks = shrinks;
    return made;
}

/* Each value is rounded once, halves up, from sums in integers. Returns whether the image is one. */
static int prepare(uint8_t *pixels, const image_rule *rule, const uint8_t *image, int32_t height, int32_t width,
                   int32_t format)
{
    int64_t tall = rule->resize_height, wide = rule->resize_width;
    axis rows, columns;
    uint64_t total;
    if (height < 1 || width < 1 || height > 32768 || width > 32768 || format < 0 || format > 3) return 0;
    if (rule->keep_aspect && tall * width >= wide * height) wide = in_proportion(width, height, tall);
    else if (rule->keep_aspect) tall = in_proportion(height, width, wide);
    if (most_of(tall, wide) > (int64_t)1 << 22) return 0;
    rows = axis_of(height, tall, rule->height, height > tall && width > wide);
    columns = axis_of(width, wide, rule->width, rows.shrinks);
    total = rows.shrinks ? (uint64_t)(rows.in * columns.in) : (uint64_t)(4 * rows.out * columns.out);
    for (int32_t i = 0; i < rule->height * rule->width; i++) {
        const int64_t top = begin_of(&rows, rows.start + i / rule->width);
        const int64_t left = begin_of(&columns, columns.start + i % rule->width);
        const int64_t unit = rows.shrinks ? 1 : 2;
        uint64_t sums[3] = {total / 2, total / 2, total / 2};
        uint32_t of_row, part;
        for (int64_t y = top / (unit * rows.out); (of_row = part_of(&rows, top, y)) > 0; y++) {
            uint64_t line[3] = {0, 0, 0};
            for (int64_t x = left / (unit * columns.out); (part = part_of(&columns, left, x)) > 0; x++) {
                uint32_t colours[3];
                read_pixel(colours, image, format, (uint32_t)(y * width + x));
                if (rule->channels == 1) {
                    colours[0] = (9798 * colours[0] + 19235 * colours[1] + 3735 * colours[2] + 16384) >> 15;
                }
                for (int32_t c = 0; c < rule->channels; c++) line[c] += (uint64_t)part * colours[c];
            }
            for (int32_t c = 0; c < rule->channels; c++) sums[c] += of_row * line[c];
        }
        for (int32_t c = 0; c < rule->channels; c++) *pixels++ = (uint8_t)(sums[c] / total);
    }
    return 1;
}
