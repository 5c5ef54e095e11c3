#include "tools/eval/head_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace longhaul {
namespace {

HeadRole& role_of(HeadRoles& roles, HeadId head) {
  return roles.roles[static_cast<std::size_t>(head.layer * roles.n_kv_heads + head.kv_head)];
}

bool read_index(std::string_view text, std::int64_t n, std::int64_t& index) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  return error == std::errc() && end == text.data() + text.size() && 0 <= index && index < n;
}

void check(const HeadChoice& choice) {
  require(!(choice.all_dense && choice.all_streaming),
          "--all-dense and --all-streaming say the opposite of each other");
  require(!choice.only_retrieval_head || (!choice.all_dense && choice.streaming_heads.empty()),
          "--only-retrieval-head makes all other heads streaming: use it without --all-dense and "
          "--streaming-head");
}

void require_window(const HeadRoles& roles) {
  require(roles.recent >= 1,
          "streaming heads need a window: give --sink and --recent, or --head-profile");
}

}  // namespace

HeadId parse_head(std::string_view text, std::int64_t n_layers, std::int64_t n_kv_heads) {
  HeadId head;
  const std::size_t colon = text.find(':');
  require(colon != std::string_view::npos &&
              read_index(text.substr(0, colon), n_layers, head.layer) &&
              read_index(text.substr(colon + 1), n_kv_heads, head.kv_head),
          fmt::format("'{}' names no head: write LAYER:KV_HEAD, from 0:0 to {}:{}", text,
                      n_layers - 1, n_kv_heads - 1));
  return head;
}

HeadRoles with_choice(HeadRoles roles, const HeadChoice& choice) {
  check(choice);
  if (choice.all_dense) std::fill(roles.roles.begin(), roles.roles.end(), HeadRole::kRetrieval);
  if (choice.all_streaming) std::fill(roles.roles.begin(), roles.roles.end(), HeadRole::kStreaming);
  const auto head_of = [&](const std::string& text) {
    return parse_head(text, roles.n_layers, roles.n_kv_heads);
  };
  if (choice.only_retrieval_head)
    roles = with_only_retrieval_head(std::move(roles), head_of(*choice.only_retrieval_head));
  for (const std::string& head : choice.streaming_heads)
    roles = with_head_streaming(std::move(roles), head_of(head));
  if (roles.n_retrieval() < roles.n_layers * roles.n_kv_heads) require_window(roles);
  return roles;
}

HeadRoles with_head_streaming(HeadRoles roles, HeadId head) {
  require_window(roles);
  role_of(roles, head) = HeadRole::kStreaming;
  return roles;
}

HeadRoles with_only_retrieval_head(HeadRoles roles, HeadId head) {
  require_window(roles);
  std::fill(roles.roles.begin(), roles.roles.end(), HeadRole::kStreaming);
  role_of(roles, head) = HeadRole::kRetrieval;
  return roles;
}

}  // namespace longhaul
