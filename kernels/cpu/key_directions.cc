// sum_key_directions and key_distinctions on CPUs: blocks by threads, of each block all keys at a
// time, dimension after dimension.
#include <cmath>
#include <mutex>

#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"
#include "kernels/read_keys.h"

namespace longhaul::cpu {
namespace {

// Calls use(d, keys) for each dimension of the block's keys.
template <typename Use>
void for_dims(const KvBlockShape& shape, const KvBlockRef& block, const Use& use) {
  thread_local std::vector<float> keys;
  keys.resize(static_cast<std::size_t>(block.n_tokens));
  KeyReader reader(shape, block.data, {0, block.n_tokens});
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    reader.read(d, keys);
    use(static_cast<std::size_t>(d), std::span<const float>(keys));
  }
}

// The block's part of the sums.
std::vector<std::int64_t> sums_of(const KvBlockShape& shape, const KvBlockRef& block) {
  std::vector<double> scales(static_cast<std::size_t>(block.n_tokens));  // squares at first
  for_dims(shape, block, [&](std::size_t, std::span<const float> keys) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      scales[i] += static_cast<double>(keys[i]) * static_cast<double>(keys[i]);
  });
  for (double& scale : scales) scale = scale == 0 ? 0 : kDirectionUnits / std::sqrt(scale);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(shape.head_dim));
  for_dims(shape, block, [&](std::size_t d, std::span<const float> keys) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      sums[d] += std::llrint(static_cast<double>(keys[i]) * scales[i]);
  });
  return sums;
}

void compare(const KeyDistinctionsArgs& args, const KvBlockRef& block, std::span<float> to) {
  std::vector<double> squares(to.size());
  std::vector<double> products(to.size());
  for_dims(args.keys.shape, block, [&](std::size_t d, std::span<const float> keys) {
    const auto direction = static_cast<double>(args.direction[d]);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto key = static_cast<double>(keys[i]);
      squares[i] += key * key;
      products[i] += key * direction;
    }
  });
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = squares[i] == 0
                ? 0.0F
                : static_cast<float>(-(products[i] / std::sqrt(squares[i])) * args.inverse_length);
  }
}

}  // namespace

void sum_key_directions(const KeyDirectionSumsArgs& args) {
  std::mutex mutex;
  parallel_for(static_cast<std::int64_t>(args.keys.blocks.size()), [&](std::int64_t i) {
    const std::vector<std::int64_t> sums =
        sums_of(args.keys.shape, args.keys.blocks[static_cast<std::size_t>(i)]);
    const std::lock_guard lock(mutex);
    for (std::size_t d = 0; d < sums.size(); ++d) args.sums[d] += sums[d];
  });
}

void key_distinctions(const KeyDistinctionsArgs& args) {
  std::vector<std::size_t> firsts;
  std::size_t n_keys = 0;
  for (const KvBlockRef& block : args.keys.blocks) {
    firsts.push_back(n_keys);
    n_keys += static_cast<std::size_t>(block.n_tokens);
  }
  parallel_for(static_cast<std::int64_t>(args.keys.blocks.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const KvBlockRef& block = args.keys.blocks[at];
    compare(args, block,
            args.distinctions.subspan(firsts[at], static_cast<std::size_t>(block.n_tokens)));
  });
}

}  // namespace longhaul::cpu
