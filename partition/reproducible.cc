#include "partition/reproducible.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {
namespace {

// Heads of which every query meets the keys that it sees in one order, however a text is cut: those
// that keep every token or a window that slides by single tokens, at the tokens' own positions.
// Keys for what has left it are made of sums in the order of tokens.
bool is_plain(const HeadPolicy& policy) {
  const HeadPolicy plain{.see = policy.see, .rest = policy.rest, .store = policy.store};
  if (!(policy == plain)) return false;
  const KeyWindow window = window_of(policy);
  return window.is_unlimited() ||
         (window.slide == 1 &&
          (window.sink == 0 || sink_positions_of(policy) == SinkPositions::kAbsolute));
}

}  // namespace

std::optional<std::string> why_not_reproducible(const HeadTable& heads, Device device) {
  if (device != Device::kCpu) return "GPUs add up in another order than CPUs do: --device cpu";
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (is_plain(heads.at(layer, head))) continue;
      return fmt::format(
          "KV head {} of layer {} has a method whose sums depend on chunks or ranks (tokens chosen "
          "by attention or merged, sinks at positions in the cache, windows that slide by several "
          "tokens); heads that keep every token, and those of a head profile, can be reproducible, "
          "also with keys for what is gone (razor)",
          head.value, layer.value);
    }
  }
  return std::nullopt;
}

void require_reproducible(const HeadTable& heads, Device device) {
  if (const auto why = why_not_reproducible(heads, device))
    throw Error(ErrorCode::kUnsupported, "--reproducible: " + *why);
}

}  // namespace longhaul
