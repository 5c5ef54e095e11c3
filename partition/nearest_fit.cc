#include "partition/nearest_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/sizes.h"
#include "partition/weight_bytes.h"
#include "partition/weight_support.h"

namespace longhaul {
namespace {

// The largest value in [least, most] for which fits(value), or the smallest one when `want` says
// so; fits must not change its mind more than once. nullopt when none does.
enum class Want { kLargest, kSmallest };
template <typename Fits>
std::optional<std::int64_t> search(std::int64_t least, std::int64_t most, Want want,
                                   const Fits& fits) {
  // Counted from the end where it fits if anywhere.
  const auto value = [&](std::int64_t i) { return want == Want::kLargest ? least + i : most - i; };
  if (least > most || !fits(value(0))) return std::nullopt;
  std::int64_t good = 0;
  std::int64_t bad = most - least + 1;
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(value(middle)) ? good : bad) = middle;
  }
  return value(good);
}

// Caches and weights of fewer bytes; each step asks more of answers' quality than the one before.
struct SmallerTypes {
  KvType kv;
  std::optional<DType> weights;
};
constexpr SmallerTypes kSmallerTypes[] = {
    {KvType::kBf16, {}},         {KvType::kInt8, {}},         {KvType::kF32, DType::kI8},
    {KvType::kInt8, DType::kI8}, {KvType::kInt4, {}},         {KvType::kInt4, DType::kI8},
    {KvType::kInt8, DType::kI4}, {KvType::kInt4, DType::kI4},
};

// The first of them with which it fits: caches alone, weights alone, or both.
std::optional<std::string> smaller_types(const PlanRequest& request) {
  const auto bytes = [&](KvType type) { return kv_token_bytes(type, request.spec.head_dim); };
  for (const SmallerTypes& types : kSmallerTypes) {
    PlanRequest tried = request;
    Workload& workload = tried.workload;
    const KvType k = workload.k_type;
    const KvType v = workload.v_type;
    if (tried.spec.head_dim % kv_lanes(types.kv) != 0) continue;
    const bool smaller_k = bytes(types.kv) < bytes(k);
    const bool smaller_v = bytes(types.kv) < bytes(v);
    const bool smaller_weights =
        types.weights && !why_not_weights(tried.spec, *types.weights) &&
        bytes_of_weight(*types.weights) < bytes_of_weight(workload.weights(tried.spec));
    if (types.weights && !smaller_weights) continue;
    if (!smaller_k && !smaller_v && !smaller_weights) continue;
    workload.k_type = smaller_k ? types.kv : k;
    workload.v_type = smaller_v ? types.kv : v;
    if (smaller_weights) workload.weight_dtype = types.weights;
    if (!plan_fits(tried)) continue;
    std::string flags = smaller_weights ? fmt::format("--weights {}", name_of(*types.weights)) : "";
    if (smaller_k || smaller_v) {
      flags += fmt::format("{}--cache-type-k {} --cache-type-v {}", flags.empty() ? "" : " ",
                           name_of(workload.k_type), name_of(workload.v_type));
    }
    return "smaller types in memory: " + flags;
  }
  return std::nullopt;
}

std::optional<std::string> fewer_sequences(PlanRequest request) {
  const auto n =
      search(1, request.workload.n_sequences - 1, Want::kLargest, [&](std::int64_t value) {
        request.workload.n_sequences = value;
        return plan_fits(request);
      });
  if (!n) return std::nullopt;
  return fmt::format("at most {} request{} in flight", *n, *n == 1 ? "" : "s");
}

std::optional<std::string> shorter_chunks(PlanRequest request) {
  const std::int64_t block = request.workload.block_size;
  const auto n =
      search(1, (request.workload.chunk_len - 1) / block, Want::kLargest, [&](std::int64_t value) {
        request.workload.chunk_len = value * block;
        return plan_fits(request);
      });
  if (!n) return std::nullopt;
  return fmt::format("chunks of {} tokens (--chunk-len {})", *n * block, *n * block);
}

std::optional<std::string> lower_ratio(PlanRequest request) {
  if (!request.options.profile || request.spec.token_merging) return std::nullopt;
  const HeadProfile& profile = *request.options.profile;
  const std::int64_t n_now = request.heads.count(HeadKind::kRetrieval);
  const auto heads_at = [&](std::int64_t hundredths) {
    const HeadRoles roles = choose_roles(profile, static_cast<double>(hundredths) / 100);
    return duo_attention_heads(request.spec, roles);
  };
  const auto hundredths = search(0, 100, Want::kLargest, [&](std::int64_t value) {
    request.heads = heads_at(value);
    return plan_fits(request);
  });
  if (!hundredths) return std::nullopt;
  const HeadTable heads = heads_at(*hundredths);
  const std::int64_t n_then = heads.count(HeadKind::kRetrieval);
  if (n_then >= n_now) return std::nullopt;
  return fmt::format("a retrieval ratio of {:.2f}: {} of {} heads keep everything instead of {}",
                     static_cast<double>(*hundredths) / 100, n_then,
                     heads.n_layers() * heads.n_kv_heads(), n_now);
}

std::optional<std::string> more_ranks(PlanRequest request) {
  const std::int64_t now = request.cluster.n_ranks();
  const RankSpec last = request.cluster.ranks.back();
  const auto n =
      search(1, std::max<std::int64_t>(64, 16 * now), Want::kSmallest, [&](std::int64_t more) {
        request.cluster.ranks.resize(static_cast<std::size_t>(now));
        for (std::int64_t i = 0; i < more; ++i) {
          request.cluster.ranks.push_back(last);
          request.cluster.ranks.back().host = fmt::format("{}+{}", last.host, i);
        }
        return plan_fits(request);
      });
  if (!n) return std::nullopt;
  return fmt::format("{} more rank{} like the last one ({})", *n, *n == 1 ? "" : "s",
                     format_byte_size(last.memory_bytes));
}

std::optional<std::string> more_memory(PlanRequest request) {
  const ClusterSpec before = request.cluster;
  constexpr std::int64_t kStep = std::int64_t{64} << 20;
  const auto steps =
      search(1, (std::int64_t{1} << 46) / kStep, Want::kSmallest, [&](std::int64_t value) {
        for (std::size_t r = 0; r < before.ranks.size(); ++r) {
          request.cluster.ranks[r].memory_bytes = before.ranks[r].memory_bytes + value * kStep;
        }
        return plan_fits(request);
      });
  if (!steps) return std::nullopt;
  return fmt::format("{} more memory for each rank", format_byte_size(*steps * kStep));
}

std::optional<std::string> shorter_documents(const PlanRequest& request) {
  const auto n = max_document_tokens(request);
  if (!n || *n == 0) return std::nullopt;
  return fmt::format("documents of up to {} tokens", *n);
}

std::optional<std::string> split_heads(const PlanRequest& request) {
  if (!request.workload.reproducible) return std::nullopt;
  PlanRequest tried = request;
  tried.workload.reproducible = false;
  if (!plan_fits(tried)) return std::nullopt;
  return "heads split over ranks: leave --reproducible out";
}

}  // namespace

std::optional<std::int64_t> max_document_tokens(const PlanRequest& request) {
  PlanRequest tried = request;
  const std::int64_t block = request.workload.block_size;
  const auto n_blocks =
      search(0, request.workload.document_tokens / block, Want::kLargest, [&](std::int64_t value) {
        tried.workload.document_tokens = value * block;
        return tried.workload.document_tokens + tried.workload.tail_tokens > 0 && plan_fits(tried);
      });
  if (!n_blocks) return std::nullopt;
  return *n_blocks * block;
}

std::vector<std::string> changes_that_fit(const PlanRequest& request) {
  std::vector<std::string> changes;
  for (const auto& change :
       {split_heads(request), smaller_types(request), fewer_sequences(request),
        shorter_chunks(request), lower_ratio(request), shorter_documents(request),
        more_ranks(request), more_memory(request)}) {
    if (change) changes.push_back(*change);
  }
  return changes;
}

}  // namespace longhaul
