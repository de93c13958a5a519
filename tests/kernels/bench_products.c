/* Every algorithm that cuBLASLt names for the products of a model, timed beside the first, which is
 * the one that the backend takes when it is batch invariant or has timed none (kernels/tuning.h):
 *
 *   bench_products bf16|f16 [OPTION VALUE]...          bench_products_sim on the simulator
 *
 *   hidden heads kv-heads head-dim ffn vocab   the model; default: a tiny one
 *   rows           numbers of rows, separated by commas; default: powers of two up to 2048
 *   max-logits     the most rows of the head; default: 256
 *   only           one product: qkv, attention_out, gate_up, down or head
 *   candidates     asked of the heuristic; default: 64, which is also the most
 *   rotate-mib     memory that launches go through; default: 256, more than a cache holds
 *   launches       of a graph at least; default: 24
 *   replays        of a graph, whose median is taken; default: 3
 *   budget-ms      for a product and number of rows; default: 1000
 *
 * One line of JSON for each product and number of rows: microseconds of the first and of the best,
 * which are measured again in turns at the end, the best's place in the heuristic's order and its
 * configuration. A first result that is wrong, or one that differs from it by more than rounding,
 * is named on stderr, and the program fails at the end. */
#include "tests/kernels/product_timer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CANDIDATES = 64, MAX_ROW_COUNTS = 32, MAX_REPLAYS = 31 };
#define HOPELESS 1.3 /* times the best: not replayed again */

struct settings {
    int64_t hidden, heads, kv_heads, head_dim, ffn, vocab;
    int64_t max_logits, candidates, rotate_mib, launches, replays, budget_ms;
    int32_t row_counts[MAX_ROW_COUNTS];
    int num_row_counts;
    const char *only;
    cudaDataType_t type;
};

struct product {
    const char *name;
    int64_t rows, cols;
    bool accumulate, float_out;
};

/* What is known of an algorithm: microseconds of a launch, 0 where it was not timed. */
struct candidate {
    cublasLtMatmulAlgo_t algorithm;
    double us;
};

struct bench {
    const struct settings *settings;
    const struct product *product;
    struct product_timer timer;
    struct candidate candidates[MAX_CANDIDATES];
    int num_candidates, num_timed, num_refused, num_wrong;
    double deadline;              /* seconds */
    float *first_result, *result; /* [PRODUCT_TIMER_MAX_SEEN][product->rows] */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- Options --- */

static int64_t read_number(const char *name, const char *text, char end, int64_t most,
                           const char **out_end) {
    char *stop;
    long long value = strtoll(text, &stop, 10);
    if (stop == text || (*stop != '\0' && *stop != end) || value < 0 || value > most)
        product_timer_fail("%s: %s (allowed: 0 to %lld)", name, text, (long long)most);
    *out_end = stop;
    return value;
}

static void read_row_counts(struct settings *s, const char *text) {
    s->num_row_counts = 0;
    for (const char *at = text; s->num_row_counts < MAX_ROW_COUNTS; at++) {
        int64_t rows = read_number("rows", at, ',', 65536, &at);
        if (rows == 0)
            product_timer_fail("rows: %s (0 rows are no product)", text);
        s->row_counts[s->num_row_counts++] = (int32_t)rows;
        if (*at == '\0')
            return;
    }
    product_timer_fail("rows: %s (at most %d numbers)", text, MAX_ROW_COUNTS);
}

static void read_setting(struct settings *s, const char *name, const char *text) {
    const struct {
        const char *name;
        int64_t *value;
        int64_t most;
    } numbers[] = {{"hidden", &s->hidden, 1 << 20},
                   {"heads", &s->heads, 1 << 12},
                   {"kv-heads", &s->kv_heads, 1 << 12},
                   {"head-dim", &s->head_dim, 1 << 10},
                   {"ffn", &s->ffn, 1 << 20},
                   {"vocab", &s->vocab, 1 << 22},
                   {"max-logits", &s->max_logits, 65536},
                   {"candidates", &s->candidates, MAX_CANDIDATES},
                   {"rotate-mib", &s->rotate_mib, 1 << 14},
                   {"launches", &s->launches, 4096},
                   {"replays", &s->replays, MAX_REPLAYS},
                   {"budget-ms", &s->budget_ms, 1 << 20}};
    const char *end;
    if (strcmp(name, "only") == 0)
        s->only = text;
    else if (strcmp(name, "rows") == 0)
        read_row_counts(s, text);
    else {
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
            if (strcmp(name, numbers[i].name) == 0) {
                *numbers[i].value = read_number(name, text, '\0', numbers[i].most, &end);
                return;
            }
        product_timer_fail("unknown option %s", name);
    }
}

static void read_settings(struct settings *s, int argc, char **argv) {
    *s = (struct settings){.hidden = 64,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 32,
                           .ffn = 96,
                           .vocab = 320,
                           .max_logits = 256,
                           .candidates = MAX_CANDIDATES,
                           .rotate_mib = 256,
                           .launches = 24,
                           .replays = 3,
                           .budget_ms = 1000};
    read_row_counts(s, "1,2,4,8,16,32,64,128,256,512,1024,2048");
    if (argc < 2 || (strcmp(argv[1], "bf16") != 0 && strcmp(argv[1], "f16") != 0) ||
        argc % 2 != 0) {
        fprintf(stderr, "usage: %s bf16|f16 [OPTION VALUE]...\n", argv[0]);
        exit(2);
    }
    s->type = strcmp(argv[1], "f16") == 0 ? CUDA_R_16F : CUDA_R_16BF;
    for (int i = 2; i + 1 < argc; i += 2)
        read_setting(s, argv[i], argv[i + 1]);
    if (s->hidden < 1 || s->heads < 1 || s->kv_heads < 1 || s->head_dim < 1 || s->ffn < 1 ||
        s->vocab < 1 || s->candidates < 1 || s->launches < 1 || s->replays < 1 ||
        s->hidden % 8 != 0 || s->ffn % 8 != 0 || s->heads * s->head_dim % 8 != 0)
        product_timer_fail("a size is zero, or rows of weights are not a multiple of 8");
}

/* --- One product --- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof(values[0]), compare_doubles);
    return values[count / 2];
}

/* The norm of the difference by the first's. */
static double difference(const struct bench *b) {
    size_t n = (size_t)b->timer.num_seen * (size_t)b->product->rows;
    double of_first = 0, of_difference = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)b->result[i] - b->first_result[i];
        of_first += (double)b->first_result[i] * b->first_result[i];
        of_difference += d * d;
    }
    return sqrt(of_difference / of_first);
}

static void report_wrong(struct bench *b, int index, const char *how, double by) {
    fprintf(stderr, "%s, %d rows: the result of candidate %d is wrong: %s %g\n", b->product->name,
            b->timer.num_rows, index, how, by);
    b->num_wrong++;
}

/* False when the algorithm is refused. A NaN is wrong, too. */
static bool check_result(struct bench *b, int index) {
    bool is_first = index == b->num_refused; /* of those that are taken */
    float *result = is_first ? b->first_result : b->result;
    if (!product_timer_multiply(&b->timer, &b->candidates[index].algorithm, result))
        return false;
    double by = is_first ? product_timer_error(&b->timer, result) : difference(b);
    if (is_first && !(by <= 1))
        report_wrong(b, index, "against the host's by times its rounding", by);
    if (!is_first && !(by <= product_timer_tolerance(&b->timer)))
        report_wrong(b, index, "against the first's by", by);
    return true;
}

/* The first replay warms up, and shows whether the algorithm can be the best. */
static double time_graph(struct bench *b, cudaGraphExec_t graph, double best) {
    double us[MAX_REPLAYS], rough = product_timer_replay(&b->timer, graph);
    if (best > 0 && rough > HOPELESS * best)
        return rough;
    for (int64_t i = 0; i < b->settings->replays; i++)
        us[i] = product_timer_replay(&b->timer, graph);
    return median(us, b->settings->replays);
}

/* Index of the best of those that there was time for; -1 when all are refused. */
static int time_candidates(struct bench *b) {
    int best = -1;
    for (int i = 0; i < b->num_candidates && (best < 0 || now() < b->deadline); i++) {
        struct candidate *c = &b->candidates[i];
        if (!check_result(b, i)) {
            b->num_refused++;
            continue;
        }
        cudaGraphExec_t graph = product_timer_capture(&b->timer, &c->algorithm);
        c->us = time_graph(b, graph, best < 0 ? 0 : b->candidates[best].us);
        if (cudaGraphExecDestroy(graph) != cudaSuccess)
            product_timer_fail("a graph cannot be destroyed");
        b->num_timed++;
        if (best < 0 || c->us < b->candidates[best].us)
            best = i;
    }
    return best;
}

/* Both again, in turns: clocks and temperature are the same for either. */
static void compare(struct bench *b, struct candidate *first, struct candidate *best) {
    double us[2][MAX_REPLAYS];
    struct candidate *both[2] = {first, best};
    cudaGraphExec_t graphs[2];
    if (first == best)
        return;
    for (int i = 0; i < 2; i++) {
        graphs[i] = product_timer_capture(&b->timer, &both[i]->algorithm);
        product_timer_replay(&b->timer, graphs[i]);
    }
    for (int64_t r = 0; r < b->settings->replays; r++)
        for (int i = 0; i < 2; i++)
            us[i][r] = product_timer_replay(&b->timer, graphs[i]);
    for (int i = 0; i < 2; i++) {
        both[i]->us = median(us[i], b->settings->replays);
        if (cudaGraphExecDestroy(graphs[i]) != cudaSuccess)
            product_timer_fail("a graph cannot be destroyed");
    }
}

static void print_configuration(const cublasLtMatmulAlgo_t *algorithm) {
    static const struct {
        const char *name;
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        size_t bytes;
    } fields[] = {{"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},
                  {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                  {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
                  {"splits", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
                  {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
                  {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
                  {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                  {"inner_shape", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                  {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        uint32_t value = 0;
        uint16_t narrow = 0;
        bool wide = fields[i].bytes == sizeof(value);
        cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
            algorithm, fields[i].attribute, wide ? (void *)&value : (void *)&narrow,
            fields[i].bytes, NULL);
        if (status == CUBLAS_STATUS_SUCCESS)
            printf(", \"%s\": %u", fields[i].name, wide ? value : narrow);
    }
}

static void print_line(const struct bench *b, const struct candidate *first, int best) {
    const struct product *p = b->product;
    double m = b->timer.num_rows, n = (double)p->rows, k = (double)p->cols;
    double out_bytes = p->float_out ? 4 : p->accumulate ? 4 : 2; /* the residual is read */
    printf("{\"op\": \"product\", \"product\": \"%s\", \"rows\": %d, \"shape\": \"%s %d x %.0f x "
           "%.0f\", \"first_us\": %.3f, \"us\": %.3f, \"best_index\": %d, \"num_candidates\": %d, "
           "\"num_timed\": %d, \"num_refused\": %d, \"num_wrong\": %d",
           p->name, b->timer.num_rows, p->name, b->timer.num_rows, n, k, first->us,
           b->candidates[best].us, best, b->num_candidates, b->num_timed, b->num_refused,
           b->num_wrong);
    print_configuration(&b->candidates[best].algorithm);
    printf(", \"bytes\": %.0f, \"flops\": %.0f}\n", 2 * (n * k + m * k) + out_bytes * m * n,
           2 * m * n * k);
    fflush(stdout);
}

static void measure(struct bench *b, int32_t num_rows) {
    cublasLtMatmulAlgo_t algorithms[MAX_CANDIDATES];
    product_timer_set(&b->timer, num_rows);
    b->deadline = now() + 1e-3 * (double)b->settings->budget_ms;
    b->num_timed = b->num_refused = b->num_wrong = 0;
    b->num_candidates =
        product_timer_candidates(&b->timer, (int)b->settings->candidates, algorithms);
    for (int i = 0; i < b->num_candidates; i++)
        b->candidates[i] = (struct candidate){.algorithm = algorithms[i]};
    int best = time_candidates(b);
    if (best < 0)
        product_timer_fail("%s, %d rows: cuBLASLt takes none of its %d candidates",
                           b->product->name, num_rows, b->num_candidates);
    struct candidate *first = b->candidates;
    while (first->us == 0)
        first++;
    compare(b, first, &b->candidates[best]);
    if (first->us <= b->candidates[best].us)
        best = (int)(first - b->candidates);
    print_line(b, first, best);
}

static int32_t most_rows(const struct settings *s, const struct product *product) {
    int32_t most = 0;
    for (int i = 0; i < s->num_row_counts; i++)
        if (s->row_counts[i] > most && (!product->float_out || s->row_counts[i] <= s->max_logits))
            most = s->row_counts[i];
    return most;
}

/* Returns how many results were wrong. */
static int bench_product(const struct settings *s, const struct product *product) {
    static struct bench b;
    const struct cuda_product_form form = {.type = s->type,
                                           .out_type = product->float_out ? CUDA_R_32F : s->type,
                                           .rows = (int32_t)product->rows,
                                           .cols = (int32_t)product->cols,
                                           .out_stride = (int32_t)product->rows};
    int32_t most = most_rows(s, product);
    int num_wrong = 0;
    if (most == 0 || (s->only != NULL && strcmp(s->only, product->name) != 0))
        return 0;
    b = (struct bench){.settings = s, .product = product};
    product_timer_init(&b.timer, &form, product->accumulate, most, (size_t)s->rotate_mib << 20,
                       s->launches);
    b.first_result = calloc(PRODUCT_TIMER_MAX_SEEN * (size_t)product->rows, sizeof(float));
    b.result = calloc(PRODUCT_TIMER_MAX_SEEN * (size_t)product->rows, sizeof(float));
    if (b.first_result == NULL || b.result == NULL)
        product_timer_fail("no memory for results of %s", product->name);
    for (int i = 0; i < s->num_row_counts; i++)
        if (s->row_counts[i] <= most) {
            measure(&b, s->row_counts[i]);
            num_wrong += b.num_wrong;
        }
    free(b.first_result);
    free(b.result);
    product_timer_finish(&b.timer);
    return num_wrong;
}

int main(int argc, char **argv) {
    struct settings s;
    read_settings(&s, argc, argv);
    int64_t q_width = s.heads * s.head_dim;
    const struct product products[] = {
        {"qkv", q_width + 2 * s.kv_heads * s.head_dim, s.hidden, false, false},
        {"attention_out", s.hidden, q_width, true, false},
        {"gate_up", 2 * s.ffn, s.hidden, false, false},
        {"down", s.hidden, s.ffn, true, false},
        {"head", s.vocab, s.hidden, false, true},
    };
    int num_wrong = 0;
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++)
        num_wrong += bench_product(&s, &products[i]);
    return num_wrong == 0 ? 0 : 1;
}
