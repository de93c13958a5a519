/* How threads that work in lockstep wait for one another's stores: they first spin for as long as
 * the gaps within a step last, then sleep on the word that they wait for (a futex sleep and wake
 * costs about 30 us, an observed store about 0.2 us).
 *
 * A side that goes to sleep first announces it, then checks the word once more. The other side
 * first changes the word, then checks for sleepers. As all four accesses are sequentially
 * consistent, one of the two always sees the other, and no wake-up is lost. */
#ifndef QUIRE_KERNELS_SPIN_WAIT_H
#define QUIRE_KERNELS_SPIN_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Use it for at most as many threads as there are cores (cores_available): otherwise spinning only
 * takes time from the thread being waited for. */
#define SPIN_WAIT_NS 40000

/* Returns whether done(word, value) became true within spin_ns. */
bool spin_wait_until(atomic_uint *word, bool (*done)(unsigned now, unsigned value), unsigned value,
                     int64_t spin_ns);
bool spin_wait_differs(unsigned now, unsigned value);
bool spin_wait_equals(unsigned now, unsigned value);

/* Sleeps until woken, possibly spuriously; returns at once when the word is not `expected`. */
void spin_wait_sleep(atomic_uint *word, unsigned expected);
void spin_wait_wake_all(atomic_uint *word);

#endif
