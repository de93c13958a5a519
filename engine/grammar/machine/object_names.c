/* Frames and names are two stacks. A token is tried by reading it with nothing overwritten: what it
 * changes is copied to the top, and the old place is where the text is again. */
#include "engine/grammar/machine/object_names.h"

#include "config/base/array.h"
#include "config/base/utf8.h"
#include "engine/grammar/machine/grammar_machine.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_HASH UINT64_C(0xcbf29ce484222325) /* FNV-1a */
#define HASH_PRIME UINT64_C(0x100000001b3)
#define MAX_CHECKED 512     /* tokens of a mask that are all looked at, and that are forbidden */
#define SHORT_NAME 3        /* bytes of names that are few, however many tokens may come */
#define MAX_STEPS (1 << 14) /* bytes of names tried for a mask */
#define MAX_WORK (1 << 17)  /* parse states followed for that */
#define MAX_PATH 256        /* of a name */

void object_names_finish(struct object_names *names) {
    free(names->frames);
    free(names->names);
    *names = (struct object_names){0};
}

int object_names_reserve(struct object_names *names, size_t num_bytes) {
    const struct json_place *place = &names->place;
    return array_reserve(&names->frames, &names->frames_capacity,
                         (size_t)place->num_frames + num_bytes, sizeof(*names->frames)) &&
                   array_reserve(&names->names, &names->names_capacity,
                                 (size_t)place->num_names + num_bytes, sizeof(*names->names))
               ? 0
               : -1;
}

int object_names_copy(const struct object_names *from, struct object_names *out) {
    *out = (struct object_names){0};
    if (!from->place.is_within)
        return 0;
    out->place = from->place;
    if (object_names_reserve(out, 1) != 0) {
        object_names_finish(out);
        return -1;
    }
    memcpy(out->frames, from->frames, (size_t)from->place.num_frames * sizeof(*from->frames));
    if (from->place.num_names > 0)
        memcpy(out->names, from->names, (size_t)from->place.num_names * sizeof(*from->names));
    return 0;
}

/* --- Names, without their escapes --- */

static void hash_byte(struct json_place *place, uint8_t byte) {
    place->hash = (place->hash ^ byte) * HASH_PRIME;
}

/* A surrogate without its other half counts as the three bytes that UTF-8 would have for it. */
static void hash_character(struct json_place *place, uint32_t character) {
    char bytes[4];
    int count = utf8_encode(character, bytes);
    for (int i = 0; i < count; i++)
        hash_byte(place, (uint8_t)bytes[i]);
}

static void end_surrogate(struct json_place *place) {
    if (place->high_surrogate != 0)
        hash_character(place, place->high_surrogate);
    place->high_surrogate = 0;
}

static void add_unit(struct json_place *place, uint32_t unit) {
    uint32_t high = place->high_surrogate;
    if (high != 0 && unit >= 0xdc00 && unit <= 0xdfff) {
        place->high_surrogate = 0;
        hash_character(place, 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00));
        return;
    }
    end_surrogate(place);
    if (unit >= 0xd800 && unit <= 0xdbff)
        place->high_surrogate = (uint16_t)unit;
    else
        hash_character(place, unit);
}

static uint32_t digit_of(uint8_t byte) {
    return byte <= '9' ? (uint32_t)byte - '0' : ((uint32_t)byte | 0x20) - 'a' + 10;
}

static uint8_t unescaped(uint8_t byte) {
    static const char letters[] = "bfnrt", characters[] = "\b\f\n\r\t";
    const char *at = byte != 0 ? strchr(letters, byte) : NULL;
    return at != NULL ? (uint8_t)characters[at - letters] : byte;
}

/* Returns whether the byte ends the string. */
static bool step_string(struct json_place *place, uint8_t byte) {
    if (place->num_digits > 0) {
        place->unit = (uint16_t)(place->unit << 4 | digit_of(byte));
        if (--place->num_digits == 0)
            add_unit(place, place->unit);
    } else if (place->is_escaped && byte == 'u') {
        place->is_escaped = false;
        place->num_digits = 4;
    } else if (byte == '\\' && !place->is_escaped) {
        place->is_escaped = true;
    } else {
        end_surrogate(place);
        if (byte == '"' && !place->is_escaped)
            return true;
        hash_byte(place, place->is_escaped ? unescaped(byte) : byte);
        place->is_escaped = false;
    }
    return false;
}

/* --- Objects and arrays --- */

static void push(struct object_names *names, bool is_object) {
    struct json_place *place = &names->place;
    names->frames[place->num_frames] =
        (struct json_frame){place->top, place->num_names, -1, is_object};
    place->top = place->num_frames++;
    place->expects_name = is_object;
}

static void pop(struct object_names *names, bool is_trial) {
    struct json_place *place = &names->place;
    const struct json_frame *frame = &names->frames[place->top];
    if (!is_trial) {
        place->num_frames = place->top;
        place->num_names = frame->first_name;
    }
    place->top = frame->parent;
    place->is_within = place->top >= 0;
    place->expects_name = false;
}

/* Returns whether the innermost object has the name that was read. */
static bool add_name(struct object_names *names, bool is_trial) {
    struct json_place *place = &names->place;
    struct json_frame *frame = &names->frames[place->top];
    for (int32_t i = frame->last_name; i >= 0; i = names->names[i].previous)
        if (names->names[i].hash == place->hash)
            return true;
    if (!is_trial && place->num_names >= OBJECT_NAMES_MAX)
        return false;
    if (is_trial) {
        names->frames[place->num_frames] = *frame;
        frame = &names->frames[place->num_frames];
        place->top = place->num_frames++;
    }
    names->names[place->num_names] = (struct json_name){place->hash, frame->last_name};
    frame->last_name = place->num_names++;
    return false;
}

/* Returns whether the byte ends a name that the object has. */
static bool step(struct object_names *names, uint8_t byte, bool is_trial) {
    struct json_place *place = &names->place;
    if (place->in_string) {
        place->in_string = !step_string(place, byte);
        return !place->in_string && place->is_name && add_name(names, is_trial);
    }
    switch (byte) {
    case '{':
    case '[':
        push(names, byte == '{');
        break;
    case '}':
    case ']':
        pop(names, is_trial);
        break;
    case ',':
        place->expects_name = names->frames[place->top].is_object;
        break;
    case '"':
        place->in_string = true;
        place->is_name = place->expects_name;
        place->expects_name = false;
        place->hash = FIRST_HASH;
        break;
    default:
        break;
    }
    return false;
}

void object_names_open(struct object_names *names) {
    names->place = (struct json_place){.is_within = true, .top = -1};
    push(names, true);
}

void object_names_step(struct object_names *names, uint8_t byte) {
    bool opens = !names->place.in_string && (byte == '{' || byte == '[');
    if (opens && names->place.num_frames == OBJECT_NAMES_MAX_DEPTH)
        names->place = (struct json_place){.is_within = false};
    else
        step(names, byte, false);
}

/* --- Masks --- */

static bool repeats(struct object_names *names, struct text piece) {
    const struct json_place place = names->place;
    bool found = false;
    for (size_t i = 0; i < piece.length && !found && names->place.is_within; i++)
        found = step(names, (uint8_t)piece.data[i], true);
    names->place = place;
    return found;
}

/* Returns how many quotes a token has at least that ends a name which its object has. */
static int min_quotes(const struct object_names *names) {
    const struct json_place *place = &names->place;
    if (place->in_string && place->is_name && names->frames[place->top].last_name >= 0)
        return 1;
    return place->num_names > 0 && !place->in_string ? 2 : 3;
}

static bool is_allowed(const uint32_t *mask, int32_t token) {
    return (mask[token / 32] >> (token % 32) & 1) != 0;
}

static void forbid(uint32_t *mask, int32_t token) {
    mask[token / 32] &= ~(UINT32_C(1) << (token % 32));
}

static int forbid_repeated(struct grammar_state *state, uint32_t *mask) {
    const struct grammar_vocabulary *vocabulary = state->vocabulary;
    int32_t count = vocabulary->num_quoted[min_quotes(&state->names) - 1];
    for (int32_t i = 0; i < count; i++) {
        int32_t token = vocabulary->quoted[i];
        struct text piece = tokenizer_piece(vocabulary->tokenizer, token);
        if (!is_allowed(mask, token))
            continue;
        if (object_names_reserve(&state->names, piece.length) != 0)
            return -1;
        if (repeats(&state->names, piece))
            forbid(mask, token);
    }
    return 0;
}

/* --- Names that can only become ones that the object has --- */

struct name_search {
    struct grammar_machine *machine;
    struct object_names *names;
    uint32_t num_sweeps; /* when it began: after another one its sets are gone */
    int32_t steps_left;
    int64_t max_work;       /* of the machine's: no further */
    int32_t path[MAX_PATH]; /* the sets on the path of the search */
    int num_on_path;
    bool has_failed;
};

static bool can_become_new(struct name_search *s, int32_t set);

/* Returns whether there are infinitely many names by way of the set, or no room to find out. */
static bool is_endless(const struct name_search *s, int32_t set) {
    for (int i = 0; i < s->num_on_path; i++)
        if (s->path[i] == set)
            return true;
    return s->num_on_path == MAX_PATH;
}

/* Returns whether a name that continues with the byte can become one that its object does not have.
 */
static bool is_new_by(struct name_search *s, int32_t set, uint8_t byte) {
    const struct json_place place = s->names->place;
    int32_t to = grammar_machine_step(s->machine, set, byte);
    s->has_failed = s->has_failed || to < 0;
    if (to < 0 || s->machine->num_sweeps != s->num_sweeps)
        return true;
    if (to == PARSE_SET_EMPTY)
        return false;
    if (s->steps_left-- == 0 || s->machine->work > s->max_work)
        return true;
    bool is_known = step(s->names, byte, true);
    bool is_new = !is_known && (!s->names->place.in_string || can_become_new(s, to));
    s->names->place = place;
    return is_new;
}

/* The set is within a name. Ending it now is what mostly makes a new one. */
static bool can_become_new(struct name_search *s, int32_t set) {
    if (is_endless(s, set))
        return true;
    bool is_new = false;
    s->path[s->num_on_path++] = set;
    for (int i = 0; i < 256 && !is_new; i++)
        is_new = s->steps_left < 0 || is_new_by(s, set, (uint8_t)('"' + i));
    s->num_on_path--;
    return is_new;
}

/* Returns whether the token ends within a name that can become no new one. */
static bool is_dead_end(struct name_search *s, int32_t set, struct text piece) {
    const struct json_place place = s->names->place;
    for (size_t i = 0; i < piece.length && set > PARSE_SET_EMPTY && s->names->place.is_within;
         i++) {
        set = grammar_machine_step(s->machine, set, (uint8_t)piece.data[i]);
        step(s->names, (uint8_t)piece.data[i], true);
    }
    const struct json_place *at = &s->names->place;
    s->has_failed = s->has_failed || set < 0;
    bool in_name = at->is_within && at->in_string && at->is_name;
    bool result = set > PARSE_SET_EMPTY && in_name && s->machine->num_sweeps == s->num_sweeps &&
                  s->names->frames[at->top].last_name >= 0 && !can_become_new(s, set);
    s->names->place = place;
    return result;
}

/* Of a search that a sweep ended there is another one, which has the whole cache; of one that needs
 * more than that it is not known that it is a dead end. */
static bool ends_dead(struct name_search *s, const struct grammar_state *state, struct text piece) {
    bool is_dead = false, is_swept = true;
    for (int i = 0; i < 2 && is_swept && !s->has_failed; i++) {
        s->num_sweeps = s->machine->num_sweeps;
        s->num_on_path = 0;
        is_dead = is_dead_end(s, state->set, piece);
        is_swept = s->machine->num_sweeps != s->num_sweeps;
    }
    s->steps_left = s->steps_left > 0 ? s->steps_left : 0;
    return is_dead;
}

/* Stops where there are more. */
static int32_t count_tokens(const uint32_t *mask, int32_t num_words, int32_t most) {
    int32_t count = 0;
    for (int32_t i = 0; i < num_words && count <= most; i++)
        count += __builtin_popcount(mask[i]);
    return count;
}

/* Follows the first possible character of a name from the set on, as long as there is one. Returns
 * the number of bytes; 0: there is no end of them, or the name cannot continue. */
static size_t bytes_left(struct name_search *s, int32_t set) {
    size_t count = 0;
    for (s->num_on_path = 0; !is_endless(s, set); count++) {
        int32_t to = PARSE_SET_EMPTY;
        for (int byte = ' '; byte < 0x7f && to == PARSE_SET_EMPTY; byte++)
            if (byte != '"' && byte != '\\')
                to = grammar_machine_step(s->machine, set, (uint8_t)byte);
        if (to <= PARSE_SET_EMPTY)
            return to == PARSE_SET_EMPTY ? count : 0;
        s->path[s->num_on_path++] = set;
        set = to;
    }
    return 0;
}

static size_t min_bytes_of(size_t num_left) {
    return num_left > SHORT_NAME ? num_left : num_left > 0;
}

/* Where many tokens may come, there are many names, but one that is as long as names may be is a
 * dead end if the object has it. Returns how long tokens are that may lead to one; 0: none can. */
static size_t min_bytes(struct name_search *s, const struct grammar_state *state) {
    const struct json_place *place = &state->names.place;
    if (place->in_string)
        return place->is_name ? min_bytes_of(bytes_left(s, state->set)) : 0;
    int32_t set = place->expects_name ? grammar_machine_step(s->machine, state->set, '"') : -1;
    size_t count = set > PARSE_SET_EMPTY ? min_bytes_of(bytes_left(s, set)) : 0;
    return count > 0 ? 1 + count : 0; /* with the quote */
}

/* Where each token is a dead end, none is forbidden. */
static int forbid_dead_ends(struct grammar_state *state, uint32_t *mask) {
    const struct grammar_vocabulary *v = state->vocabulary;
    struct grammar_machine *machine = state->grammar->machine;
    int32_t num_words = (v->vocab_size + 31) / 32;
    int32_t count = count_tokens(mask, num_words, MAX_CHECKED);
    int32_t dead[MAX_CHECKED], num_dead = 0;
    struct name_search search = {.machine = machine,
                                 .names = &state->names,
                                 .steps_left = MAX_STEPS,
                                 .max_work = machine->work + MAX_WORK};
    if (state->names.place.num_names == 0)
        return 0;
    size_t least = count > MAX_CHECKED ? min_bytes(&search, state) : 1;
    for (int32_t i = 0; i < num_words && least > 0; i++) {
        for (uint32_t word = mask[i]; word != 0; word &= word - 1) {
            int32_t token = i * 32 + __builtin_ctz(word);
            if (!grammar_vocabulary_has_text(v->tokenizer, token))
                continue;
            struct text piece = tokenizer_piece(v->tokenizer, token);
            if (piece.length < least || num_dead == MAX_CHECKED)
                continue;
            if (object_names_reserve(&state->names, piece.length + 1) != 0)
                return -1;
            if (ends_dead(&search, state, piece))
                dead[num_dead++] = token;
            if (search.has_failed)
                return -1;
        }
    }
    for (int32_t i = 0; i < num_dead && num_dead < count; i++)
        forbid(mask, dead[i]);
    return 0;
}

/* A search may sweep the found mask away. */
int object_names_forbid(struct grammar_state *state, const uint32_t *found, uint32_t *mask) {
    int32_t num_words = (state->vocabulary->vocab_size + 31) / 32;
    memcpy(mask, found, (size_t)num_words * sizeof(*mask));
    if (forbid_repeated(state, mask) != 0)
        return -1;
    if (count_tokens(mask, num_words, 0) == 0)
        memcpy(mask, found, (size_t)num_words * sizeof(*mask));
    return forbid_dead_ends(state, mask);
}
