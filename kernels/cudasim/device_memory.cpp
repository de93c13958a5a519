/* An allocation ends at an unmapped page, but for what its alignment leaves, which AddressSanitizer
 * guards. Large ones begin as copy-on-write views of one stretch of 0xff, so that a GPU of several
 * gigabytes costs the host only what is written. */
#include "device_memory.h"

#include "fatal.h"
#include "sanitizer.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cudasim {

static const size_t PATTERN_BYTES = (size_t)16 << 20;
static const size_t ALIGNMENT = 256;

size_t page_bytes() {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static int create_pattern() {
    int file = memfd_create("cudasim_pattern", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)PATTERN_BYTES) != 0)
        fatal("no memory for a pattern of %zu bytes", PATTERN_BYTES);
    void *pattern = mmap(nullptr, PATTERN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (pattern == MAP_FAILED)
        fatal("no memory for a pattern of %zu bytes", PATTERN_BYTES);
    memset(pattern, 0xff, PATTERN_BYTES);
    munmap(pattern, PATTERN_BYTES);
    return file;
}

static bool map_pattern(char *start, size_t bytes) {
    static const int file = create_pattern();
    for (size_t done = 0; done < bytes; done += PATTERN_BYTES) {
        size_t part = bytes - done < PATTERN_BYTES ? bytes - done : PATTERN_BYTES;
        if (mmap(start + done, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) ==
            MAP_FAILED)
            return false;
    }
    return true;
}

static bool fill_pages(char *pages, size_t bytes) {
    if (bytes > PATTERN_BYTES)
        return map_pattern(pages, bytes);
    if (mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    memset(pages, 0xff, bytes);
    return true;
}

/* The pages of an allocation, by its start. */
static memory_range pages_of(char *start, size_t bytes) {
    size_t page = page_bytes();
    size_t used = round_up(bytes, ALIGNMENT), mapped = round_up(used, page);
    return {start - (mapped - used), mapped};
}

bool holds_page(const device &dev, const void *address) {
    const char *at = static_cast<const char *>(address);
    auto end = dev.device_memory.end();
    auto after = dev.device_memory.upper_bound(reinterpret_cast<uintptr_t>(address));
    auto before = after == dev.device_memory.begin() ? end : std::prev(after);
    for (auto near : {before, after}) { /* an allocation begins within its first page */
        if (near == end)
            continue;
        memory_range pages = pages_of(near->second.start, near->second.bytes);
        if (at >= pages.start && at < pages.start + pages.bytes)
            return true;
    }
    return false;
}

/* On either side: an index that is wrong by thousands meets nobody else's memory. */
static const size_t GUARD_PAGES = 16;

static void set_access(const memory_range &allocation, int protection) {
    memory_range pages = pages_of(allocation.start, allocation.bytes);
    if (mprotect(pages.start, pages.bytes, protection) != 0)
        fatal("cannot change the access to device memory");
}

char *map_device_memory(size_t bytes) {
    size_t page = page_bytes();
    size_t used = round_up(bytes, ALIGNMENT), mapped = round_up(used, page);
    size_t guard = GUARD_PAGES * page;
    void *reserved = mmap(nullptr, mapped + 2 * guard, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return nullptr;
    char *pages = static_cast<char *>(reserved) + guard;
    if (!fill_pages(pages, mapped)) {
        munmap(reserved, mapped + 2 * guard);
        return nullptr;
    }
    char *start = pages + mapped - used;
    ASAN_POISON_MEMORY_REGION(pages, mapped);
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    set_access({start, bytes}, PROT_NONE);
    return start;
}

void unmap_device_memory(char *start, size_t bytes) {
    memory_range pages = pages_of(start, bytes);
    ASAN_POISON_MEMORY_REGION(pages.start, pages.bytes);
    if (mmap(pages.start, pages.bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        fatal("cannot unmap device memory");
}

void protect_memory(const device &dev, int protection) {
    for (const auto &entry : dev.device_memory)
        set_access(entry.second, protection);
}

static void put_to_work(device *dev) {
    machine &all = the_machine();
    if (all.at_work == dev)
        return;
    if (all.is_memory_open)
        protect_memory(*all.at_work, PROT_NONE);
    if (all.at_work != nullptr)
        all.at_work->worked = device_time(*all.at_work);
    all.is_memory_open = false;
    all.at_work = dev;
    all.at_work_since = std::chrono::steady_clock::now();
}

void open_memory(device &dev) {
    machine &all = the_machine();
    if (all.at_work != &dev)
        fatal("device %d's memory is opened while another works", dev.ordinal);
    if (!all.is_memory_open)
        protect_memory(dev, PROT_READ | PROT_WRITE);
    all.is_memory_open = true;
}

device_at_work::device_at_work(device &worker) : before(the_machine().at_work) {
    put_to_work(&worker);
}

device_at_work::device_at_work() : before(the_machine().at_work) {
    put_to_work(nullptr);
}

device_at_work::~device_at_work() {
    put_to_work(before);
}

/* While it lives, the allocation that an address lies in can be touched. */
class open_allocation {
  public:
    open_allocation(const device &dev, const void *address)
        : allocation(std::prev(dev.device_memory.upper_bound(reinterpret_cast<uintptr_t>(address)))
                         ->second),
          is_open(the_machine().is_memory_open && the_machine().at_work == &dev) {
        if (!is_open)
            set_access(allocation, PROT_READ | PROT_WRITE);
    }
    open_allocation(const open_allocation &) = delete;
    ~open_allocation() {
        if (!is_open)
            set_access(allocation, PROT_NONE);
    }

  private:
    const memory_range allocation;
    const bool is_open;
};

void copy_across(device &to, void *dst, device &from, const void *src, size_t bytes) {
    open_allocation source(from, src), destination(to, dst);
    memmove(dst, src, bytes);
}

} // namespace cudasim
