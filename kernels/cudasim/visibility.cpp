#include "visibility.h"

#include "block.h"
#include "device_memory.h"
#include "fatal.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

namespace cudasim {

struct visible_memory {
    device *dev; /* NULL: no grid runs so */
    pthread_t thread;
    struct sigaction fault_action_before;
    block_view *running;                    /* NULL: memory is what all share */
    std::vector<block_view *> entered;      /* that have not ended */
    std::set<uintptr_t> open;               /* pages that the running block can write */
    std::map<uintptr_t, page> shared;       /* of pages that were open once, what all share */
    std::map<uintptr_t, stored_page> ended; /* stores of blocks that have ended, and never fenced */
};

/* Created by the first call, never destroyed. */
static visible_memory &the_memory() {
    static visible_memory *const memory = new visible_memory();
    return *memory;
}

static char *at(uintptr_t address) {
    return reinterpret_cast<char *>(address);
}

/* Pages are copied whole, though AddressSanitizer guards a part that is nobody's. */
__attribute__((no_sanitize_address)) static void copy_bytes(char *to, const char *from,
                                                            size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t))
        *reinterpret_cast<volatile uint64_t *>(to + i) =
            *reinterpret_cast<const volatile uint64_t *>(from + i);
}

__attribute__((no_sanitize_address)) static bool are_equal(const char *a, const char *b,
                                                           size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t))
        if (*reinterpret_cast<const volatile uint64_t *>(a + i) !=
            *reinterpret_cast<const volatile uint64_t *>(b + i))
            return false;
    return true;
}

static page copy_of(uintptr_t address) {
    page copy(page_bytes());
    copy_bytes(copy.data(), at(address), copy.size());
    return copy;
}

static void set_page(uintptr_t address, const page &bytes) {
    if (!are_equal(at(address), bytes.data(), bytes.size()))
        copy_bytes(at(address), bytes.data(), bytes.size());
}

static void set_access(uintptr_t address, int protection) {
    if (mprotect(at(address), page_bytes(), protection) != 0)
        fatal("cannot change the access to a page of device memory");
}

static void lay_over(page *io_bytes, const stored_page &own) {
    for (size_t i = 0; i < io_bytes->size(); i++)
        if (own.is_stored[i])
            (*io_bytes)[i] = own.values[i];
}

/* As the block sees it, but for what it stored since it was entered or fenced. */
static page view_of(const block_view &view, uintptr_t address) {
    auto stale = view.stale.find(address);
    page bytes = stale != view.stale.end() ? stale->second : the_memory().shared.at(address);
    auto own = view.stores.find(address);
    if (own != view.stores.end())
        lay_over(&bytes, own->second);
    return bytes;
}

static void open_page(uintptr_t address) {
    visible_memory &memory = the_memory();
    if (!memory.open.insert(address).second)
        return;
    set_access(address, PROT_READ | PROT_WRITE);
    if (memory.shared.count(address) == 0)
        memory.shared[address] = copy_of(address);
}

static stored_page &stores_to(std::map<uintptr_t, stored_page> *stores, uintptr_t address) {
    stored_page &own = (*stores)[address];
    own.values.resize(page_bytes());
    own.is_stored.resize(page_bytes());
    return own;
}

/* Finds what the running block stored. */
static void collect_stores() {
    visible_memory &memory = the_memory();
    for (uintptr_t address : memory.open) {
        page before = view_of(*memory.running, address), now = copy_of(address);
        if (before == now)
            continue;
        stored_page &own = stores_to(&memory.running->stores, address);
        for (size_t i = 0; i < now.size(); i++)
            if (now[i] != before[i])
                own.values[i] = now[i], own.is_stored[i] = true;
    }
}

/* Before what all share changes: the others go on seeing it as it is. */
static void keep_for_others(uintptr_t address) {
    visible_memory &memory = the_memory();
    for (block_view *view : memory.entered)
        if (view != memory.running)
            view->stale.try_emplace(address, memory.shared.at(address));
}

static void publish_stores(block_view *view) {
    visible_memory &memory = the_memory();
    collect_stores();
    for (const auto &[address, own] : view->stores) {
        keep_for_others(address);
        lay_over(&memory.shared.at(address), own);
    }
    view->stores.clear();
    for (const auto &entry : view->stale)
        set_page(entry.first, memory.shared.at(entry.first));
    view->stale.clear();
}

/* Its name for QUIRE_CUDASIM_SKIP says what it is for: after an atomic it lets the block see what
 * others published before theirs. */
void fence() {
    visible_memory &memory = the_memory();
    thread_state *self = running_thread();
    const char *name = self->has_counted ? "__threadfence acquire" : "__threadfence release";
    self->has_counted = false;
    if (!is_skipped(*memory.dev, name))
        publish_stores(memory.running);
    pass_switch_point(switch_point::fence);
}

void enter_view(block_view *view) {
    visible_memory &memory = the_memory();
    memory.running = view;
    if (std::find(memory.entered.begin(), memory.entered.end(), view) == memory.entered.end())
        memory.entered.push_back(view);
    std::set<uintptr_t> differing;
    for (const auto &entry : view->stores)
        differing.insert(entry.first);
    for (const auto &entry : view->stale)
        differing.insert(entry.first);
    for (uintptr_t address : differing) {
        open_page(address);
        set_page(address, view_of(*view, address));
    }
}

static void end_view(block_view *view) {
    visible_memory &memory = the_memory();
    for (const auto &[address, own] : view->stores) {
        stored_page &all = stores_to(&memory.ended, address);
        lay_over(&all.values, own);
        for (size_t i = 0; i < own.is_stored.size(); i++)
            all.is_stored[i] |= own.is_stored[i];
    }
    *view = {};
    memory.entered.erase(std::find(memory.entered.begin(), memory.entered.end(), view));
}

void leave_view(bool ends) {
    visible_memory &memory = the_memory();
    collect_stores();
    for (uintptr_t address : memory.open) {
        set_page(address, memory.shared.at(address));
        set_access(address, PROT_READ);
    }
    memory.open.clear();
    if (ends)
        end_view(memory.running);
    memory.running = nullptr;
}

static uintptr_t page_at(const void *address) {
    return reinterpret_cast<uintptr_t>(address) / page_bytes() * page_bytes();
}

static bool is_own_store(const block_view &view, uintptr_t address, size_t i) {
    auto own = view.stores.find(address);
    return own != view.stores.end() && own->second.is_stored[i];
}

/* Memory becomes what all share there, but for what the block stored to the same place, which comes
 * first. An atomic's bytes are of one page, and of device memory, or of no concern. */
void begin_atomic(const void *address, size_t bytes) {
    visible_memory &memory = the_memory();
    if (!holds_page(*memory.dev, address))
        return;
    uintptr_t where = page_at(address);
    open_page(where);
    auto stale = memory.running->stale.find(where);
    if (stale == memory.running->stale.end())
        return;
    const page &shared = memory.shared.at(where);
    const size_t first = reinterpret_cast<uintptr_t>(address) - where;
    for (size_t i = first; i < first + bytes; i++)
        if (!is_own_store(*memory.running, where, i) && at(where)[i] == stale->second[i])
            at(where)[i] = stale->second[i] = shared[i];
}

void end_atomic(const void *address, size_t bytes) {
    visible_memory &memory = the_memory();
    if (!holds_page(*memory.dev, address))
        return;
    uintptr_t where = page_at(address);
    const size_t first = reinterpret_cast<uintptr_t>(address) - where;
    keep_for_others(where);
    memcpy(&memory.shared.at(where)[first], address, bytes);
    auto stale = memory.running->stale.find(where);
    if (stale != memory.running->stale.end())
        memcpy(&stale->second[first], address, bytes);
    auto own = memory.running->stores.find(where);
    if (own != memory.running->stores.end())
        memset(&own->second.is_stored[first], 0, bytes);
    running_thread()->has_counted = true;
    pass_switch_point(switch_point::atomic);
}

/* A store to a page that is not open; any other fault is its handler's from before. */
static void on_fault(int, siginfo_t *info, void *) {
    visible_memory &memory = the_memory();
    uintptr_t address = page_at(info->si_addr);
    if (pthread_equal(pthread_self(), memory.thread) && memory.running != nullptr &&
        holds_page(*memory.dev, info->si_addr) && memory.open.count(address) == 0)
        open_page(address);
    else
        sigaction(SIGSEGV, &memory.fault_action_before, nullptr);
}

void begin_visibility(device &dev) {
    visible_memory &memory = the_memory();
    memory.dev = &dev;
    memory.thread = pthread_self();
    protect_memory(dev, PROT_READ);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &memory.fault_action_before);
}

void end_visibility() {
    visible_memory &memory = the_memory();
    sigaction(SIGSEGV, &memory.fault_action_before, nullptr);
    protect_memory(*memory.dev, PROT_READ | PROT_WRITE);
    for (const auto &[address, own] : memory.ended) {
        lay_over(&memory.shared.at(address), own);
        set_page(address, memory.shared.at(address));
    }
    memory = {};
}

} // namespace cudasim
