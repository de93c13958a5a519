#include "kernels/cpu/levels/cpu_levels.h"

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/levels/cpu_probe.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct cpu_level *best_level(void) {
    int i = num_cpu_levels - 1;
    while (!cpu_levels[i].supported())
        i--;
    return &cpu_levels[i];
}

static void list_supported(char *out, size_t out_bytes) {
    size_t used = 0;
    for (int i = num_cpu_levels - 1; i >= 0; i--)
        if (cpu_levels[i].supported() && used < out_bytes)
            used += (size_t)snprintf(out + used, out_bytes - used, ", %s", cpu_levels[i].name);
}

const struct cpu_level *cpu_levels_select(const char *name, struct error *err) {
    if (name == NULL || strcmp(name, "auto") == 0)
        return best_level();
    for (int i = 0; i < num_cpu_levels; i++)
        if (strcmp(name, cpu_levels[i].name) == 0 && cpu_levels[i].supported())
            return &cpu_levels[i];
    char supported[128];
    list_supported(supported, sizeof(supported));
    error_set(err, ERROR_CONFIG, "instruction set '%s': this machine has auto%s", name, supported);
    return NULL;
}

static void add(const struct cpu_level *level, struct cpu_kernels *kernels) {
    if (level->add_formats != NULL)
        level->add_formats(kernels);
    if (level->add_ops != NULL)
        level->add_ops(kernels);
}

void cpu_levels_fill(const struct cpu_level *level, struct cpu_kernels *out) {
    *out = (struct cpu_kernels){0};
    for (const struct cpu_level *l = cpu_levels; l <= level; l++)
        if (l->supported())
            add(l, out);
}

static struct fastest {
    struct cpu_kernels kernels;
    const struct cpu_level *level;
} fastest[2]; /* [any_bits] */

static bool is_taken(int dtype, const struct cpu_gemm_format *format,
                     const struct cpu_gemm_format *before, bool any_bits) {
    if (format == before)
        return true;
    return (any_bits || format->numerics == NULL || dtype_is_quantised((enum dtype)dtype)) &&
           cpu_probe_is_faster((enum dtype)dtype, format, before);
}

static bool is_attention_taken(const struct cpu_attention_kernels *attention,
                               const struct cpu_attention_kernels *before, bool any_bits) {
    if (attention->attend == before->attend)
        return true;
    return (any_bits || attention->numerics == NULL) &&
           cpu_probe_is_attention_faster(attention, before);
}

static void find_fastest(bool any_bits) {
    struct fastest *f = &fastest[any_bits];
    for (const struct cpu_level *l = cpu_levels; l < cpu_levels + num_cpu_levels; l++) {
        struct cpu_kernels kernels = f->kernels;
        if (!l->supported())
            continue;
        add(l, &kernels);
        for (int d = 0; l->on_trial && d < DTYPE_COUNT; d++)
            if (!is_taken(d, kernels.formats[d], f->kernels.formats[d], any_bits))
                kernels.formats[d] = f->kernels.formats[d];
        for (int t = 0; l->on_trial && t < NUM_KV_TYPES; t++)
            if (!is_attention_taken(&kernels.op.attention[t], &f->kernels.op.attention[t],
                                    any_bits))
                kernels.op.attention[t] = f->kernels.op.attention[t];
        if (memcmp(&kernels, &f->kernels, sizeof(kernels)) != 0)
            f->level = l;
        f->kernels = kernels;
    }
}

static void find_fastest_of_common_bits(void) {
    find_fastest(false);
}

static void find_fastest_of_any_bits(void) {
    find_fastest(true);
}

const struct cpu_level *cpu_levels_fill_fastest(bool any_bits, struct cpu_kernels *out) {
    static pthread_once_t common = PTHREAD_ONCE_INIT, any = PTHREAD_ONCE_INIT;
    if (any_bits)
        pthread_once(&any, find_fastest_of_any_bits);
    else
        pthread_once(&common, find_fastest_of_common_bits);
    *out = fastest[any_bits].kernels;
    return fastest[any_bits].level;
}
