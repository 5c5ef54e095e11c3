#include "model/heads/long_gen.h"

#include <algorithm>

namespace longhaul {

Extent long_gen_layers(std::int64_t n_layers) { return {n_layers / 3, n_layers - n_layers / 3}; }

HeadRoles long_gen_roles(std::int64_t n_layers, std::int64_t n_kv_heads, std::int64_t sink,
                         std::int64_t recent) {
  validate({.see = SeeSinkRecent{sink, recent}});
  HeadRoles roles = HeadRoles::all_retrieval(n_layers, n_kv_heads);
  const Extent full = long_gen_layers(n_layers);
  const auto first = roles.roles.begin();
  std::fill(first, first + full.begin * n_kv_heads, HeadRole::kStreaming);
  std::fill(first + full.end * n_kv_heads, roles.roles.end(), HeadRole::kStreaming);
  roles.sink = sink;
  roles.recent = recent;
  return roles;
}

}  // namespace longhaul
