/* A slot's ticket says that it wants the turn, from before it waits until it gives the turn. The
 * turn names a slot and that slot's ticket. It is free if the slot no longer has this ticket, and
 * stays free until it is changed, because no ticket is used twice. So the turn is given by clearing
 * the ticket, which is one store.
 *
 * Whoever sets or clears a ticket then hands the turn on: if it is free, it goes to the slot that
 * has had the shortest time, and of several to the lowest ticket. All accesses are sequentially
 * consistent. So of several that do this at the same time, the last one sees the tickets of all.
 * One that is killed before that is made up for by the next that looks: the engine's process, or a
 * process that waits. */
#include "engine/executor/step_turns.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "engine/executor/rank_message.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared by processes");

struct turn_slot {
    atomic_uint_least64_t ticket; /* 0: does not want the turn */
    atomic_int_least64_t time_ns; /* had the turn for, or as if it had; no sum of real times */
    atomic_uint num_calls;        /* a futex: the slot was given the turn */
};

/* Zeros at first. */
struct shared_turns {
    atomic_uint_least64_t num_tickets;
    atomic_uint_least64_t turn;   /* see turn_of; 0: free */
    atomic_int_least64_t time_ns; /* of the slot whose turn it is or was, when it took it */
    struct turn_slot slots[STEP_TURNS_MAX_SLOTS];
};

struct step_turns {
    struct shared_turns *shared;
    int fd;                          /* -1: of another process */
    atomic_uint_least64_t used_bits; /* slots that were added */
};

static uint64_t turn_of(int32_t slot, uint64_t ticket) {
    return ticket * STEP_TURNS_MAX_SLOTS + (uint64_t)slot;
}

static bool is_free(const struct shared_turns *shared, uint64_t turn) {
    uint64_t ticket = turn / STEP_TURNS_MAX_SLOTS;
    return ticket == 0 || atomic_load(&shared->slots[turn % STEP_TURNS_MAX_SLOTS].ticket) != ticket;
}

static int64_t slice_of(int64_t time_ns) {
    return time_ns / STEP_TURNS_SLICE_NS;
}

/* Returns the turn that comes next; 0: nobody wants it. */
static uint64_t next_turn(const struct shared_turns *shared) {
    uint64_t lowest = UINT64_MAX, next = 0;
    int64_t earliest = INT64_MAX;
    for (int32_t i = 0; i < STEP_TURNS_MAX_SLOTS; i++) {
        uint64_t ticket = atomic_load(&shared->slots[i].ticket);
        int64_t slice = slice_of(atomic_load(&shared->slots[i].time_ns));
        if (ticket == 0 || slice > earliest || (slice == earliest && ticket >= lowest))
            continue;
        earliest = slice;
        lowest = ticket;
        next = turn_of(i, ticket);
    }
    return next;
}

/* The time never goes back, for which several may set it at once. */
static void advance(struct shared_turns *shared, int64_t time_ns) {
    int64_t now = atomic_load(&shared->time_ns);
    while (now < time_ns && !atomic_compare_exchange_weak(&shared->time_ns, &now, time_ns))
        ;
}

static void call(struct turn_slot *slot) {
    atomic_fetch_add(&slot->num_calls, 1);
    syscall(SYS_futex, &slot->num_calls, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The process of the next turn may end, and its ticket be cleared, before the turn is its own. */
static void hand_on(struct shared_turns *shared, int32_t own_slot) {
    uint64_t now = atomic_load(&shared->turn), next;
    while (is_free(shared, now) && (next = next_turn(shared)) != 0) {
        if (!atomic_compare_exchange_strong(&shared->turn, &now, next))
            continue;
        now = next;
        int32_t slot = (int32_t)(next % STEP_TURNS_MAX_SLOTS);
        advance(shared, atomic_load(&shared->slots[slot].time_ns));
        if (slot != own_slot)
            call(&shared->slots[slot]);
    }
}

void step_turns_take(struct step_turns *turns, int32_t slot) {
    const struct timespec look = {.tv_nsec = STEP_TURNS_LOOK_MS * CLOCK_NS_PER_MS};
    struct shared_turns *shared = turns->shared;
    struct turn_slot *own = &shared->slots[slot];
    uint64_t ticket = atomic_fetch_add(&shared->num_tickets, 1) + 1;
    CHECK(atomic_load(&own->ticket) == 0);
    int64_t time_ns = atomic_load(&shared->time_ns);
    if (atomic_load(&own->time_ns) < time_ns)
        atomic_store(&own->time_ns, time_ns);
    atomic_store(&own->ticket, ticket);
    for (;;) {
        unsigned num_calls = atomic_load(&own->num_calls);
        hand_on(shared, slot);
        if (atomic_load(&shared->turn) == turn_of(slot, ticket))
            return;
        syscall(SYS_futex, &own->num_calls, FUTEX_WAIT, num_calls, &look, NULL, 0);
    }
}

bool step_turns_is_over(const struct step_turns *turns, int32_t slot, int64_t used_ns) {
    const struct turn_slot *slots = turns->shared->slots;
    int64_t slice = slice_of(atomic_load(&slots[slot].time_ns) + used_ns);
    for (int32_t i = 0; i < STEP_TURNS_MAX_SLOTS; i++)
        if (i != slot && atomic_load(&slots[i].ticket) != 0 &&
            slice_of(atomic_load(&slots[i].time_ns)) < slice)
            return true;
    return false;
}

void step_turns_give(struct step_turns *turns, int32_t slot, int64_t used_ns) {
    struct turn_slot *own = &turns->shared->slots[slot];
    atomic_fetch_add(&own->time_ns, used_ns);
    atomic_store(&own->ticket, 0);
    hand_on(turns->shared, slot);
}

bool step_turns_is_waiting(const struct step_turns *turns, int32_t slot) {
    uint64_t ticket = atomic_load(&turns->shared->slots[slot].ticket);
    return ticket != 0 && atomic_load(&turns->shared->turn) != turn_of(slot, ticket);
}

int32_t step_turns_add(struct step_turns *turns, struct error *err) {
    for (int32_t slot = 0; slot < STEP_TURNS_MAX_SLOTS; slot++) {
        uint64_t bit = (uint64_t)1 << slot;
        if ((atomic_fetch_or(&turns->used_bits, bit) & bit) != 0)
            continue;
        atomic_store(&turns->shared->slots[slot].time_ns, 0);
        return slot;
    }
    return error_set(err, ERROR_CONFIG, "at most %d rank processes can share the cores",
                     STEP_TURNS_MAX_SLOTS);
}

void step_turns_remove(struct step_turns *turns, int32_t slot) {
    CHECK(atomic_load(&turns->shared->slots[slot].ticket) == 0);
    atomic_fetch_and(&turns->used_bits, ~((uint64_t)1 << slot));
}

/* --- The memory --- */

static int create_file(void) {
    int fd = memfd_create("quire-turns", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, RANK_MIN_FD);
    close(fd);
    if (high < 0 || (ftruncate(high, sizeof(struct shared_turns)) == 0 &&
                     fcntl(high, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0))
        return high;
    close(high);
    return -1;
}

struct step_turns *step_turns_open(int fd, struct error *err) {
    struct step_turns *turns = calloc(1, sizeof(*turns));
    struct stat status = {0};
    void *memory = MAP_FAILED;
    if (turns != NULL && fstat(fd, &status) == 0 && status.st_size == sizeof(struct shared_turns))
        memory = mmap(NULL, sizeof(struct shared_turns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        error_set(err, ERROR_IO, "memory of the turns: %s", strerror(errno));
        free(turns);
        return NULL;
    }
    turns->shared = memory;
    turns->fd = -1;
    return turns;
}

struct step_turns *step_turns_create(struct error *err) {
    int fd = create_file();
    if (fd < 0) {
        error_set(err, ERROR_IO, "memory of the turns: %s", strerror(errno));
        return NULL;
    }
    struct step_turns *turns = step_turns_open(fd, err);
    if (turns != NULL)
        turns->fd = fd;
    else
        close(fd);
    return turns;
}

void step_turns_destroy(struct step_turns *turns) {
    if (turns == NULL)
        return;
    CHECK(atomic_load(&turns->used_bits) == 0);
    munmap(turns->shared, sizeof(*turns->shared));
    if (turns->fd >= 0)
        close(turns->fd);
    free(turns);
}

int step_turns_fd(const struct step_turns *turns) {
    return turns->fd;
}
