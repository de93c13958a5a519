/* Memory of the GPU. It can be touched only while the device works: a host that follows a device
 * pointer faults, as it would with a real one. A page before and one after each allocation are
 * never mapped, and an address is never used again. */
#ifndef CUDASIM_DEVICE_MEMORY_H
#define CUDASIM_DEVICE_MEMORY_H

#include "device.h"

namespace cudasim {

/* Filled with 0xff, 256-byte aligned. NULL when the host has no memory. */
char *map_device_memory(size_t bytes);
void unmap_device_memory(char *start, size_t bytes);

/* While one lives, the device works. They nest. */
class device_at_work {
  public:
    explicit device_at_work(device &worker);
    ~device_at_work();

  private:
    device &dev;
};

} // namespace cudasim

#endif
