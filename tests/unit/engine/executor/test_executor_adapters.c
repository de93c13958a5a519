/* The adapters' slots of each rank, which stand here for those of models/lora: what a batch writes
 * reaches all ranks, in order, and a write that fails is a failure of the device. Their memory is
 * planned, allocated and reported with the rest. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/executor.h"
#include "models/lora/lora_slots.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"
#define SLOT_BYTES ((size_t)1 << 20) /* of a rank */
#define MAX_WRITES 8

/* --- In place of models/lora --- */

struct lora_slots {
    struct lora_shape shape;
    int32_t rank; /* of its stage */
    int32_t first_layer;
    int32_t num_writes;
    struct adapter_write writes[MAX_WRITES];
    uint8_t first_bytes[MAX_WRITES];
};

static struct lora_slots *known[BACKEND_MAX_RANKS];
static atomic_int num_known, num_open;
static size_t slot_bytes = SLOT_BYTES;
static bool creating_fails;
static int32_t failing_slot = -1;

int lora_slots_create(struct backend *backend, const struct model_config *config,
                      const struct model_shard *shard, const struct lora_shape *shape,
                      struct lora_slots **out, struct error *err) {
    if (creating_fails)
        return error_set(err, ERROR_MEMORY, "scripted");
    struct lora_slots *slots = calloc(1, sizeof(*slots));
    slots->shape = *shape;
    slots->rank = shard->rank;
    slots->first_layer = shard->first_layer;
    known[atomic_fetch_add(&num_known, 1)] = slots;
    atomic_fetch_add(&num_open, 1);
    *out = slots;
    return 0;
}

void lora_slots_destroy(struct lora_slots *slots) {
    if (slots != NULL)
        atomic_fetch_sub(&num_open, 1);
    free(slots);
}

size_t lora_slots_needed(const struct model_config *config, const struct model_shard *shard,
                         const struct lora_shape *shape, enum dtype held) {
    return (size_t)shape->num_slots * slot_bytes;
}

size_t lora_slots_bytes(const struct lora_slots *slots) {
    return (size_t)slots->shape.num_slots * slot_bytes;
}

const struct lora_shape *lora_slots_shape(const struct lora_slots *slots) {
    return &slots->shape;
}

int lora_slots_write(struct lora_slots *slots, int32_t slot, const struct lora_rows *rows,
                     const void *data, struct error *err) {
    assert_in_range(slots->num_writes, 0, MAX_WRITES - 1);
    slots->first_bytes[slots->num_writes] = *(const uint8_t *)data;
    slots->writes[slots->num_writes++] = (struct adapter_write){.slot = slot, .rows = *rows};
    return slot == failing_slot ? error_set(err, ERROR_DEVICE, "scripted, slot %d", slot) : 0;
}

const struct lora_projection *lora_slots_find(const struct lora_slots *slots, int32_t layer,
                                              enum projection_role role) {
    return NULL;
}

/* --- Executors --- */

static struct executor_config config_of(const struct model *model, int32_t num_ranks,
                                        int32_t num_stages) {
    return (struct executor_config){
        .device = "cpu-ref",
        .dtype = DTYPE_F32,
        .quantization = DTYPE_NONE,
        .num_threads = 1,
        .num_ranks = num_ranks,
        .num_stages = num_stages,
        .kv_type = KV_F32,
        .limits = {.max_num_seqs = 4,
                   .max_num_batched_tokens = 16,
                   .max_model_len = 64,
                   .block_size = 16,
                   .vocab_size = model->config.vocab_size,
                   .hidden_size = model->config.hidden_size},
        .lora = {.num_slots = 3, .max_rank = 16, .dtype = DTYPE_AUTO},
    };
}

static struct model *open_model(void) {
    struct model *model;
    struct error err = {0};
    if (model_open(MODEL_PATH, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static struct executor *create(const struct model *model, const struct executor_config *config,
                               struct executor_info *info) {
    struct executor *executor;
    struct error err = {0};
    atomic_store(&num_known, 0);
    if (executor_create(model, config, info, &executor, &err) != 0)
        fail_msg("%s", err.message);
    return executor;
}

static int run(struct executor *executor, const struct adapter_write *writes, int32_t count,
               const uint8_t *data, struct error *err) {
    const struct batch batch = {
        .num_adapter_writes = count, .adapter_writes = writes, .adapter_data = data};
    struct step_result result = {0};
    executor->ops->submit(executor, &batch, &result);
    return executor->ops->wait(executor, err);
}

static const uint8_t data[] = {10, 0, 20, 0, 30, 0};
static const struct adapter_write writes[] = {
    {.slot = 2, .rows = {.layer = 0, .num_rows = 5}, .first_byte = 0},
    {.slot = 0, .rows = {.layer = 1, .matrix = 1, .first_row = 7, .num_rows = 1}, .first_byte = 4},
    {.slot = 2, .rows = {.layer = 1, .num_rows = 2}, .first_byte = 2},
};

/* Rows of the whole model go to every rank, which takes its share. */
static void every_rank_is_given_all_writes(void **state) {
    static const int32_t shapes[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
    struct model *model = open_model();
    for (int i = 0; i < 4; i++) {
        int32_t num_ranks = shapes[i][0] * shapes[i][1];
        const struct executor_config config = config_of(model, shapes[i][0], shapes[i][1]);
        struct executor_info info;
        struct error err = {0};
        struct executor *executor = create(model, &config, &info);
        assert_int_equal(atomic_load(&num_known), num_ranks);
        assert_int_equal(run(executor, writes, 2, data, &err), 0);
        assert_int_equal(run(executor, writes + 2, 1, data, &err), 0);
        for (int32_t r = 0; r < num_ranks; r++) {
            static const uint8_t first_bytes[] = {10, 30, 20};
            assert_int_equal(known[r]->num_writes, 3);
            assert_memory_equal(known[r]->first_bytes, first_bytes, 3);
            for (int w = 0; w < 3; w++) {
                assert_int_equal(known[r]->writes[w].slot, writes[w].slot);
                assert_memory_equal(&known[r]->writes[w].rows, &writes[w].rows,
                                    sizeof(writes[w].rows));
            }
        }
        executor->ops->destroy(executor);
        assert_int_equal(atomic_load(&num_open), 0);
    }
    model_close(model);
}

static void a_write_that_fails_is_a_failure_of_the_device(void **state) {
    struct model *model = open_model();
    const struct executor_config config = config_of(model, 2, 1);
    struct executor_info info;
    struct error err = {0};
    struct executor *executor = create(model, &config, &info);
    assert_int_equal(run(executor, writes, 1, data, &err), 0);
    failing_slot = 0;
    assert_int_equal(run(executor, writes, 3, data, &err), -1);
    failing_slot = -1;
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_non_null(strstr(err.message, "cannot write an adapter: scripted, slot 0"));
    assert_int_equal(run(executor, writes, 1, data, &err), -1); /* for good */
    executor->ops->destroy(executor);
    model_close(model);
}

static void their_memory_is_reported(void **state) {
    struct model *model = open_model();
    for (int32_t num_ranks = 1; num_ranks <= 2; num_ranks++) {
        struct executor_config config = config_of(model, num_ranks, 1);
        struct executor_info info, planned;
        struct error err = {0};
        struct executor *executor = create(model, &config, &info);
        executor->ops->destroy(executor);
        assert_int_equal(executor_plan(model, &config, &planned, &err), 0);
        assert_int_equal(info.memory.adapter_bytes, (size_t)num_ranks * 3 * SLOT_BYTES);
        assert_int_equal(info.rank_memory[0].adapter_bytes, 3 * SLOT_BYTES);
        assert_int_equal(planned.memory.adapter_bytes, info.memory.adapter_bytes);
        assert_true(info.lora.num_slots == 3 && info.lora.max_rank == 16);
        assert_int_equal(info.lora.dtype, DTYPE_F16);
        assert_memory_equal(&planned.lora, &info.lora, sizeof(info.lora));
        executor_info_fix(&info, &config);
        assert_memory_equal(&config.lora, &info.lora, sizeof(info.lora));
    }
    model_close(model);
}

static void without_room_there_are_none(void **state) {
    struct model *model = open_model();
    struct executor_config config = config_of(model, 1, 1);
    struct executor_info info;
    config.lora.num_slots = 0;
    struct executor *executor = create(model, &config, &info);
    assert_int_equal(atomic_load(&num_known), 0);
    assert_int_equal(info.memory.adapter_bytes, 0);
    assert_true(info.lora.num_slots == 0 && info.lora.max_rank == 0 && info.lora.dtype == 0);
    executor->ops->destroy(executor);
    model_close(model);
}

static void too_many_are_refused(void **state) {
    struct model *model = open_model();
    const struct executor_config config = config_of(model, 1, 1);
    struct executor *executor;
    struct executor_info info;
    struct error err = {0};
    slot_bytes = (size_t)1 << 50; /* more than any system has */
    assert_int_equal(executor_create(model, &config, &info, &executor, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_non_null(strstr(err.message, "out of memory for the adapters"));
    assert_non_null(strstr(err.message, "--max-loras"));
    slot_bytes = SLOT_BYTES;
    creating_fails = true;
    assert_int_equal(executor_create(model, &config, &info, &executor, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_non_null(strstr(err.message, "out of memory for the adapters: scripted"));
    creating_fails = false;
    assert_int_equal(atomic_load(&num_open), 0);
    model_close(model);
}

/* With the weights they are read again; without, they stay. */
static void they_go_with_the_weights(void **state) {
    struct model *model = open_model();
    const struct executor_config config = config_of(model, 1, 1);
    struct executor_info info;
    struct error err = {0};
    struct executor *executor = create(model, &config, &info);
    executor->ops->sleep(executor, false);
    assert_int_equal(atomic_load(&num_open), 1);
    assert_int_equal(executor->ops->wake(executor, &err), 0);
    assert_int_equal(atomic_load(&num_known), 1);
    executor->ops->sleep(executor, true);
    assert_int_equal(atomic_load(&num_open), 0);
    assert_int_equal(executor->ops->wake(executor, &err), 0);
    assert_int_equal(atomic_load(&num_known), 2);
    assert_int_equal(run(executor, writes, 3, data, &err), 0);
    assert_int_equal(known[1]->num_writes, 3);
    executor->ops->destroy(executor);
    model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_is_given_all_writes),
        cmocka_unit_test(a_write_that_fails_is_a_failure_of_the_device),
        cmocka_unit_test(their_memory_is_reported),
        cmocka_unit_test(without_room_there_are_none),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(they_go_with_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
