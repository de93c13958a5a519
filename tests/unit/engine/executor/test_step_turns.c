/* Turns of processes and threads: their order, and that none is lost with a process, wherever that
 * is when it is killed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/executor/rank_message.h"
#include "engine/executor/step_turns.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NUM_SLOTS = 3, NUM_TURNS = 300, NUM_KILLS = 200 };
#define MAX_INSTRUCTIONS 3000 /* two turns have about 1700, or many times that with a sanitizer */

/* Shared by all processes. */
struct shared_log {
    atomic_int holder; /* 0: nobody; else the slot + 1 */
    atomic_bool is_broken;
    atomic_int num_turns[STEP_TURNS_MAX_SLOTS];
    atomic_int length;
    int order[NUM_TURNS];
};

struct fixture {
    struct step_turns *turns;
    struct shared_log *log;
};

static struct fixture start(int num_slots) {
    struct error err = {0};
    struct fixture f = {.turns = step_turns_create(&err)};
    if (f.turns == NULL)
        fail_msg("%s", err.message);
    f.log = mmap(NULL, sizeof(*f.log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f.log, MAP_FAILED);
    for (int i = 0; i < num_slots; i++)
        assert_int_equal(step_turns_add(f.turns, &err), i);
    return f;
}

static void finish(struct fixture *f, int num_slots) {
    assert_false(atomic_load(&f->log->is_broken));
    for (int i = 0; i < num_slots; i++)
        step_turns_remove(f->turns, i);
    step_turns_destroy(f->turns);
    munmap(f->log, sizeof(*f->log));
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void await_waiting(const struct fixture *f, int slot) {
    while (!step_turns_is_waiting(f->turns, slot))
        nap();
}

static void enter(const struct fixture *f, int slot) {
    step_turns_take(f->turns, slot);
    if (atomic_exchange(&f->log->holder, slot + 1) != 0)
        atomic_store(&f->log->is_broken, true);
}

static void leave(const struct fixture *f, int slot) {
    atomic_fetch_add(&f->log->num_turns[slot], 1);
    if (atomic_exchange(&f->log->holder, 0) != slot + 1)
        atomic_store(&f->log->is_broken, true);
    step_turns_give(f->turns, slot, 0);
}

/* --- Those that take turns: threads of this process, or other processes --- */

struct taker {
    const struct fixture *fixture;
    int slot;
    void (*run)(const struct fixture *f, int slot);
    pthread_t thread;
    pid_t pid;
};

static void *run_thread(void *argument) {
    const struct taker *taker = argument;
    taker->run(taker->fixture, taker->slot);
    return NULL;
}

static void begin_thread(struct taker *taker) {
    assert_int_equal(pthread_create(&taker->thread, NULL, run_thread, taker), 0);
}

static void end_thread(struct taker *taker) {
    assert_int_equal(pthread_join(taker->thread, NULL), 0);
}

/* The turns are mapped once more, as a rank process does. */
static void begin_process(struct taker *taker) {
    if ((taker->pid = fork()) != 0) {
        assert_true(taker->pid > 0);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct fixture f = {.turns = step_turns_open(step_turns_fd(taker->fixture->turns), NULL),
                        .log = taker->fixture->log};
    if (f.turns == NULL)
        _exit(1);
    taker->run(&f, taker->slot);
    _exit(0);
}

static void end_process(struct taker *taker) {
    int status;
    assert_int_equal(waitpid(taker->pid, &status, 0), taker->pid);
    assert_int_equal(status, 0);
}

static const struct taker_kind {
    void (*begin)(struct taker *taker);
    void (*end)(struct taker *taker);
} kinds[] = {{begin_thread, end_thread}, {begin_process, end_process}};

/* --- Order --- */

static void test_one_alone(void **state) {
    struct fixture f = start(1);
    for (int i = 0; i < NUM_TURNS; i++) {
        assert_false(step_turns_is_waiting(f.turns, 0));
        enter(&f, 0);
        assert_false(step_turns_is_waiting(f.turns, 0));
        leave(&f, 0);
    }
    finish(&f, 1);
}

/* Holds each turn until all others want it. */
static void take_until_full(const struct fixture *f, int slot) {
    struct shared_log *log = f->log;
    for (bool is_full = false; !is_full;) {
        enter(f, slot);
        is_full = atomic_load(&log->length) == NUM_TURNS;
        for (int i = 0; i < NUM_SLOTS && !is_full; i++)
            if (i != slot)
                await_waiting(f, i);
        if (!is_full)
            log->order[atomic_fetch_add(&log->length, 1)] = slot;
        leave(f, slot);
    }
}

static void test_all_that_always_want_it_alternate(void **state) {
    for (int k = 0; k < 2; k++) {
        struct fixture f = start(NUM_SLOTS);
        struct taker takers[NUM_SLOTS];
        for (int i = 0; i < NUM_SLOTS; i++) {
            takers[i] = (struct taker){.fixture = &f, .slot = i, .run = take_until_full};
            kinds[k].begin(&takers[i]);
        }
        for (int i = 0; i < NUM_SLOTS; i++)
            kinds[k].end(&takers[i]);
        for (int i = 0; i < NUM_SLOTS; i++)
            for (int j = 0; j < i; j++)
                assert_int_not_equal(f.log->order[i], f.log->order[j]);
        for (int i = NUM_SLOTS; i < NUM_TURNS; i++)
            assert_int_equal(f.log->order[i], f.log->order[i - NUM_SLOTS]);
        finish(&f, NUM_SLOTS);
    }
}

static void take_and_keep(const struct fixture *f, int slot) {
    step_turns_take(f->turns, slot);
}

static void take_once(const struct fixture *f, int slot) {
    enter(f, slot);
    f->log->order[atomic_fetch_add(&f->log->length, 1)] = slot;
    leave(f, slot);
}

static void test_the_order_is_that_of_the_requests(void **state) {
    static const int order[] = {2, 0, 3, 1};
    for (int k = 0; k < 2; k++) {
        struct fixture f = start(5);
        struct taker takers[4];
        enter(&f, 4);
        for (int i = 0; i < 4; i++) {
            takers[i] = (struct taker){.fixture = &f, .slot = order[i], .run = take_once};
            kinds[k].begin(&takers[i]);
            await_waiting(&f, order[i]);
        }
        assert_false(step_turns_is_waiting(f.turns, 4));
        leave(&f, 4);
        for (int i = 0; i < 4; i++)
            kinds[k].end(&takers[i]);
        assert_memory_equal(f.log->order, order, sizeof(order));
        finish(&f, 5);
    }
}

enum { LONG_SLICES = 15, NUM_LONG = 10 };

/* A slot with long turns beside one with short ones, which comes later: both always want the turn
 * then. */
static void test_time_is_shared(void **state) {
    struct fixture f = start(3);
    const int64_t slice = STEP_TURNS_SLICE_NS;
    int num_short = 0;
    step_turns_take(f.turns, 0);
    assert_false(step_turns_is_over(f.turns, 0, 1000 * slice)); /* nobody waits */
    step_turns_give(f.turns, 0, 1000 * slice);
    step_turns_take(f.turns, 0); /* its time is 1000 slices */
    for (int i = 0; i < NUM_LONG; i++) {
        struct taker other = {.fixture = &f, .slot = 1, .run = take_and_keep};
        begin_thread(&other);
        await_waiting(&f, 1);
        assert_false(step_turns_is_over(f.turns, 0, 0));
        assert_true(step_turns_is_over(f.turns, 0, LONG_SLICES * slice));
        step_turns_give(f.turns, 0, LONG_SLICES * slice);
        end_thread(&other);
        struct taker first = {.fixture = &f, .slot = 0, .run = take_and_keep};
        begin_thread(&first);
        await_waiting(&f, 0);
        int64_t used_ns = 0;
        for (; !step_turns_is_over(f.turns, 1, used_ns); used_ns += slice / 4)
            num_short++;
        step_turns_give(f.turns, 1, used_ns);
        end_thread(&first);
    }
    step_turns_give(f.turns, 0, 0);
    /* A slice more than the other one had; nothing for the 1000 before it came. */
    assert_int_equal(num_short, 4 * (NUM_LONG * LONG_SLICES + 1));
    finish(&f, 3);
}

/* --- Processes that are killed --- */

static void take_and_stay(const struct fixture *f, int slot) {
    enter(f, slot);
    for (;;)
        pause();
}

static void take_forever(const struct fixture *f, int slot) {
    for (;;) {
        enter(f, slot);
        leave(f, slot);
    }
}

static void be_traced_and_take_forever(const struct fixture *f, int slot) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    take_forever(f, slot);
}

/* As the engine's process does. */
static void kill_taker(struct fixture *f, struct taker *taker) {
    int status, holder = taker->slot + 1;
    kill(taker->pid, SIGKILL);
    do
        assert_int_equal(waitpid(taker->pid, &status, 0), taker->pid);
    while (!WIFSIGNALED(status));
    atomic_compare_exchange_strong(&f->log->holder, &holder, 0);
    step_turns_give(f->turns, taker->slot, 0);
    assert_false(step_turns_is_waiting(f->turns, taker->slot));
}

static void test_who_waits_for_one_that_is_killed(void **state) {
    struct fixture f = start(3);
    struct taker takers[3];
    for (int i = 0; i < 3; i++) {
        takers[i] =
            (struct taker){.fixture = &f, .slot = i, .run = i == 0 ? take_and_stay : take_once};
        begin_process(&takers[i]);
        while (i == 0 && atomic_load(&f.log->holder) == 0)
            nap();
        if (i > 0)
            await_waiting(&f, i);
    }
    kill_taker(&f, &takers[1]); /* while it waits */
    assert_true(step_turns_is_waiting(f.turns, 2));
    kill_taker(&f, &takers[0]); /* in its turn */
    end_process(&takers[2]);
    assert_int_equal(atomic_load(&f.log->length), 1);
    finish(&f, 3);
}

static void test_one_that_is_stopped_while_it_waits(void **state) {
    struct fixture f = start(2);
    struct taker taker = {.fixture = &f, .slot = 1, .run = take_once};
    int status;
    enter(&f, 0);
    begin_process(&taker);
    await_waiting(&f, 1);
    kill(taker.pid, SIGSTOP);
    assert_int_equal(waitpid(taker.pid, &status, WUNTRACED), taker.pid);
    assert_true(step_turns_is_waiting(f.turns, 1));
    leave(&f, 0);
    assert_false(step_turns_is_waiting(f.turns, 1)); /* it is its turn */
    kill_taker(&f, &taker);
    enter(&f, 0);
    leave(&f, 0);
    finish(&f, 2);
}

/* Runs at most this many instructions of the process, and returns how many it ran until it had a
 * number of turns. Where the system does not allow that, it stays at its beginning. */
static long run_instructions(const struct fixture *f, const struct taker *taker, long most,
                             int num_turns) {
    int status;
    long count = 0;
    assert_int_equal(waitpid(taker->pid, &status, WUNTRACED), taker->pid);
    while (count < most && atomic_load(&f->log->num_turns[taker->slot]) < num_turns &&
           ptrace(PTRACE_SINGLESTEP, taker->pid, NULL, NULL) == 0) {
        assert_int_equal(waitpid(taker->pid, &status, 0), taker->pid);
        count++;
    }
    return count;
}

enum place { WAITING, HOLDING, AT_ANY_INSTRUCTION, NUM_PLACES };

/* Starts another one, and kills it in this place while the others take turns. */
static void kill_one(struct fixture *f, enum place place, long num_instructions) {
    struct error err;
    int32_t slot = step_turns_add(f->turns, &err);
    struct taker taker = {.fixture = f,
                          .slot = slot,
                          .run = place == WAITING   ? take_forever
                                 : place == HOLDING ? take_and_stay
                                                    : be_traced_and_take_forever};
    begin_process(&taker);
    if (place == WAITING)
        while (!step_turns_is_waiting(f->turns, slot))
            ; /* for an instant */
    else if (place == HOLDING)
        while (atomic_load(&f->log->holder) != slot + 1)
            nap();
    else
        run_instructions(f, &taker, num_instructions, INT32_MAX);
    kill_taker(f, &taker);
    step_turns_remove(f->turns, slot);
}

static void await_turns_of_all(const struct fixture *f) {
    for (int i = 0; i < NUM_SLOTS; i++) {
        int now = atomic_load(&f->log->num_turns[i]);
        while (atomic_load(&f->log->num_turns[i]) < now + 2)
            nap();
    }
}

static void test_no_turn_is_lost_with_one_that_is_killed(void **state) {
    struct fixture f = start(NUM_SLOTS);
    struct taker takers[NUM_SLOTS];
    int num_left[NUM_PLACES] = {NUM_KILLS, NUM_KILLS, NUM_KILLS};
    takers[0] = (struct taker){.fixture = &f, .slot = 0, .run = be_traced_and_take_forever};
    begin_process(&takers[0]);
    long num_instructions = run_instructions(&f, &takers[0], MAX_INSTRUCTIONS, 2);
    kill_taker(&f, &takers[0]);
    for (int i = 0; i < NUM_SLOTS; i++) {
        takers[i] = (struct taker){.fixture = &f, .slot = i, .run = take_forever};
        begin_process(&takers[i]);
    }
    srand(7);
    for (int left = NUM_PLACES * NUM_KILLS; left > 0; left--) {
        int place = rand() % NUM_PLACES;
        while (num_left[place] == 0)
            place = (place + 1) % NUM_PLACES;
        num_left[place]--;
        kill_one(&f, (enum place)place, rand() % (num_instructions + 1));
        await_turns_of_all(&f);
    }
    for (int i = 0; i < NUM_SLOTS; i++)
        kill_taker(&f, &takers[i]);
    assert_int_equal(atomic_load(&f.log->holder), 0);
    enter(&f, 0);
    leave(&f, 0);
    finish(&f, NUM_SLOTS);
}

/* --- Slots and memory --- */

static void test_slots(void **state) {
    struct fixture f = start(STEP_TURNS_MAX_SLOTS);
    struct error err = {0};
    assert_int_equal(step_turns_add(f.turns, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    enter(&f, 63);
    leave(&f, 63);
    step_turns_remove(f.turns, 17);
    assert_int_equal(step_turns_add(f.turns, &err), 17);
    finish(&f, STEP_TURNS_MAX_SLOTS);
    step_turns_destroy(NULL);
}

static void test_memory_of_others(void **state) {
    struct fixture f = start(0);
    struct error err = {0};
    assert_true(step_turns_fd(f.turns) >= RANK_MIN_FD);
    assert_int_equal(ftruncate(step_turns_fd(f.turns), 0), -1); /* which would end all others */
    assert_null(step_turns_open(-1, &err));
    assert_int_equal(err.code, ERROR_IO);
    int other = memfd_create("other", MFD_CLOEXEC);
    assert_null(step_turns_open(other, &err));
    close(other);
    finish(&f, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_alone),
        cmocka_unit_test(test_all_that_always_want_it_alternate),
        cmocka_unit_test(test_the_order_is_that_of_the_requests),
        cmocka_unit_test(test_time_is_shared),
        cmocka_unit_test(test_who_waits_for_one_that_is_killed),
        cmocka_unit_test(test_one_that_is_stopped_while_it_waits),
        cmocka_unit_test(test_no_turn_is_lost_with_one_that_is_killed),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_memory_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
