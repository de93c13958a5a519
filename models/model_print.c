/* For `quire inspect`: one label and value a line, so that people and grep can both read it. */
#include "models/model.h"

#include <inttypes.h>

static void print_bytes(FILE *out, const char *label, double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024.0 && unit < 4) {
        bytes /= 1024.0;
        unit++;
    }
    fprintf(out, "%-24s%.*f %s\n", label, unit == 0 ? 0 : 1, bytes, units[unit]);
}

static uint64_t count_elements(const struct tensor_info *tensor) {
    uint64_t count = 1;
    for (int i = 0; i < tensor->num_dims; i++)
        count *= (uint64_t)tensor->shape[i];
    return count;
}

static void print_file(const struct model *model, FILE *out) {
    fprintf(out, "%-24s%s\n", "file", tensor_file_path(model->file));
    print_bytes(out, "file size", (double)tensor_file_bytes(model->file));
    fprintf(out, "%-24s%s\n", "format", tensor_file_format(model->file));
}

static void print_config(const struct model_config *config, FILE *out) {
    fprintf(out, "%-24s%s\n", "name", config->name[0] != '\0' ? config->name : "-");
    fprintf(out, "%-24s%s\n", "architecture", config->architecture);
    fprintf(out, "%-24s%d\n", "layers", config->num_layers);
    fprintf(out, "%-24s%d\n", "hidden size", config->hidden_size);
    fprintf(out, "%-24s%d\n", "feed-forward size", config->intermediate_size);
    fprintf(out, "%-24s%d x %d, %d for keys and values\n", "attention heads", config->num_heads,
            config->head_dim, config->num_kv_heads);
    fprintf(out, "%-24stheta %g, %d of %d dimensions\n", "rope", (double)config->ropes[0].theta,
            config->rotary_dim, config->head_dim);
    fprintf(out, "%-24s%g\n", "norm epsilon", (double)config->norm_eps);
    fprintf(out, "%-24s%s\n", "output head", config->tied_embeddings ? "the embedding" : "its own");
    fprintf(out, "%-24s%d tokens\n", "vocabulary", config->vocab_size);
    fprintf(out, "%-24s%d tokens\n", "context length", config->max_position);
}

static void print_tensors(const struct model *model, FILE *out) {
    uint64_t parameters = 0, counts[DTYPE_COUNT] = {0};
    size_t bytes[DTYPE_COUNT] = {0};
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        parameters += count_elements(tensor);
        counts[tensor->dtype]++;
        bytes[tensor->dtype] += tensor->bytes;
    }
    fprintf(out, "%-24s%.1f million\n", "parameters", (double)parameters / 1e6);
    fprintf(out, "%-24s%zu\n", "tensors", tensor_file_num_tensors(model->file));
    for (int i = 0; i < DTYPE_COUNT; i++) {
        char label[32];
        if (counts[i] == 0)
            continue;
        snprintf(label, sizeof(label), "  %-5s x %" PRIu64, dtype_name((enum dtype)i), counts[i]);
        print_bytes(out, label, (double)bytes[i]);
    }
}

static void print_kv(const struct model_config *config, FILE *out) {
    double elements = 2.0 * config->num_layers * config->num_kv_heads * config->head_dim;
    print_bytes(out, "KV per token, f16", elements * 2.0);
    print_bytes(out, "KV per token, f32", elements * 4.0);
    print_bytes(out, "KV of a context, f16", elements * 2.0 * config->max_position);
}

void model_print(const struct model *model, FILE *out) {
    print_file(model, out);
    print_config(&model->config, out);
    print_tensors(model, out);
    print_kv(&model->config, out);
}
