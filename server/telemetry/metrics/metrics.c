#include "server/telemetry/metrics/metrics.h"

#include "server/telemetry/metrics/metrics_engine.h"
#include "server/telemetry/metrics/metrics_text.h"

/* What the configuration made of itself: gauges that are 1, with labels that say it (vLLM's
 * cache_config_info, Prometheus' convention for *_info). */
static void write_info(const struct metrics_text *w, const struct metrics_facts *facts,
                       const struct engine_stats *s) {
    metrics_text_header(w, "cache_config_info", "gauge", "The KV cache's configuration.");
    metrics_text_begin_sample(w, "cache_config_info", "");
    byte_buffer_printf(w->out,
                       ",block_size=\"%d\",num_gpu_blocks=\"%d\",num_cpu_blocks=\"%d\","
                       "cache_dtype=\"%s\",enable_prefix_caching=\"%s\"} 1.0\n",
                       s->block_size, s->num_blocks, s->num_host_blocks, facts->cache_dtype,
                       facts->has_prefix_caching ? "True" : "False");
    metrics_text_header(w, "build_info", "gauge", "The program, and where it computes.");
    metrics_text_begin_sample(w, "build_info", "");
    byte_buffer_append_text(w->out, ",version=\"" QUIRE_VERSION "\",device=\"");
    metrics_text_label_value(w->out, facts->device);
    byte_buffer_append_text(w->out, "\"} 1.0\n");
}

/* By the names and without the labels that Prometheus' client libraries give them:
 * prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics". */
static void write_process(struct byte_buffer *out, const struct process_stats *p) {
    const struct {
        const char *name, *type, *help;
        double value;
    } metrics[] = {
        {"process_cpu_seconds_total", "counter", "CPU time of the process.", p->cpu_seconds},
        {"process_resident_memory_bytes", "gauge", "Memory in use.", (double)p->resident_bytes},
        {"process_virtual_memory_bytes", "gauge", "Address space in use.",
         (double)p->virtual_bytes},
        {"process_start_time_seconds", "gauge", "Start, since 1970.", p->start_seconds},
        {"process_open_fds", "gauge", "Open file descriptors.", (double)p->num_files},
        {"process_max_fds", "gauge", "Most open file descriptors.", (double)p->max_files},
    };
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        char number[METRICS_TEXT_NUMBER_CHARS];
        metrics_text_number(metrics[i].value, number);
        byte_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %s\n", metrics[i].name,
                           metrics[i].help, metrics[i].name, metrics[i].type, metrics[i].name,
                           number);
    }
}

/* The process metrics know nothing of a rank process, which holds weights and KV blocks. */
static void write_resident(const struct metrics_text *w, const struct process_stats *process,
                           const struct process_stats *ranks) {
    size_t of_ranks = ranks != NULL ? ranks->resident_bytes : 0;
    metrics_text_single(w, "memory_resident_bytes", "gauge",
                        "Memory that is in use, of the rank process too.",
                        (double)(process->resident_bytes + of_ranks));
    if (ranks == NULL)
        return;
    metrics_text_single(w, "rank_process_resident_memory_bytes", "gauge",
                        "Memory of the rank process that is in use.", (double)of_ranks);
    metrics_text_single(w, "rank_process_cpu_seconds_total", "counter",
                        "CPU time of the rank process; begins at 0 when it is started again.",
                        ranks->cpu_seconds);
}

void metrics_format(const struct metrics_facts *facts, const struct engine_stats *engine,
                    const struct http_stats *http, const struct process_stats *process,
                    const struct process_stats *ranks, struct byte_buffer *out) {
    struct metrics_text w = metrics_text_begin(facts->prefix, facts->model_name, out);
    metrics_engine_write(&w, facts, engine);
    metrics_http_write(&w, http);
    metrics_engine_write_recording(&w, engine);
    write_resident(&w, process, ranks);
    write_info(&w, facts, engine);
    write_process(out, process);
    metrics_text_finish(&w);
}

void metrics_format_keys(const struct metrics_facts *facts, const struct api_keys *keys,
                         struct byte_buffer *out) {
    if (!api_keys_are_needed(keys))
        return;
    struct metrics_text w = metrics_text_begin(facts->prefix, facts->model_name, out);
    metrics_http_write_keys(&w, keys);
    metrics_text_finish(&w);
}
