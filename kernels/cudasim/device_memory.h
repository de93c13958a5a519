/* Memory of the GPU. It can be touched only while the device works: a host that dereferences a
 * device pointer faults, as with a real GPU. A page before and one after each allocation are never
 * mapped, and an address is never used again. */
#ifndef CUDASIM_DEVICE_MEMORY_H
#define CUDASIM_DEVICE_MEMORY_H

#include "device.h"

namespace cudasim {

/* Filled with 0xff, 256-byte aligned. NULL when the host has no memory. */
char *map_device_memory(size_t bytes);
void unmap_device_memory(char *start, size_t bytes);

/* While one lives, this device works, and no other's memory can be touched; or none does. They
 * nest. */
class device_at_work {
  public:
    explicit device_at_work(device &worker);
    device_at_work();
    device_at_work(const device_at_work &) = delete;
    ~device_at_work();

  private:
    device *const before;
};

/* By work of the device that touches its memory: it can, until another works, or none. */
void open_memory(device &dev);

size_t page_bytes();
/* Whether the page of this address belongs to one of the device's allocations. */
bool holds_page(const device &dev, const void *address);
/* Of all its allocations, which are open: PROT_READ, or with PROT_WRITE. */
void protect_memory(const device &dev, int protection);

/* Copies from an allocation of one device to one of another, as a device that reaches the other's
 * does. */
void copy_across(device &to, void *dst, device &from, const void *src, size_t bytes);

} // namespace cudasim

#endif
