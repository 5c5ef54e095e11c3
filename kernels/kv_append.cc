#include "kernels/kv_append.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/kv_block_check.h"
#include "kernels/kv_quantise.h"
#include "kernels/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const KvAppendArgs& args) {
  check_kv_block_shape("kv_append", args.shape);
  for (std::size_t i = 0; i < args.items.size(); ++i) {
    const KvAppendItem& item = args.items[i];
    const std::string op = fmt::format("kv_append: item {}", i);
    require_equal(op, "head_dim of k", item.k.dim(1), args.shape.head_dim);
    require_equal(op, "head_dim of v", item.v.dim(1), args.shape.head_dim);
    require_equal(op, "n_tokens of v", item.v.dim(0), item.k.dim(0));
    require(item.first_slot >= 0, fmt::format("{}: first_slot is {}", op, item.first_slot));
    const std::int64_t n_slots =
        static_cast<std::int64_t>(item.blocks.size()) * args.shape.block_size;
    require(item.first_slot + item.k.dim(0) <= n_slots,
            fmt::format("{}: {} tokens from slot {} do not fit into {} blocks of {}", op,
                        item.k.dim(0), item.first_slot, item.blocks.size(), args.shape.block_size));
  }
}

// K or V of some tokens, to neighbouring slots of one block.
struct PartAppend {
  TensorView<const float, 2> x;
  KvType type = KvType::kF32;
  std::byte* part = nullptr;
  std::int64_t first_slot = 0;
  bool is_k = false;
};

void append_quantised(const KvBlockShape& shape, const PartAppend& append) {
  const KvPartLayout layout = shape.part(append.type);
  const auto head_dim = static_cast<std::size_t>(shape.head_dim);
  thread_local std::vector<std::uint8_t> codes;
  codes.resize(head_dim);
  for (std::int64_t token = 0; token < append.x.dim(0); ++token) {
    const std::int64_t slot = append.first_slot + token;
    const KvGroupRange range = quantise(append.type, {append.x[token].data(), head_dim}, codes);
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const KvCodePlace place =
          append.is_k ? k_code_place(shape, slot, d) : v_code_place(shape, slot, d);
      write_code(append.type, append.part, place, codes[static_cast<std::size_t>(d)]);
    }
    const auto at = static_cast<std::size_t>(2 * slot);
    std::memcpy(append.part + layout.scales_at() + at, &range.scale, 2);
    std::memcpy(append.part + layout.minima_at() + at, &range.minimum, 2);
  }
}

void append_part(const KvBlockShape& shape, const PartAppend& append) {
  if (is_quantised(append.type)) return append_quantised(shape, append);
  cpu::kernels().kv_append({.x = append.x.data(),
                            .token_stride = append.x.stride(0),
                            .n_tokens = append.x.dim(0),
                            .head_dim = shape.head_dim,
                            .to = append.part,
                            .block_size = shape.block_size,
                            .first_slot = append.first_slot,
                            .is_bf16 = append.type == KvType::kBf16,
                            .is_k = append.is_k});
}

void append_item(const KvBlockShape& shape, const KvAppendItem& item) {
  for (std::int64_t token = 0; token < item.k.dim(0);) {
    const std::int64_t slot = item.first_slot + token;
    const std::int64_t within = slot % shape.block_size;
    const Extent tokens{token, std::min(token + shape.block_size - within, item.k.dim(0))};
    std::byte* block = item.blocks[static_cast<std::size_t>(slot / shape.block_size)];
    if (within == 0 && tokens.size() < shape.block_size) std::memset(block, 0, shape.bytes());
    append_part(shape, {item.k.slice(0, tokens), shape.k_type, block, within, true});
    append_part(shape,
                {item.v.slice(0, tokens), shape.v_type, block + shape.k_bytes(), within, false});
    token = tokens.end;
  }
}

void kv_append_cpu(const KvAppendArgs& args) {
  std::int64_t most_tokens = 1;
  for (const KvAppendItem& item : args.items) most_tokens = std::max(most_tokens, item.k.dim(0));
  parallel_rows(static_cast<std::int64_t>(args.items.size()), 2 * most_tokens * args.shape.head_dim,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    append_item(args.shape, args.items[static_cast<std::size_t>(i)]);
                  }
                });
}

float element(KvType type, const std::byte* data, std::int64_t index) {
  if (type == KvType::kF32) {
    float out;
    std::memcpy(&out, data + index * 4, sizeof out);
    return out;
  }
  BFloat16 out;
  std::memcpy(&out.bits, data + index * 2, sizeof out.bits);
  return to_float(out);
}

// Of one token's K or V.
float quantised_element(const KvBlockShape& shape, KvType type, const std::byte* part,
                        std::int64_t slot, KvCodePlace place) {
  const KvPartLayout layout = shape.part(type);
  Float16 scale;
  Float16 minimum;
  std::memcpy(&scale.bits, part + layout.scales_at() + 2 * slot, 2);
  std::memcpy(&minimum.bits, part + layout.minima_at() + 2 * slot, 2);
  return static_cast<float>(read_code(type, part, place)) * to_float(scale) + to_float(minimum);
}

void check_read(const KvBlockShape& shape, std::int64_t first_slot,
                const TensorView<float, 2>& out) {
  check_kv_block_shape("kv_read", shape);
  require_equal("kv_read", "head_dim of out", out.dim(1), shape.head_dim);
  require(first_slot >= 0 && first_slot + out.dim(0) <= shape.block_size,
          fmt::format("kv_read: slots [{}, {}) of a block of {}", first_slot,
                      first_slot + out.dim(0), shape.block_size));
}

}  // namespace

void kv_append(StreamRef stream, const KvAppendArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return kv_append_cpu(args);
    case Device::kCuda:
      return cuda::kv_append(stream.cuda_stream(), args);
  }
}

void kv_read_k(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out) {
  check_read(shape, first_slot, out);
  const std::int64_t lanes = kv_lanes(shape.k_type);
  for (std::int64_t token = 0; token < out.dim(0); ++token) {
    const std::int64_t slot = first_slot + token;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const std::int64_t word = d / lanes * shape.block_size + slot;
      out[token][d] =
          is_quantised(shape.k_type)
              ? quantised_element(shape, shape.k_type, block, slot, k_code_place(shape, slot, d))
              : element(shape.k_type, block, word * lanes + d % lanes);
    }
  }
}

void kv_read_v(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out) {
  check_read(shape, first_slot, out);
  const std::byte* part = block + shape.k_bytes();
  const std::int64_t lanes = kv_lanes(shape.v_type);
  for (std::int64_t token = 0; token < out.dim(0); ++token) {
    const std::int64_t slot = first_slot + token;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const std::int64_t word = slot / lanes * shape.head_dim + d;
      out[token][d] =
          is_quantised(shape.v_type)
              ? quantised_element(shape, shape.v_type, part, slot, v_code_place(shape, slot, d))
              : element(shape.v_type, part, word * lanes + slot % lanes);
    }
  }
}

}  // namespace longhaul
