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

/* One product after the other. */
static void add_by_products(const struct forward_pass *pass, const struct lora_projection *lora,
                            const struct adapter_linear_args *whole) {
    struct backend *b = pass->backend;
    const int32_t rank = lora_slots_shape(pass->lora)->max_rank;
    struct expert_linear_args args = {.x = whole->x,
                                      .weight = whole->a,
                                      .choices = whole->choices,
                                      .out = whole->inner,
                                      .num_tokens = whole->num_tokens,
                                      .num_chosen = 1,
                                      .num_own = whole->num_slots};
    b->ops->linear_experts(b, &args);
    args.x_stride = whole->num_parts * rank;
    args.accumulate = true;
    for (int32_t p = 0; p < whole->num_parts; p++)
        args.out_stride += lora->outputs[p];
    for (int32_t p = 0, first = 0; p < whole->num_parts; first += lora->outputs[p++]) {
        args.x = elements_on(pass, whole->inner, p * rank);
        args.weight = whole->b[p];
        args.out = elements_on(pass, whole->out, first);
        b->ops->linear_experts(b, &args);
    }
}

void forward_pass_add_adapters(const struct forward_pass *pass, const struct projection *projection,
                               const void *x, void *out) {
    struct backend *b = pass->backend;
    const struct lora_projection *lora =
        lora_slots_find(pass->lora, projection->layer, projection->role);
    if (lora == NULL)
        return;
    const struct expert_choices choices = choices_of(pass);
    const struct adapter_linear_args args = {.x = x,
                                             .a = lora->a,
                                             .b = (const struct matrix *const *)lora->b,
                                             .choices = &choices,
                                             .inner = pass->lora_inner.data,
                                             .out = out,
                                             .num_parts = lora->num_parts,
                                             .num_tokens = pass->num_tokens,
                                             .num_slots = lora_slots_shape(pass->lora)->num_slots};
    if (b->ops->linear_adapters == NULL || !b->ops->linear_adapters(b, &args))
        add_by_products(pass, lora, &args);
}
