#include "engine/kv/token_view.h"

#include "config/base/check.h"

#include <string.h>

void token_view_copy(const struct token_view *view, int32_t first, int32_t count, int32_t *out) {
    CHECK(first >= 0 && count >= 0 && count <= view->num_prompt + view->num_output - first);
    int32_t from_prompt = 0;
    if (first < view->num_prompt) {
        int32_t left = view->num_prompt - first;
        from_prompt = left < count ? left : count;
        memcpy(out, view->prompt + first, (size_t)from_prompt * sizeof(*out));
    }
    if (from_prompt < count)
        memcpy(out + from_prompt, view->output + (first + from_prompt - view->num_prompt),
               (size_t)(count - from_prompt) * sizeof(*out));
}
