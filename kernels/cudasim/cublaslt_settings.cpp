#include "cublaslt.h"

#include "fatal.h"

#include "cudasim/products.h"

#include <stdlib.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

namespace cudasim {

/* Numbers of columns of an algorithm. */
struct column_range {
    int id; /* ALL: every one */
    uint64_t first, last;
};

struct id_duration {
    int id; /* ALL: every one */
    std::chrono::microseconds duration;
};

struct product_settings {
    std::vector<column_range> refused, hidden;
    std::vector<int> wrong, coarse;
    std::vector<id_duration> durations, first_durations;
};

static constexpr int ALL = -1;

/* Moves *io_text behind `word` when it starts with it. */
static bool skip(const char **io_text, const char *word) {
    size_t length = strlen(word);
    if (strncmp(*io_text, word, length) != 0)
        return false;
    *io_text += length;
    return true;
}

static bool parse_number(const char **io_text, uint64_t *out) {
    if (**io_text < '0' || **io_text > '9')
        return false;
    char *end;
    *out = strtoull(*io_text, &end, 10);
    *io_text = end;
    return true;
}

static bool parse_id(const char **io_text, int *out) {
    uint64_t id = 0;
    *out = ALL;
    if (skip(io_text, "all"))
        return true;
    if (!parse_number(io_text, &id) || id >= CUDASIM_NUM_ALGORITHMS)
        return false;
    *out = static_cast<int>(id);
    return true;
}

static bool parse_range(const char **io_text, std::vector<column_range> *out) {
    column_range r;
    if (!parse_id(io_text, &r.id) || !skip(io_text, ":") || !parse_number(io_text, &r.first) ||
        !skip(io_text, "-") || !parse_number(io_text, &r.last))
        return false;
    out->push_back(r);
    return true;
}

static bool parse_single(const char **io_text, std::vector<int> *out) {
    int id;
    if (!parse_id(io_text, &id))
        return false;
    out->push_back(id);
    return true;
}

static bool parse_duration(const char **io_text, std::vector<id_duration> *out) {
    uint64_t microseconds;
    int id;
    if (!parse_id(io_text, &id) || !skip(io_text, ":") || !parse_number(io_text, &microseconds))
        return false;
    out->push_back({id, std::chrono::microseconds(microseconds)});
    return true;
}

static bool parse_entry(const char **io_text, product_settings *out) {
    if (skip(io_text, "refuse:"))
        return parse_range(io_text, &out->refused);
    if (skip(io_text, "hide:"))
        return parse_range(io_text, &out->hidden);
    if (skip(io_text, "coarse:"))
        return parse_single(io_text, &out->coarse);
    if (skip(io_text, "takes:"))
        return parse_duration(io_text, &out->durations);
    if (skip(io_text, "first:"))
        return parse_duration(io_text, &out->first_durations);
    return skip(io_text, "wrong:") && parse_single(io_text, &out->wrong);
}

static bool parse(const char *text, product_settings *out) {
    if (*text == '\0')
        return true;
    while (parse_entry(&text, out))
        if (!skip(&text, ","))
            return *text == '\0';
    return false;
}

struct product_state {
    std::mutex lock;
    product_settings settings;
    bool was_used[CUDASIM_NUM_ALGORITHMS]; /* since they were set */
    cudasim_product_calls calls;
};

static product_state *create_state() {
    product_state *state = new product_state();
    const char *spelling = getenv("QUIRE_CUDASIM_PRODUCTS");
    if (spelling != nullptr && !parse(spelling, &state->settings))
        fatal("QUIRE_CUDASIM_PRODUCTS is \"%s\": a list of refuse:ID:FIRST-LAST, "
              "hide:ID:FIRST-LAST, wrong:ID, coarse:ID, takes:ID:MICROSECONDS and "
              "first:ID:MICROSECONDS",
              spelling);
    return state;
}

/* Created by the first call, never destroyed. */
static product_state &the_state() {
    static product_state *const state = create_state();
    return *state;
}

void count_product_call(product_call call) {
    product_state &state = the_state();
    std::lock_guard<std::mutex> guard(state.lock);
    if (call == product_call::heuristic)
        state.calls.heuristics++;
    else
        state.calls.products++;
}

static bool holds(const std::vector<column_range> &ranges, int id, uint64_t num_columns) {
    std::lock_guard<std::mutex> guard(the_state().lock);
    for (const column_range &r : ranges)
        if ((r.id == ALL || r.id == id) && num_columns >= r.first && num_columns <= r.last)
            return true;
    return false;
}

static bool holds(const std::vector<int> &ids, int id) {
    std::lock_guard<std::mutex> guard(the_state().lock);
    for (int other : ids)
        if (other == ALL || other == id)
            return true;
    return false;
}

bool is_refused(int id, uint64_t num_columns) {
    return holds(the_state().settings.refused, id, num_columns);
}

bool is_hidden(int id, uint64_t num_columns) {
    return holds(the_state().settings.hidden, id, num_columns);
}

bool is_wrong(int id) {
    return holds(the_state().settings.wrong, id);
}

bool is_coarse(int id) {
    return holds(the_state().settings.coarse, id);
}

static std::chrono::microseconds find(const std::vector<id_duration> &durations, int id,
                                      int otherwise) {
    for (const id_duration &d : durations)
        if (d.id == ALL || d.id == id)
            return d.duration;
    return std::chrono::microseconds(otherwise);
}

std::chrono::nanoseconds duration_of(int id) {
    product_state &state = the_state();
    std::lock_guard<std::mutex> guard(state.lock);
    std::chrono::nanoseconds duration =
        find(state.settings.durations, id, CUDASIM_PRODUCT_MICROSECONDS);
    if (!state.was_used[id])
        duration += find(state.settings.first_durations, id, 0);
    state.was_used[id] = true;
    return duration;
}

void read_products_from_environment() {
    the_state();
}

} // namespace cudasim

using namespace cudasim;

int cudasim_set_products(const char *spelling) {
    product_settings settings;
    if (!parse(spelling, &settings))
        return -1;
    product_state &state = the_state();
    std::lock_guard<std::mutex> guard(state.lock);
    state.settings = settings;
    std::fill(std::begin(state.was_used), std::end(state.was_used), false);
    return 0;
}

cudasim_product_calls cudasim_count_products(void) {
    product_state &state = the_state();
    std::lock_guard<std::mutex> guard(state.lock);
    return state.calls;
}
