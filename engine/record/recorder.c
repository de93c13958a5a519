#include "engine/record/recorder.h"

#include "config/base/log.h"
#include "engine/record/record_request.h"
#include "engine/record/record_step.h"

#include <inttypes.h>
#include <stdlib.h>

enum recorder_state {
    RECORDER_NEW, /* nothing is recorded yet */
    RECORDER_RUNS,
    RECORDER_PAUSES,  /* at its bound, until a successor begins */
    RECORDER_STOPPED, /* for good */
};

struct recorder {
    struct recorder_config config;
    struct record_header header;
    enum recorder_state state;
    int64_t written;      /* bytes of the recording */
    uint64_t written_all; /* of all of them */
    int64_t last_ns;
    struct grammar *grammar;   /* of the last request that had one; a reference */
    uint64_t num_ended;        /* choices, before the step */
    struct byte_buffer frame;  /* under construction */
    struct byte_buffer tape;   /* of the step */
    struct byte_buffer values; /* of a step that was collected */
    struct byte_buffer scratch;
};

int recorder_create(const struct recorder_config *config, const struct record_header *header,
                    struct recorder **out, struct error *err) {
    struct recorder *recorder = calloc(1, sizeof(*recorder));
    if (recorder == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the recorder");
    recorder->config = *config;
    recorder->header = *header;
    *out = recorder;
    return 0;
}

static void set_grammar(struct recorder *recorder, struct grammar *grammar) {
    grammar_unref(recorder->grammar);
    recorder->grammar = grammar;
}

void recorder_destroy(struct recorder *recorder) {
    if (recorder == NULL)
        return;
    set_grammar(recorder, NULL);
    byte_buffer_finish(&recorder->frame);
    byte_buffer_finish(&recorder->tape);
    byte_buffer_finish(&recorder->values);
    byte_buffer_finish(&recorder->scratch);
    free(recorder);
}

static bool runs(const struct recorder *recorder) {
    return recorder != NULL && recorder->state == RECORDER_RUNS;
}

/* Nothing that comes later could be replayed without what is lost here. */
static void stop(struct recorder *recorder, const char *why) {
    recorder->state = RECORDER_STOPPED;
    log_error("record: %s; recording stops until the server is restarted", why);
}

/* Hands the frame over, if there is room for it. */
static void put_frame(struct recorder *recorder, bool begins) {
    struct byte_buffer *frame = &recorder->frame;
    if (!record_frame_end(frame)) {
        stop(recorder, "memory is short, or a record too large");
    } else if (recorder->written + (int64_t)frame->length > recorder->config.max_bytes) {
        recorder->state = RECORDER_PAUSES;
        log_warning("record: the file has %" PRId64 " bytes and the server was never idle; nothing "
                    "is recorded until it is",
                    recorder->written);
    } else if (recorder->config.write(recorder->config.context, begins, frame->data,
                                      frame->length) != 0) {
        stop(recorder, "the file cannot be written, or not fast enough");
    } else {
        recorder->written += (int64_t)frame->length;
        recorder->written_all += frame->length;
    }
}

void recorder_count(const struct recorder *recorder, struct engine_stats *stats) {
    stats->is_recording = runs(recorder);
    stats->recorded_bytes = recorder != NULL ? recorder->written_all : 0;
}

bool recorder_is_due(const struct recorder *recorder) {
    if (recorder == NULL || recorder->state == RECORDER_STOPPED)
        return false;
    return recorder->state != RECORDER_RUNS ||
           recorder->written >= recorder->config.max_bytes / 4 * 3;
}

/* Those that the core has already. */
static void put_adapters(struct recorder *recorder, const struct adapter_slots *slots) {
    for (int32_t i = 0; i < slots->shape.num_slots; i++)
        if (slots->slots[i].adapter != NULL)
            recorder_load(recorder, i, slots->slots[i].adapter, slots->slots[i].was_ready);
}

void recorder_begin(struct recorder *recorder, const struct engine_core *core) {
    if (!recorder_is_due(recorder))
        return;
    recorder->state = RECORDER_RUNS;
    recorder->written = 0;
    recorder->last_ns = 0;
    set_grammar(recorder, NULL);
    recorder->num_ended = engine_stats_num_finished(&core->stats);
    byte_buffer_clear(&recorder->tape);
    record_frame_begin(&recorder->frame, RECORD_HEADER);
    record_header_write(&recorder->header, &recorder->frame);
    put_frame(recorder, true);
    put_adapters(recorder, &core->adapters);
}

void recorder_add(struct recorder *recorder, const struct request *request) {
    if (!runs(recorder))
        return;
    record_frame_begin(&recorder->frame, RECORD_REQUEST);
    record_request_write(request, recorder->grammar, &recorder->frame);
    put_frame(recorder, false);
    if (request->params.grammar != NULL)
        set_grammar(recorder, grammar_ref(request->params.grammar));
}

static void put_empty_frame(struct recorder *recorder, enum record_kind kind) {
    if (!runs(recorder))
        return;
    record_frame_begin(&recorder->frame, kind);
    put_frame(recorder, false);
}

void recorder_flush(struct recorder *recorder) {
    put_empty_frame(recorder, RECORD_FLUSH);
}

void recorder_rewrite(struct recorder *recorder) {
    put_empty_frame(recorder, RECORD_REWRITE);
}

void recorder_load(struct recorder *recorder, int32_t slot, const struct adapter *adapter,
                   bool is_ready) {
    if (!runs(recorder))
        return;
    record_frame_begin(&recorder->frame, RECORD_LOAD);
    record_put_bool(&recorder->frame, is_ready);
    record_put_signed(&recorder->frame, slot);
    record_put_text(&recorder->frame, adapter->name);
    record_put_bytes(&recorder->frame, lora_adapter_digest(adapter->lora), CONTENT_HASH_BYTES);
    put_frame(recorder, false);
}

void recorder_unload(struct recorder *recorder, int32_t slot) {
    if (!runs(recorder))
        return;
    record_frame_begin(&recorder->frame, RECORD_UNLOAD);
    record_put_signed(&recorder->frame, slot);
    put_frame(recorder, false);
}

static void put_mark(struct recorder *recorder, enum record_mark mark) {
    const char byte = (char)mark;
    byte_buffer_append(&recorder->tape, &byte, 1);
}

void recorder_note_clock(struct recorder *recorder, int64_t now_ns) {
    if (!runs(recorder))
        return;
    put_mark(recorder, RECORD_CLOCK);
    record_put_signed(&recorder->tape, now_ns - recorder->last_ns);
    recorder->last_ns = now_ns;
}

void recorder_note_signal(struct recorder *recorder, const struct request *request,
                          enum request_signal signal) {
    if (!runs(recorder))
        return;
    put_mark(recorder, RECORD_SIGNAL);
    record_put_unsigned(&recorder->tape, request->id);
    record_put_unsigned(&recorder->tape, (uint64_t)signal);
}

void recorder_note_collected(struct recorder *recorder, const struct step *step,
                             const struct error *failure) {
    if (!runs(recorder))
        return;
    byte_buffer_clear(&recorder->values);
    record_step_write(step, failure->code, recorder->header.limits.hidden_size, &recorder->scratch,
                      &recorder->values);
    put_mark(recorder, RECORD_COLLECTED);
    record_put_bytes(&recorder->tape, recorder->values.data, recorder->values.length);
    if (recorder->values.failed)
        recorder->tape.failed = true;
}

void recorder_note_masks(struct recorder *recorder, uint64_t job) {
    if (!runs(recorder))
        return;
    put_mark(recorder, RECORD_MASKS);
    record_put_unsigned(&recorder->tape, job);
}

void recorder_note_answer(struct recorder *recorder, enum executor_answer answer,
                          const struct error *err) {
    if (!runs(recorder))
        return;
    put_mark(recorder, RECORD_ANSWER);
    record_put_unsigned(&recorder->tape, (uint64_t)answer);
    record_put_unsigned(&recorder->tape, (uint64_t)err->code);
}

void recorder_end_step(struct recorder *recorder, const struct engine_core *core, bool ran) {
    if (!runs(recorder))
        return;
    uint64_t ended = engine_stats_num_finished(&core->stats);
    put_mark(recorder, RECORD_END);
    record_put_bool(&recorder->tape, ran);
    record_put_unsigned(&recorder->tape, ended - recorder->num_ended);
    recorder->num_ended = ended;
    record_frame_begin(&recorder->frame, RECORD_STEP);
    byte_buffer_append(&recorder->frame, recorder->tape.data, recorder->tape.length);
    recorder->frame.failed = recorder->frame.failed || recorder->tape.failed;
    byte_buffer_clear(&recorder->tape);
    put_frame(recorder, false);
}
