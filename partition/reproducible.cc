#include "partition/reproducible.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {
namespace {

// What keeps this head's queries from meeting the keys that they see in one order, however a text
// is cut; nullopt for heads that keep every token or a window that slides by single tokens, at the
// tokens' own positions. Keys for what has left it are made of sums in the order of tokens.
std::optional<std::string> part_without_one_order(HeadPolicy policy) {
  policy.rest = Rest::kNothing;
  // Without sinks no query meets one at another position.
  const KeyWindow window = window_of(policy);
  if (window.sink == 0 && window.slide == 1) policy.see = SeeSinkRecent{.recent = window.recent};
  return part_of_single_tokens(policy);
}

}  // namespace

std::optional<std::string> why_not_reproducible(const HeadTable& heads, Device device) {
  if (device != Device::kCpu) return "GPUs add up in another order than CPUs do: --device cpu";
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (const auto part = part_without_one_order(heads.at(layer, head))) {
        return fmt::format(
            "KV head {} of layer {}: {} would have other bits in other chunks or on other ranks; "
            "leave the flag out, or take a method that docs/reproducible.md names",
            head.value, layer.value, *part);
      }
    }
  }
  return std::nullopt;
}

void require_reproducible(const HeadTable& heads, Device device) {
  if (const auto why = why_not_reproducible(heads, device))
    throw Error(ErrorCode::kInvalidArgument, "--reproducible: " + *why);
}

}  // namespace longhaul
