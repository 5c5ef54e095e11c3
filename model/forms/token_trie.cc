#include "model/forms/token_trie.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longhaul::forms {

TokenTrie::TokenTrie(const std::vector<std::string>& token_bytes)
    : vocab_size_(static_cast<std::int64_t>(token_bytes.size())) {
  const auto bytes_of = [&](std::int32_t id) -> const std::string& {
    return token_bytes[static_cast<std::size_t>(id)];
  };
  for (std::size_t id = 0; id < token_bytes.size(); ++id) {
    if (!token_bytes[id].empty()) tokens_.push_back(static_cast<std::int32_t>(id));
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](std::int32_t x, std::int32_t y) {
    const int order = bytes_of(x).compare(bytes_of(y));
    return order != 0 ? order < 0 : x < y;
  });
  std::vector<std::int32_t> open;  // the nodes from the root to the last token
  std::string_view before;
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    const std::string_view bytes = bytes_of(tokens_[t]);
    require(bytes.size() <= std::numeric_limits<std::uint16_t>::max(),
            fmt::format("token {} has {} bytes", tokens_[t], bytes.size()));
    const auto [own, other] = std::ranges::mismatch(bytes, before);
    const auto n_common = static_cast<std::size_t>(own - bytes.begin());
    for (; open.size() > n_common; open.pop_back()) {
      nodes_[static_cast<std::size_t>(open.back())].end = n_nodes();
    }
    for (std::size_t i = n_common; i < bytes.size(); ++i) {
      open.push_back(n_nodes());
      nodes_.push_back({.first_token = static_cast<std::int32_t>(t),
                        .depth = static_cast<std::uint16_t>(i + 1),
                        .byte = static_cast<std::uint8_t>(bytes[i])});
    }
    longest_ = std::max(longest_, static_cast<std::int32_t>(bytes.size()));
    before = bytes;
  }
  for (const std::int32_t i : open) nodes_[static_cast<std::size_t>(i)].end = n_nodes();
}

// A node's own tokens stand before those of its children, which begin with the next node's.
std::span<const std::int32_t> TokenTrie::tokens_at(std::int32_t i) const {
  const std::int32_t first = node(i).first_token;
  const auto end =
      i + 1 < n_nodes() ? node(i + 1).first_token : static_cast<std::int32_t>(tokens_.size());
  return std::span(tokens_).subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(end - first));
}

}  // namespace longhaul::forms
