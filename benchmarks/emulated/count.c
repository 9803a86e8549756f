/* A plugin of QEMU (6 to 8) that counts the instructions of a program for 64-bit ARM between marks.
 *
 * A mark is a call of getppid. At each one the plugin appends a line to the file `out`: what the thread has
 * executed so far, all instructions, then those of each kind below.
 *
 *     cc -O2 -shared -fPIC count.c -o count.so
 *     qemu-aarch64 -plugin file=count.so,out=counts.txt PROGRAM
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of the interface, as QEMU's manual states it: "QEMU TCG Plugins". */
#define API __attribute__((visibility("default")))
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*on_block)(unsigned thread, void* data);
typedef void (*on_translation)(plugin_id, struct qemu_plugin_tb*);
typedef void (*on_call)(plugin_id, unsigned thread, int64_t number, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
const void* qemu_plugin_insn_data(const struct qemu_plugin_insn*);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translation);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb*, on_block, int flags, void* data);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, on_call);
API int qemu_plugin_version = 1;

enum { ALL, VECTOR, MEMORY, DOT, KINDS };
enum { THREADS = 64, GETPPID = 173 };
typedef struct {
    uint64_t of[KINDS];
} counts;
static counts executed[THREADS];
static const char* out;

/* The groups are those of Arm's manual for A64, by bits 28 to 25. */
static void add(counts* sum, uint32_t code) {
    sum->of[ALL] += 1;
    sum->of[VECTOR] += (code >> 25 & 7) == 7; /* SIMD and floating point, but for loads and stores */
    sum->of[MEMORY] += (code >> 25 & 5) == 4;
    sum->of[DOT] += (code & 0x9fe0fc00) == 0x0e809400 || (code & 0x9fc0f400) == 0x0f80e000; /* SDOT, UDOT */
}

static void execute(unsigned thread, void* data) {
    for (int kind = 0; kind < KINDS; ++kind) executed[thread % THREADS].of[kind] += ((counts*)data)->of[kind];
}

static void translate(plugin_id id, struct qemu_plugin_tb* block) {
    (void)id;
    counts* sum = calloc(1, sizeof *sum); /* as long as QEMU keeps the block, which may be to the end */
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); ++i) {
        uint32_t code;
        memcpy(&code, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, i)), sizeof code);
        add(sum, code);
    }
    qemu_plugin_register_vcpu_tb_exec_cb(block, execute, 0, sum);
}

static void call(plugin_id id, unsigned thread, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                 uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != GETPPID) return;
    FILE* file = fopen(out, "a");
    if (!file) return;
    for (int kind = 0; kind < KINDS; ++kind)
        fprintf(file, "%" PRIu64 "%c", executed[thread % THREADS].of[kind], kind + 1 < KINDS ? ' ' : '\n');
    fclose(file);
}

API int qemu_plugin_install(plugin_id id, const void* info, int count, char** arguments) {
    (void)info;
    if (count != 1 || strncmp(arguments[0], "out=", 4) != 0) {
        fprintf(stderr, "count.so: expected out=FILE\n");
        return 1;
    }
    out = strdup(arguments[0] + 4);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, call);
    return 0;
}
