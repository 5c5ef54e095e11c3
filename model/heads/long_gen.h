// LongGen's layers (Ge et al. 2024, arXiv 2410.01485): the middle third of the layers sees every
// token, those at the top and at the bottom the first and the last ones. It needs no head profile.
// The paper trains a model for it; a model that was not shows what that training is worth.
#pragma once
#include <cstdint>

#include "base/ids.h"
#include "model/heads/head_table.h"

namespace longhaul {

// Layers [n/3, n - n/3) of n: where a third is no whole number, the middle has the rest.
Extent long_gen_layers(std::int64_t n_layers);

// The roles of all heads: `sink` first and `recent` last tokens, the query's own included, outside
// those layers. The paper's sinks stand at their own positions. Throws kInvalidArgument for a
// window that makes no sense.
HeadRoles long_gen_roles(std::int64_t n_layers, std::int64_t n_kv_heads, std::int64_t sink,
                         std::int64_t recent);

}  // namespace longhaul
