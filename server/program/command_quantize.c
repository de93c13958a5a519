/* `quire quantize`: makes a GGUF file with smaller weights out of a model. */
#include "server/program/command_line.h"

#include "config/base/clock.h"
#include "config/base/help_text.h"
#include "config/base/log.h"
#include "models/convert/conversion.h"
#include "server/client/hub/hub_progress.h"
#include "server/process/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#define PROGRESS_NS (CLOCK_NS_PER_S / 4)
#define MAX_THREADS 1024

static const char usage_head[] =
    "usage: quire quantize IN OUT [--type TYPE] [--imatrix FILE] [--tensor-type PATTERN=TYPE] "
    "[--output-tensor-type TYPE] [--token-embedding-type TYPE] [--leave-output-tensor] [--pure] "
    "[--allow-requantize] [--threads N] [--force] [--dry-run]\n"
    "  IN\tHugging Face folder with float weights, or a float GGUF file\n"
    "  OUT\tthe GGUF file to write\n"
    "  --type\tTYPE of most weights; default Q4_K_M. The rules for the other tensors are "
    "llama.cpp's\n"
    "  --imatrix\timportance matrix of llama-imatrix, GGUF or .dat: which columns matter\n"
    "  --tensor-type\ttype of all tensors whose name PATTERN matches, a regular expression: "
    "attn_v=q8_0; may be repeated, the first that matches counts\n"
    "  --output-tensor-type\ttype of the head\n"
    "  --token-embedding-type\ttype of the embedding\n"
    "  --leave-output-tensor\tthe head keeps its type\n"
    "  --pure\tall matrices get the type's own format, like Q4_K for Q4_K_M\n"
    "  --allow-requantize\ttake a model that is quantised already; costs quality\n"
    "  --threads\tdefault: one for each core\n"
    "  --force\treplace OUT if it exists\n"
    "  --dry-run\tprint each tensor's type and the size, and write nothing\n"
    "\n";

static const char usage_tail[] =
    "\n"
    "Status 75: interrupted, nothing is left of OUT; 78: IN cannot be converted, the line says "
    "why.\n"
    "\n"
    "for example: quire quantize ~/models/Qwen3-1.7B qwen3-1.7b-q4_k_m.gguf --type Q4_K_M\n";

struct quantize {
    const char *in, *out;
    struct conversion_settings settings;
    int num_threads;
    bool force, dry_run;
};

static void print_usage(FILE *file) {
    struct byte_buffer text = {0};
    int count;
    const struct quant_mixture *list = quant_mixture_list(&count);
    byte_buffer_append_text(&text, usage_head);
    byte_buffer_append_text(&text, "TYPE, with bits per weight of a model of some size:");
    for (int i = 0; i < count; i++)
        byte_buffer_printf(&text, "%s %s %.1f", i > 0 ? "," : "", list[i].name, list[i].bits);
    byte_buffer_append_text(&text, ".\n");
    byte_buffer_append(&text, usage_tail, sizeof(usage_tail));
    if (!text.failed)
        help_text_print(text.data, file);
    byte_buffer_finish(&text);
}

/* --- Options --- */

static int refuse_value(const char *option, const char *value, const char *allowed,
                        struct error *err) {
    return error_set(err, ERROR_CONFIG, "%s %.100s: is not %s", option, value, allowed);
}

static int take_mixture(struct quantize *q, const char *value, struct error *err) {
    q->settings.types.mixture = quant_mixture_find(value);
    if (q->settings.types.mixture != NULL)
        return 0;
    return refuse_value("--type", value, "a type that `quire quantize --help` lists", err);
}

static int take_dtype(const char *option, const char *value, enum dtype *out, struct error *err) {
    *out = quant_mixture_find_dtype(value);
    if (*out != DTYPE_NONE)
        return 0;
    return refuse_value(option, value,
                        "one of f32, f16, bf16, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, "
                        "q6_k, q8_0",
                        err);
}

/* Ends the pattern at its last '='. */
static int take_override(struct quantize *q, char *value, struct error *err) {
    struct conversion_settings *settings = &q->settings;
    char *equals = strrchr(value, '=');
    if (equals == NULL || equals == value)
        return refuse_value("--tensor-type", value, "PATTERN=TYPE", err);
    if (settings->num_overrides == CONVERSION_MAX_OVERRIDES)
        return error_set(err, ERROR_CONFIG, "--tensor-type: more than %d",
                         CONVERSION_MAX_OVERRIDES);
    struct tensor_override *override = &settings->overrides[settings->num_overrides++];
    *equals = '\0';
    override->pattern = value;
    return take_dtype("--tensor-type", equals + 1, &override->dtype, err);
}

static int take_threads(struct quantize *q, const char *value, struct error *err) {
    char *end;
    long count = strtol(value, &end, 10);
    if (end == value || *end != '\0' || count < 1 || count > MAX_THREADS)
        return refuse_value("--threads", value, "a number of 1 to 1024", err);
    q->num_threads = (int)count;
    return 0;
}

static bool take_flag(struct quantize *q, const char *name) {
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {
        {"--leave-output-tensor", &q->settings.types.leave_output},
        {"--pure", &q->settings.types.pure},
        {"--allow-requantize", &q->settings.allow_requantize},
        {"--force", &q->force},
        {"--dry-run", &q->dry_run},
    };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(name, flags[i].name) == 0) {
            *flags[i].flag = true;
            return true;
        }
    return false;
}

/* Returns 1 if there is no such option. */
static int take_value(struct quantize *q, const char *name, char *value, struct error *err) {
    if (strcmp(name, "--type") == 0)
        return take_mixture(q, value, err);
    if (strcmp(name, "--output-tensor-type") == 0)
        return take_dtype(name, value, &q->settings.types.output_dtype, err);
    if (strcmp(name, "--token-embedding-type") == 0)
        return take_dtype(name, value, &q->settings.types.embedding_dtype, err);
    if (strcmp(name, "--tensor-type") == 0)
        return take_override(q, value, err);
    if (strcmp(name, "--threads") == 0)
        return take_threads(q, value, err);
    if (strcmp(name, "--imatrix") != 0)
        return 1;
    q->settings.imatrix_path = value;
    return 0;
}

/* Returns EX_USAGE with a line and the usage for words that make no command, EX_CONFIG for a value
 * that is refused. */
static int read_words(int argc, char *const *argv, struct quantize *q, struct error *err) {
    for (int i = 0; i < argc; i++) {
        int status = 1;
        if (argv[i][0] != '-' && q->out == NULL) {
            *(q->in == NULL ? &q->in : &q->out) = argv[i];
            continue;
        }
        if (take_flag(q, argv[i]))
            continue;
        if (i + 1 < argc)
            status = take_value(q, argv[i], argv[i + 1], err);
        if (status < 0)
            return EX_CONFIG;
        if (status > 0) {
            fprintf(stderr, "quire quantize: unknown option, or one without its value: '%.64s'\n",
                    argv[i]);
            return EX_USAGE;
        }
        i++;
    }
    return q->in != NULL && (q->out != NULL || q->dry_run) ? EX_OK : EX_USAGE;
}

/* --- What is printed --- */

static void print_shape(const struct tensor_info *info, char *out, size_t capacity) {
    size_t used = 0;
    out[0] = '\0';
    for (int d = 0; d < info->num_dims && used < capacity; d++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%lld", d > 0 ? " x " : "",
                                 (long long)info->shape[d]);
}

static void print_plan(const struct conversion *conversion) {
    for (size_t i = 0; i < conversion_num_tensors(conversion); i++) {
        const struct converted_tensor *tensor = conversion_tensor(conversion, i);
        char shape[96];
        print_shape(&tensor->info, shape, sizeof(shape));
        printf("%-36s  %-20s  %-5s -> %s\n", tensor->name, shape, dtype_name(tensor->from),
               dtype_name(tensor->info.dtype));
    }
}

static void print_sizes(const struct conversion *conversion, const struct quantize *q) {
    char from[HUB_SIZE_BYTES], to[HUB_SIZE_BYTES];
    double bits = 8.0 * (double)conversion_bytes_to(conversion);
    hub_progress_print_size((int64_t)conversion_bytes_from(conversion), from);
    hub_progress_print_size((int64_t)conversion_bytes_to(conversion), to);
    if (conversion_num_fallbacks(conversion) > 0)
        printf("%d tensors got another type, because their rows are not whole blocks\n",
               conversion_num_fallbacks(conversion));
    printf("%s: %s -> %s, %.2f bits per weight, %s\n", q->dry_run ? q->in : q->out, from, to,
           bits / (double)conversion_num_weights(conversion), q->settings.types.mixture->name);
}

/* --- The command --- */

struct progress {
    int64_t next_ns;
    bool is_terminal;
};

static bool advanced(void *context, uint64_t bytes_done, uint64_t num_bytes) {
    struct progress *progress = context;
    int64_t now_ns = clock_now_ns();
    if (progress->is_terminal && now_ns >= progress->next_ns && bytes_done < num_bytes) {
        progress->next_ns = now_ns + PROGRESS_NS;
        log_status("quantising %d %% of %.1f MiB",
                   (int)(100.0 * (double)bytes_done / (double)num_bytes),
                   (double)num_bytes / 1048576.0);
    }
    return signals_take_stop();
}

/* OUT may not be IN, and replaces nothing but a file, and only if it is asked to. */
static int check_out(const struct quantize *q, struct error *err) {
    struct stat in, out;
    if (q->dry_run)
        return 0;
    if (lstat(q->out, &out) != 0)
        return errno == ENOENT
                   ? 0
                   : error_set(err, ERROR_CONFIG, "%.300s: %s", q->out, strerror(errno));
    if (stat(q->in, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return error_set(err, ERROR_CONFIG, "%.300s: is IN too", q->out);
    if (!S_ISREG(out.st_mode))
        return error_set(err, ERROR_CONFIG, "%.300s: exists and is not a file", q->out);
    if (q->force)
        return 0;
    return error_set(err, ERROR_CONFIG, "%.300s: exists; --force replaces it", q->out);
}

static int quantize(const struct quantize *q, struct error *err) {
    struct conversion *conversion;
    struct progress progress = {.is_terminal = log_is_terminal()};
    const struct conversion_watcher watcher = {.advanced = advanced, .context = &progress};
    if (check_out(q, err) != 0)
        return -1;
    if (conversion_open(q->in, &q->settings, &conversion, err) != 0) {
        err->code = err->code == ERROR_IO ? ERROR_MODEL : err->code; /* like command_open_model */
        return -1;
    }
    int status = 0;
    if (q->dry_run)
        print_plan(conversion);
    else
        status = conversion_write(conversion, q->out, q->num_threads, &watcher, err);
    if (status == 0)
        print_sizes(conversion, q);
    conversion_close(conversion);
    return status;
}

int command_quantize(int argc, char *const *argv) {
    struct error err = {0};
    struct quantize q = {.settings.types = {.mixture = quant_mixture_find("Q4_K_M"),
                                            .output_dtype = DTYPE_NONE,
                                            .embedding_dtype = DTYPE_NONE}};
    if (client_wants_help(argc, argv)) {
        print_usage(stdout);
        return EX_OK;
    }
    int status = read_words(argc, argv, &q, &err);
    if (status == EX_USAGE) {
        print_usage(stderr);
        return EX_USAGE;
    }
    signals_block();
    if (status == EX_OK && quantize(&q, &err) == 0)
        return fflush(stdout) == 0 ? EX_OK : EX_OSERR;
    log_error("%s", err.message);
    return client_exit_status(&err);
}
