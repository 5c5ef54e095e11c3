// Operators that work row by row, on one thread. See kernels/cpu/isa/kernels.h.
#include "kernels/cpu/isa/rows.h"

#include "kernels/cpu/isa/for_vectors.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
void rms_norm(const RmsNormTask& t) {
  for (std::int64_t row = 0; row < t.n_rows; ++row) {
    const float* x = t.x + row * t.x_stride;
    float* out = t.out + row * t.out_stride;
    Vec squares{};
    for_vectors(t.width, [&](std::int64_t i, auto access) {
      const Vec v = access.load(x + i);
      squares += v * v;
    });
    const float mean = sum_of(squares) / static_cast<float>(t.width);
    const Vec factor = broadcast(1.0F / __builtin_sqrtf(mean + t.eps));
    for_vectors(t.width, [&](std::int64_t i, auto access) {
      access.store(out + i, access.load(x + i) * factor * access.load(t.weight + i));
    });
  }
}

void swiglu(const SwigluTask& t) {
  for_vectors(t.n, [&](std::int64_t i, auto access) {
    const Vec x = access.load(t.gate + i);
    access.store(t.out + i, x / (1.0F + exp(-x)) * access.load(t.up + i));
  });
}

void rope(const RopeTask& t) {
  for (std::int64_t head = 0; head < t.n_heads; ++head) {
    float* first = t.x + head * t.head_stride;
    float* second = first + t.half;
    for_vectors(t.half, [&](std::int64_t i, auto access) {
      const Vec a = access.load(first + i);
      const Vec b = access.load(second + i);
      const Vec cos = access.load(t.cos + i);
      const Vec sin = access.load(t.sin + i);
      access.store(first + i, a * cos - b * sin);
      access.store(second + i, b * cos + a * sin);
    });
  }
}

void widen_bf16(const std::uint16_t* in, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t half;
    __builtin_memcpy(&half, in + i, sizeof half);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    __builtin_memcpy(out + i, &bits, sizeof bits);
  }
}

void combine(const CombineTask& t) {
  const Vec a = broadcast(t.a);
  const Vec b = broadcast(t.b);
  if (t.y == nullptr) {
    for_vectors(t.n, [&](std::int64_t i, auto access) {
      access.store(t.out + i, a * access.load(t.x + i));
    });
    return;
  }
  for_vectors(t.n, [&](std::int64_t i, auto access) {
    access.store(t.out + i, a * access.load(t.x + i) + b * access.load(t.y + i));
  });
}

RowStatistics row_statistics(const float* x, std::int64_t n) {
  Vec best = broadcast(-kInfinity);
  Ints nans{};
  std::int64_t whole = 0;
  for (; whole + kWidth <= n; whole += kWidth) {
    const Vec v = load(x + whole);
    best = max(best, v);
    nans |= v != v;
  }
  float max = max_of(best);
  bool has_nan = false;
  for (int lane = 0; lane < kWidth; ++lane) has_nan = has_nan || nans[lane] != 0;
  for (std::int64_t i = whole; i < n; ++i) {
    max = x[i] > max ? x[i] : max;
    has_nan = has_nan || x[i] != x[i];
  }
  RowStatistics out{max, 0.0, has_nan};
  if (has_nan || max == -kInfinity) return out;
  constexpr std::int64_t kRun = 4096;  // floats add up within a run, doubles over the runs
  for (std::int64_t begin = 0; begin < n; begin += kRun) {
    const std::int64_t end = n - begin < kRun ? n : begin + kRun;
    Vec sum{};
    std::int64_t i = begin;
    for (; i + kWidth <= end; i += kWidth) sum += exp(load(x + i) - max);
    float rest[kWidth];
    for (int lane = 0; lane < kWidth; ++lane) rest[lane] = -kInfinity;
    for (int lane = 0; i + lane < end; ++lane) rest[lane] = x[i + lane] - max;
    out.sum_of_exp += static_cast<double>(sum_of(sum + exp(load(rest))));
  }
  return out;
}

std::int64_t find_first(const float* x, std::int64_t n, float value) {
  constexpr std::int64_t kStep = 8 * kWidth;
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    Ints equal{};
    for (std::int64_t j = 0; j < kStep; j += kWidth) equal |= load(x + i + j) == value;
    int found = 0;
    for (int lane = 0; lane < kWidth; ++lane) found |= equal[lane];
    if (found != 0) break;
  }
  for (; i < n; ++i) {
    if (x[i] == value) return i;
  }
  return n;
}

// Word and half of element (token, dim): see kernels/kv_block.h.
void kv_append(const KvAppendTask& t) {
  const std::int64_t lanes = t.is_bf16 ? 2 : 1;
  auto* floats = reinterpret_cast<float*>(t.to);
  auto* halves = reinterpret_cast<std::uint16_t*>(t.to);
  for (std::int64_t token = 0; token < t.n_tokens; ++token) {
    const float* x = t.x + token * t.token_stride;
    const std::int64_t slot = t.first_slot + token;
    const std::int64_t run = (t.is_k ? t.block_size : 1) * lanes;  // between groups of dims
    const std::int64_t begin =
        t.is_k ? slot * lanes : slot / lanes * t.head_dim * lanes + slot % lanes;
    if (!t.is_bf16) {
      for (std::int64_t d = 0; d < t.head_dim; ++d) floats[begin + d * run] = x[d];
    } else if (t.is_k) {
      for (std::int64_t d = 0; d < t.head_dim; d += 2) {
        halves[begin + d / 2 * run] = to_bf16_bits(x[d]);
        halves[begin + d / 2 * run + 1] = to_bf16_bits(x[d + 1]);
      }
    } else {
      for (std::int64_t d = 0; d < t.head_dim; ++d) halves[begin + d * run] = to_bf16_bits(x[d]);
    }
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
