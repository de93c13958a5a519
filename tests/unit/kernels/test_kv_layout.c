/* Where keys and values lie, by a walk over a pool in the order that kv_layout.h promises: whatever
 * comes next begins where the last one ended, so that nothing overlaps and no byte is left over. */
#include "kernels/kv_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { NUM_BLOCKS = 3, NUM_LAYERS = 2, NUM_HEADS = 3, ALIGNMENT = 64 };

static const size_t element_bytes[NUM_KV_TYPES] = {
    [KV_F32] = 4, [KV_F16] = 2, [KV_BF16] = 2, [KV_INT8] = 1, [KV_E4M3] = 1};

typedef void (*walk_fn)(const struct kv_layout *l);

static void for_every_layout(walk_fn walk) {
    static const int32_t head_dims[] = {8, 72, 128, KV_MAX_HEAD_DIM}, block_sizes[] = {16, 48};
    for (enum kv_type type = 0; type < NUM_KV_TYPES; type++)
        for (size_t d = 0; d < sizeof(head_dims) / sizeof(head_dims[0]); d++)
            for (size_t s = 0; s < sizeof(block_sizes) / sizeof(block_sizes[0]); s++) {
                struct kv_layout layout = {.num_layers = NUM_LAYERS,
                                           .num_kv_heads = NUM_HEADS,
                                           .head_dim = head_dims[d],
                                           .block_size = block_sizes[s],
                                           .type = type};
                walk(&layout);
                layout.num_kv_heads = 1;
                layout.latent_dim = head_dims[d] / 2 / KV_HEAD_DIM_STEP * KV_HEAD_DIM_STEP;
                walk(&layout);
            }
}

/* Returns where the plane ends that begins at `plane`. */
static size_t walk_plane(const struct kv_layout *l, size_t plane) {
    size_t row_bytes = (size_t)l->head_dim * element_bytes[l->type], end = plane;
    assert_int_equal(plane % ALIGNMENT, 0);
    for (int32_t token = 0; token < l->block_size; token++, end += row_bytes)
        assert_int_equal(plane + kv_row_offset(l, token), end);
    if (l->type == KV_INT8 || l->type == KV_E4M3)
        for (int32_t token = 0; token < l->block_size; token++, end += sizeof(float))
            assert_int_equal(plane + kv_scale_offset(l, token), end);
    return end;
}

static size_t walk_layer(const struct kv_layout *l, int32_t block, int32_t layer, size_t begin) {
    size_t end = begin;
    const enum kv_part last = l->latent_dim > 0 ? KV_PART_K : KV_PART_V;
    for (enum kv_part part = KV_PART_K; part <= last; part++)
        for (int32_t head = 0; head < l->num_kv_heads; head++) {
            assert_int_equal(kv_plane_offset(l, block, layer, part, head), end);
            end = walk_plane(l, end);
        }
    assert_int_equal(end - begin, kv_layer_bytes(l));
    return end;
}

static void walk_pool(const struct kv_layout *l) {
    size_t end = 0;
    for (int32_t block = 0; block < NUM_BLOCKS; block++) {
        size_t begin = end;
        for (int32_t layer = 0; layer < l->num_layers; layer++)
            end = walk_layer(l, block, layer, end);
        assert_int_equal(end - begin, kv_block_bytes(l));
    }
}

static void test_nothing_overlaps(void **state) {
    for_every_layout(walk_pool);
}

static void compare_strides(const struct kv_layout *l) {
    for (int32_t layer = 0; layer < l->num_layers; layer++) {
        const struct kv_layer_strides strides = kv_strides_of(l, layer);
        for (int32_t block = 0; block < NUM_BLOCKS; block++)
            for (enum kv_part part = KV_PART_K; part <= KV_PART_V; part++)
                for (int32_t head = 0; head < l->num_kv_heads; head++)
                    assert_int_equal(kv_strides_plane(&strides, block, part, head),
                                     kv_plane_offset(l, block, layer, part, head));
        for (int32_t token = 0; token < l->block_size; token++)
            assert_int_equal((size_t)token * strides.token, kv_row_offset(l, token));
        if (kv_type_has_scales(l->type))
            assert_int_equal(strides.scales, kv_scale_offset(l, 0));
    }
}

static void test_strides_are_the_offsets(void **state) {
    for_every_layout(compare_strides);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_overlaps),
        cmocka_unit_test(test_strides_are_the_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
