/* Low-rank adapters in the forward pass: after a projection, out += B (A x) for the tokens whose
 * sequence has an adapter (models/lora/, kernels/experts.h). */
#include "models/forward_pass.h"

/* Of one choice for each token. */
static struct expert_choices choices_of(const struct forward_pass *pass) {
    return expert_choices_at(pass->lora_choices.data, pass->num_tokens, 1,
                             lora_slots_shape(pass->lora)->num_slots);
}

void forward_pass_choose_adapters(const struct forward_pass *pass) {
    struct backend *b = pass->backend;
    b->ops->choose_adapters(
        b, &(struct choose_adapters_args){.choices = choices_of(pass),
                                          .num_tokens = pass->num_tokens,
                                          .num_slots = lora_slots_shape(pass->lora)->num_slots});
}

static char *elements_on(const struct forward_pass *pass, void *data, int32_t count) {
    return (char *)data + dtype_row_bytes(pass->backend->activation_dtype, (size_t)count);
}

void forward_pass_add_adapters(const struct forward_pass *pass, const struct projection *projection,
                               const void *x, void *out) {
    struct backend *b = pass->backend;
    const struct lora_projection *lora =
        lora_slots_find(pass->lora, projection->layer, projection->role);
    if (lora == NULL)
        return;
    const struct lora_shape *shape = lora_slots_shape(pass->lora);
    const struct expert_choices choices = choices_of(pass);
    const int32_t inner_width = lora->num_parts * shape->max_rank;
    int32_t out_width = 0, first = 0;
    for (int32_t p = 0; p < lora->num_parts; p++)
        out_width += lora->outputs[p];
    struct expert_linear_args args = {.x = x,
                                      .weight = lora->a,
                                      .choices = &choices,
                                      .out = pass->lora_inner.data,
                                      .num_tokens = pass->num_tokens,
                                      .num_chosen = 1,
                                      .num_own = shape->num_slots};
    b->ops->linear_experts(b, &args);
    args.x_stride = inner_width;
    args.out_stride = out_width;
    args.accumulate = true;
    for (int32_t p = 0; p < lora->num_parts; p++) {
        args.x = elements_on(pass, pass->lora_inner.data, p * shape->max_rank);
        args.weight = lora->b[p];
        args.out = elements_on(pass, out, first);
        b->ops->linear_experts(b, &args);
        first += lora->outputs[p];
    }
}
