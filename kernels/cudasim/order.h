/* Choices in the order that cudasim/order.h describes. */
#ifndef CUDASIM_PRIVATE_ORDER_H
#define CUDASIM_PRIVATE_ORDER_H

#include <stdint.h>

namespace cudasim {

enum class order_kind { forward, reverse, random };

void read_order_from_environment();
order_kind current_order();
bool are_blocks_interleaved();
/* 0 .. bound - 1 */
uint32_t random_below(uint32_t bound);
/* One of the bits set in mask, which is not 0. */
int pick_bit(uint32_t mask);

} // namespace cudasim

#endif
