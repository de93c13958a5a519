/* A module of messages between ranks, of another build. */
#include "kernels/module.h"

extern const struct transport_module quire_transport_module;

const struct transport_module quire_transport_module = {.interface = QUIRE_TRANSPORT_INTERFACE + 1};
