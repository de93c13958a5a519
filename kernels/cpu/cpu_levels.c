#include "kernels/cpu/cpu_levels.h"

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

void cpu_levels_fill(const struct cpu_level *level, struct cpu_kernels *out) {
    *out = (struct cpu_kernels){0};
    for (const struct cpu_level *l = cpu_levels; l <= level; l++) {
        if (!l->supported())
            continue;
        if (l->add_formats != NULL)
            l->add_formats(out);
        if (l->add_ops != NULL)
            l->add_ops(out);
    }
}
