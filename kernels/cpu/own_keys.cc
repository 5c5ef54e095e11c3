// add_own_keys on CPUs: rows by threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/kv_quantise.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

// One token's K or V of one head as a cache of this type gives it back.
void round_as_cached(KvType type, std::span<float> x) {
  if (type == KvType::kF32) return;
  if (type == KvType::kBf16) {
    for (float& value : x) value = to_float(to_bf16(value));
    return;
  }
  thread_local std::vector<std::uint8_t> codes;
  codes.resize(x.size());
  const KvGroupRange range = quantise(type, x, codes);
  for (std::size_t d = 0; d < x.size(); ++d) x[d] = value_of_code(type, codes[d], range);
}

void add_key(float logit, std::span<const float> value, float* o, float& m, float& l) {
  const bool is_empty = m == -std::numeric_limits<float>::infinity();
  const float reference = std::max(m, logit);
  const float keeps = is_empty ? 0.0F : std::exp(m - reference);
  const float weight = std::exp(logit - reference);
  for (std::size_t d = 0; d < value.size(); ++d) o[d] = o[d] * keeps + weight * value[d];
  l = l * keeps + weight;
  m = reference;
}

float product(const float* q, std::span<const float> key) {
  double sum = 0;
  for (std::size_t d = 0; d < key.size(); ++d)
    sum += static_cast<double>(q[d]) * static_cast<double>(key[d]);
  return static_cast<float>(sum);
}

void add_row(const OwnKeysArgs& args, std::int64_t row) {
  const std::int64_t group = args.q.dim(1) / args.k.dim(1);
  thread_local std::vector<float> key;
  thread_local std::vector<float> value;
  for (std::int64_t kv_head = 0; kv_head < args.k.dim(1); ++kv_head) {
    const float* k = args.k[row][kv_head].data();
    const float* v = args.v[row][kv_head].data();
    key.assign(k, k + args.k.dim(2));
    value.assign(v, v + args.v.dim(2));
    round_as_cached(args.shape.k_type, key);
    round_as_cached(args.shape.v_type, value);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      add_key(args.sm_scale * product(args.q[row][head].data(), key), value,
              args.state.o[row][head].data(), args.state.m[row][head], args.state.l[row][head]);
    }
  }
}

}  // namespace

void add_own_keys(const OwnKeysArgs& args) {
  parallel_rows(args.q.dim(0), args.q.dim(1) * args.q.dim(2),
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t row = begin; row < end; ++row) add_row(args, row);
                });
}

}  // namespace longhaul::cpu
