/* The whole engine against Transformers' beam search: beams.json
 * (scripts/golden/make_beam_golden.py says how it was made). All searches of a model are submitted
 * at once, behind some plain requests that come before them and grow long, so that beams of many
 * requests run in the same steps and find each other's prompts in the prefix cache; once with room
 * for all, and twice with so little memory that searches lose their blocks, which are computed
 * again or swapped.
 *
 *     test_beam_search beams.json FOLDER DEVICE [KV_TYPE]
 *
 * With quantised keys and values other beams are found: then it is the searches with room that the
 * others are compared with, bit for bit, and a good part of them is as Transformers'. */
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "kernels/kv_type.h"
#include "models/kv_groups.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_FILE = 1 << 20,
    MAX_PROMPT = 64,
    MAX_TOKENS = 40,
    MAX_SEARCHES = 16,
    MAX_MODEL_LEN = 96,
    NUM_PLAIN = 20,
    PLAIN_PROMPT = 16,
    MAX_SEQS = 48,
    MAX_STEP_TOKENS = 64,
    BLOCK_SIZE = 16,
    TIGHT_BLOCKS = 60, /* the widest search takes 26, all plain requests in the end 80 */
    SWAP_BYTES = 8 << 20,
};
#define SCORE_TOLERANCE 1e-4 /* of a token's logprob; measured: 1.1e-5 */

static _Noreturn void give_up(const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(1);
}

/* --- The file --- */

static const cJSON *member(const cJSON *item, const char *name) {
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(item, name);
    if (found == NULL)
        give_up(name);
    return found;
}

static int32_t integer(const cJSON *item, const char *name) {
    return (int32_t)member(item, name)->valuedouble;
}

static int32_t read_tokens(const cJSON *list, int32_t *out, int32_t capacity) {
    int32_t count = 0;
    const cJSON *token;
    cJSON_ArrayForEach(token, list) {
        if (count == capacity)
            give_up("a list of tokens is too long");
        out[count++] = (int32_t)token->valuedouble;
    }
    return count;
}

static cJSON *read_searches(const char *path) {
    static char text[MAX_FILE];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        give_up(path);
    size_t length = fread(text, 1, sizeof(text), file);
    fclose(file);
    cJSON *searches = cJSON_ParseWithLength(text, length);
    if (!cJSON_IsArray(searches))
        give_up("the file is no JSON list");
    return searches;
}

static enum early_stopping early_stopping_of(const cJSON *search) {
    const cJSON *item = member(search, "early_stopping");
    if (cJSON_IsString(item))
        return EARLY_STOPPING_NEVER;
    return cJSON_IsTrue(item) ? EARLY_STOPPING_TRUE : EARLY_STOPPING_FALSE;
}

static struct request *make_request(const cJSON *search) {
    int32_t prompt[MAX_PROMPT], ends[MAX_STOP_TOKENS];
    int32_t num_prompt_tokens = read_tokens(member(search, "prompt"), prompt, MAX_PROMPT);
    struct sampling_params params = {
        .num_choices = integer(search, "n"),
        .beam_width = integer(search, "width"),
        .length_penalty = member(search, "length_penalty")->valuedouble,
        .early_stopping = early_stopping_of(search),
        .max_tokens = integer(search, "max_tokens"),
        .min_tokens = integer(search, "min_tokens"),
        .settings.top_p = 1,
        .settings.repetition_penalty = 1,
        .num_logprobs = 0,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
        .num_stop_tokens = read_tokens(member(search, "ends"), ends, MAX_STOP_TOKENS),
        .stop_tokens = ends,
    };
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    if (request == NULL)
        give_up("memory is short");
    return request;
}

static struct request *make_plain_request(int index) {
    int32_t prompt[PLAIN_PROMPT];
    for (int32_t i = 0; i < PLAIN_PROMPT; i++)
        prompt[i] = (index * 13 + i * 7) % 256;
    struct sampling_params params = {.num_choices = 1,
                                     .max_tokens = MAX_TOKENS,
                                     .settings.top_p = 1,
                                     .settings.repetition_penalty = 1,
                                     .num_logprobs = -1,
                                     .num_prompt_logprobs = -1,
                                     .ignore_eos = true};
    struct request *request = request_create(prompt, PLAIN_PROMPT, &params);
    if (request == NULL)
        give_up("memory is short");
    return request;
}

/* --- The engine --- */

enum memory { ROOMY, TIGHT, TIGHT_WITH_SWAP, NUM_MEMORIES };

/* What the engine computes on. */
struct machine {
    const char *device;
    enum kv_type kv_type;
};

struct fixture {
    struct model *model;
    struct tokenizer *tokenizer;
    struct executor *executor;
    struct executor_info info;
    struct serving_limits limits;
    struct engine *engine;
};

static void wake(void *context) {
}

static int open_model(struct fixture *f, const char *path, const struct machine *machine,
                      enum memory memory, struct error *err) {
    struct executor_config config = {
        .device = machine->device,
        .dtype = DTYPE_AUTO,
        .quantization = DTYPE_NONE,
        .num_threads = 1,
        .kv_type = machine->kv_type,
        .swap_bytes = memory == TIGHT_WITH_SWAP ? SWAP_BYTES : 0,
    };
    if (model_open(path, &f->model, err) != 0 || tokenizer_open(f->model, &f->tokenizer, err) != 0)
        return -1;
    config.limits = (struct serving_limits){
        .max_num_seqs = MAX_SEQS,
        .max_num_batched_tokens = MAX_STEP_TOKENS,
        .max_model_len = MAX_MODEL_LEN,
        .block_size = BLOCK_SIZE,
        .vocab_size = f->model->config.vocab_size,
        .hidden_size = f->model->config.hidden_size,
    };
    kv_groups_choose(&f->model->config, &config.limits);
    return executor_create(f->model, &config, &f->info, &f->executor, err);
}

/* The engine gets fewer blocks than there are, and 0 as the time to move one. */
static void start(struct fixture *f, const char *path, const struct machine *machine,
                  enum memory memory) {
    struct error err = {0};
    if (open_model(f, path, machine, memory, &err) != 0)
        give_up(err.message);
    f->limits = f->info.limits;
    if (memory != ROOMY)
        f->limits.num_blocks = TIGHT_BLOCKS * f->limits.num_groups;
    struct engine_config config = {
        .core.schedule.kv.limits = &f->limits,
        .core.schedule.kv.num_tenants = 1,
        .core.schedule.kv.caching = true,
        .max_queued_requests = NUM_PLAIN + MAX_SEARCHES,
        .max_queued_tokens = (NUM_PLAIN + MAX_SEARCHES) * MAX_PROMPT,
        .wake = wake,
    };
    if (engine_create(&config, f->executor, f->tokenizer, &f->engine, &err) != 0)
        give_up(err.message);
}

static void stop(struct fixture *f) {
    engine_destroy(f->engine);
    f->executor->ops->destroy(f->executor);
    tokenizer_close(f->tokenizer);
    model_close(f->model);
}

/* --- What a search found --- */

struct answer {
    int32_t tokens[MAX_TOKENS];
    int32_t num_tokens;
    double sum; /* of log probabilities */
    enum finish_reason finish;
};

static void read_event(const struct token_event *event, struct answer *answer) {
    for (int32_t i = 0; i < event->num_tokens; i++) {
        if (answer->num_tokens == MAX_TOKENS)
            give_up("a choice is too long");
        answer->tokens[answer->num_tokens++] = event->tokens[i].token;
        answer->sum += event->tokens[i].logprob;
    }
    answer->finish = event->finish;
}

static void read_answers(struct request *request, struct answer *answers) {
    struct token_buffer buffer = {0};
    struct token_event event;
    int32_t num_open = request->params.num_choices;
    while (num_open > 0) {
        usleep(500);
        token_stream_take(&request->stream, &buffer);
        while (token_buffer_next(&buffer, &event)) {
            read_event(&event, &answers[event.choice]);
            num_open -= event.finish != FINISH_NONE;
        }
    }
    token_buffer_finish(&buffer);
}

/* Returns whether the choice is what Transformers found, but for *worst, which grows to the largest
 * difference of a score seen so far: in logprobs of a token. */
static bool is_expected(const cJSON *search, const cJSON *beam, const struct answer *answer,
                        double *worst) {
    int32_t tokens[MAX_TOKENS];
    int32_t num_tokens = read_tokens(member(beam, "tokens"), tokens, MAX_TOKENS);
    enum finish_reason finish = cJSON_IsTrue(member(beam, "ended")) ? FINISH_STOP : FINISH_LENGTH;
    if (answer->num_tokens != num_tokens || answer->finish != finish ||
        memcmp(tokens, answer->tokens, (size_t)num_tokens * sizeof(*tokens)) != 0)
        return false;
    double power = pow(num_tokens, member(search, "length_penalty")->valuedouble);
    double difference = fabs(answer->sum - member(beam, "score")->valuedouble * power);
    *worst = fmax(*worst, difference / num_tokens);
    return true;
}

static int check_answers(const cJSON *search, const struct answer *answers, double *worst) {
    int num_wrong = 0, choice = 0;
    const cJSON *beam;
    cJSON_ArrayForEach(beam, member(search, "beams")) {
        if (!is_expected(search, beam, &answers[choice], worst)) {
            fprintf(stderr, "choice %d (%d tokens) differs: ", choice, answers[choice].num_tokens);
            char *text = cJSON_PrintUnformatted(search);
            fprintf(stderr, "%s\n", text);
            free(text);
            num_wrong++;
        }
        choice++;
    }
    return num_wrong;
}

/* --- Searches of one model --- */

struct outcome {
    int num_wrong, num_choices;
    int num_expected; /* with quantised keys and values: those that Transformers found */
    double worst;
    uint64_t copies, recomputed, swapped;
};

static void submit(struct fixture *f, struct request *request) {
    if (engine_submit(f->engine, request) != SUBMIT_OK)
        give_up("a request is refused");
}

/* What the searches of a model found with room for all. */
struct finds {
    struct answer answers[MAX_SEARCHES][BEAM_MAX_CANDIDATES];
};

static bool are_same(const struct answer *a, const struct answer *b, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (a[i].num_tokens != b[i].num_tokens || a[i].finish != b[i].finish ||
            a[i].sum != b[i].sum ||
            memcmp(a[i].tokens, b[i].tokens, (size_t)a[i].num_tokens * sizeof(int32_t)) != 0)
            return false;
    return true;
}

/* Returns how many choices are wrong. */
static int check_quantised(const cJSON *search, enum memory memory, const struct answer *answers,
                           struct answer *with_room, struct outcome *outcome) {
    int32_t choice = 0;
    const cJSON *beam;
    if (memory == ROOMY)
        memcpy(with_room, answers, BEAM_MAX_CANDIDATES * sizeof(*answers));
    cJSON_ArrayForEach(beam, member(search, "beams")) {
        double difference = 0;
        outcome->num_expected += is_expected(search, beam, &answers[choice++], &difference);
    }
    return are_same(answers, with_room, integer(search, "n")) ? 0 : integer(search, "n");
}

static void run_searches(struct fixture *f, const struct machine *machine, enum memory memory,
                         const cJSON *const *searches, int count, struct finds *finds,
                         struct outcome *outcome) {
    struct request *requests[NUM_PLAIN + MAX_SEARCHES];
    for (int i = 0; i < NUM_PLAIN + count; i++) {
        requests[i] = i < NUM_PLAIN ? make_plain_request(i) : make_request(searches[i - NUM_PLAIN]);
        submit(f, requests[i]);
    }
    for (int i = 0; i < NUM_PLAIN + count; i++) {
        struct answer answers[BEAM_MAX_CANDIDATES] = {0};
        read_answers(requests[i], answers);
        request_unref(requests[i]);
        if (i < NUM_PLAIN)
            continue;
        const cJSON *search = searches[i - NUM_PLAIN];
        outcome->num_wrong +=
            kv_type_has_scales(machine->kv_type)
                ? check_quantised(search, memory, answers, finds->answers[i - NUM_PLAIN], outcome)
                : check_answers(search, answers, &outcome->worst);
        outcome->num_choices += integer(search, "n");
    }
    while (!engine_is_idle(f->engine))
        usleep(500);
}

static void run_model(const char *folder, const struct machine *machine, enum memory memory,
                      const cJSON *const *searches, int count, struct finds *finds,
                      struct outcome *outcome) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s.gguf", folder, member(searches[0], "model")->valuestring);
    struct fixture f;
    start(&f, path, machine, memory);
    run_searches(&f, machine, memory, searches, count, finds, outcome);
    struct engine_stats stats;
    engine_get_stats(f.engine, &stats);
    if (stats.num_used_blocks != 0 || stats.num_used_host_blocks != 0)
        give_up("a block is lost");
    outcome->copies += stats.copied_blocks;
    outcome->recomputed += stats.preemptions_recompute;
    outcome->swapped += stats.preemptions_swap;
    stop(&f);
}

/* The searches of the model that `first` is of, up to the next one's; returns that. */
static const cJSON *run_next_model(const char *folder, const struct machine *machine,
                                   const cJSON *first, struct outcome outcomes[NUM_MEMORIES]) {
    static struct finds finds;
    const cJSON *searches[MAX_SEARCHES], *search = first;
    const char *model = member(first, "model")->valuestring;
    int count = 0;
    for (; search != NULL && strcmp(member(search, "model")->valuestring, model) == 0;
         search = search->next) {
        if (count == MAX_SEARCHES)
            give_up("too many searches of a model");
        searches[count++] = search;
    }
    for (enum memory memory = ROOMY; memory < NUM_MEMORIES; memory++)
        run_model(folder, machine, memory, searches, count, &finds, &outcomes[memory]);
    return search;
}

static bool report(const struct outcome outcomes[NUM_MEMORIES], enum kv_type kv_type) {
    static const char *const names[] = {"room for all", "little memory", "little memory, swapping"};
    bool is_right = outcomes[TIGHT].recomputed > 0 && outcomes[TIGHT_WITH_SWAP].swapped > 0;
    for (enum memory memory = ROOMY; memory < NUM_MEMORIES; memory++) {
        const struct outcome *o = &outcomes[memory];
        printf("%s: %d of %d choices wrong, a token's logprob differs by %.1e; %d blocks copied, "
               "sequences preempted: %d to recompute, %d to swap\n",
               names[memory], o->num_wrong, o->num_choices, o->worst, (int)o->copies,
               (int)o->recomputed, (int)o->swapped);
        if (kv_type_has_scales(kv_type)) {
            printf("    %d choices as Transformers'\n", o->num_expected);
            is_right &= o->num_expected >= o->num_choices * (kv_type == KV_INT8 ? 75 : 40) / 100;
        }
        is_right &= o->num_wrong == 0 && o->worst <= SCORE_TOLERANCE && o->copies > 0;
    }
    return is_right;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5)
        give_up("usage: test_beam_search beams.json FOLDER DEVICE [KV_TYPE]");
    const struct machine machine = {argv[3], argc == 5 ? kv_type_of(argv[4]) : KV_F32};
    if (machine.kv_type >= NUM_KV_TYPES)
        give_up("there is no such type of keys and values");
    cJSON *file = read_searches(argv[1]);
    struct outcome outcomes[NUM_MEMORIES] = {0};
    for (const cJSON *search = file->child; search != NULL;)
        search = run_next_model(argv[2], &machine, search, outcomes);
    cJSON_Delete(file);
    return report(outcomes, machine.kv_type) ? 0 : 1;
}
