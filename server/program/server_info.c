#include "server/program/server_info.h"

#include "kernels/kv_type.h"
#include "config/json/json_write.h"

#include <string.h>

static void write_list(char *const *items, int count, struct byte_buffer *out) {
    json_write_begin_array(out);
    for (int i = 0; i < count; i++)
        json_write_text(out, items[i]);
    json_write_end_array(out);
}

static void write_value(const struct option_value *value, struct byte_buffer *out) {
    switch (value->kind) {
    case OPTION_VALUE_NONE:
        json_write_null(out);
        break;
    case OPTION_VALUE_TEXT:
        json_write_text(out, value->text);
        break;
    case OPTION_VALUE_INTEGER:
        json_write_int(out, value->integer);
        break;
    case OPTION_VALUE_DECIMAL:
        json_write_float(out, (float)value->decimal);
        break;
    case OPTION_VALUE_FLAG:
        json_write_bool(out, value->flag);
        break;
    case OPTION_VALUE_LIST:
        write_list(value->list->items, value->list->count, out);
        break;
    case OPTION_VALUE_SECRET:
        json_write_begin_object(out);
        json_write_key(out, "is_set");
        json_write_bool(out, true);
        json_write_end_object(out);
        break;
    }
}

static void write_options(const struct options *options, struct byte_buffer *out) {
    struct option_value value;
    json_write_key(out, "options");
    json_write_begin_object(out);
    for (size_t i = 0; options_get(options, i, &value); i++) {
        json_write_key(out, value.name);
        write_value(&value, out);
    }
    json_write_end_object(out);
}

static void write_model(const struct server_info *info, struct byte_buffer *out) {
    json_write_key(out, "model");
    json_write_begin_object(out);
    json_write_text_member(out, "path", info->options->model);
    json_write_text_member(out, "draft", info->draft_path);
    json_write_key(out, "names");
    write_list(info->context->model_names, info->context->num_model_names, out);
    json_write_text_member(out, "system_fingerprint", info->context->system_fingerprint);
    json_write_end_object(out);
}

static void write_device(const struct server_info *info, struct byte_buffer *out) {
    const struct executor_info *executor = info->memory->executor;
    json_write_key(out, "device");
    json_write_begin_object(out);
    json_write_text_member(out, "name", executor->device);
    json_write_text_member(out, "description", executor->description);
    json_write_text_member(out, "numerics", executor->numerics);
    json_write_text_member(out, "activation_dtype", info->activation_dtype);
    json_write_text_member(out, "kv_cache_dtype", kv_type_name(executor->kv_type));
    json_write_int_member(out, "ranks", executor->num_ranks);
    json_write_int_member(out, "stages", executor->num_stages);
    json_write_key(out, "rank_process");
    json_write_bool(out, executor->rank_process > 0);
    json_write_end_object(out);
}

static void write_sizes(const struct serving_limits *limits, struct byte_buffer *out) {
    json_write_key(out, "sizes");
    json_write_begin_object(out);
    json_write_int_member(out, "max_model_len", limits->max_model_len);
    json_write_int_member(out, "max_num_seqs", limits->max_num_seqs);
    json_write_int_member(out, "max_num_batched_tokens", limits->max_num_batched_tokens);
    json_write_int_member(out, "block_size", limits->block_size);
    json_write_int_member(out, "num_blocks", limits->num_blocks);
    json_write_int_member(out, "num_host_blocks", limits->num_host_blocks);
    json_write_int_member(out, "num_speculative_tokens", limits->num_speculative_tokens);
    json_write_int_member(out, "vocab_size", limits->vocab_size);
    json_write_end_object(out);
}

static void write_bytes(const char *name, size_t bytes, struct byte_buffer *out) {
    json_write_int_member(out, name, (int64_t)bytes);
}

static void write_memory(const struct memory_table *table, struct byte_buffer *out) {
    const struct executor_memory *memory = &table->executor->memory;
    json_write_key(out, "memory_bytes");
    json_write_begin_object(out);
    write_bytes("weights", memory->weight_bytes, out);
    write_bytes("adapters", memory->adapter_bytes, out);
    write_bytes("draft", memory->draft_bytes, out);
    write_bytes("workspace", memory->workspace_bytes, out);
    write_bytes("kv_cache", memory->kv_bytes, out);
    write_bytes("swap", memory->swap_bytes, out);
    if (table->executor->has_dedicated_memory) {
        write_bytes("recorded_steps", memory->recorded_bytes, out);
        write_bytes("device_overhead", memory->overhead_bytes, out);
    }
    write_bytes("engine", table->engine_bytes, out);
    write_bytes("http", table->http_bytes, out);
    write_bytes("program", table->program_bytes, out);
    write_bytes("system_total", memory_table_total(table), out);
    json_write_end_object(out);
}

void server_info_write(const struct server_info *info, struct byte_buffer *out) {
    const struct executor_info *executor = info->memory->executor;
    json_write_begin_object(out);
    json_write_text_member(out, "version", QUIRE_VERSION);
    write_model(info, out);
    write_device(info, out);
    write_sizes(&executor->limits, out);
    write_memory(info->memory, out);
    write_options(info->options, out);
    json_write_end_object(out);
}
