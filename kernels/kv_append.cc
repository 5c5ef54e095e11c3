#include "kernels/kv_append.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda_absent.h"
#include "kernels/kv_block_check.h"
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

void append_item(const KvBlockShape& shape, const KvAppendItem& item) {
  for (std::int64_t token = 0; token < item.k.dim(0);) {
    const std::int64_t slot = item.first_slot + token;
    const std::int64_t within = slot % shape.block_size;
    const std::int64_t n_tokens = std::min(shape.block_size - within, item.k.dim(0) - token);
    std::byte* block = item.blocks[static_cast<std::size_t>(slot / shape.block_size)];
    cpu::KvAppendTask task = {.x = item.k.data() + token * item.k.stride(0),
                              .token_stride = item.k.stride(0),
                              .n_tokens = n_tokens,
                              .head_dim = shape.head_dim,
                              .to = block,
                              .block_size = shape.block_size,
                              .first_slot = within,
                              .is_bf16 = shape.k_dtype == DType::kBf16,
                              .is_k = true};
    cpu::kernels().kv_append(task);
    task.x = item.v.data() + token * item.v.stride(0);
    task.token_stride = item.v.stride(0);
    task.to = block + shape.k_bytes();
    task.is_bf16 = shape.v_dtype == DType::kBf16;
    task.is_k = false;
    cpu::kernels().kv_append(task);
    token += n_tokens;
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

float element(DType dtype, const std::byte* data, std::int64_t index) {
  if (dtype == DType::kF32) {
    float out;
    std::memcpy(&out, data + index * 4, sizeof out);
    return out;
  }
  BFloat16 out;
  std::memcpy(&out.bits, data + index * 2, sizeof out.bits);
  return to_float(out);
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
      cuda_absent("kv_append");
  }
}

void kv_read_k(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out) {
  check_read(shape, first_slot, out);
  const std::int64_t lanes = shape.k_dtype == DType::kBf16 ? 2 : 1;
  for (std::int64_t token = 0; token < out.dim(0); ++token) {
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const std::int64_t vector = d / lanes * shape.block_size + first_slot + token;
      out[token][d] = element(shape.k_dtype, block, vector * lanes + d % lanes);
    }
  }
}

void kv_read_v(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out) {
  check_read(shape, first_slot, out);
  const std::int64_t lanes = shape.v_dtype == DType::kBf16 ? 2 : 1;
  for (std::int64_t token = 0; token < out.dim(0); ++token) {
    const std::int64_t slot = first_slot + token;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const std::int64_t vector = slot / lanes * shape.head_dim + d;
      out[token][d] =
          element(shape.v_dtype, block + shape.k_bytes(), vector * lanes + slot % lanes);
    }
  }
}

}  // namespace longhaul
