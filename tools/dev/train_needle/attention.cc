// Causal attention of one layer for training on a CPU: rotary positions, masks and softmax in one
// pass over small tiles, forward and backward, one thread. It is not part of Longhaul: attention.py
// compiles it into a shared library. Plain torch needs the whole [n_tokens, n_tokens] score matrix
// in memory.
//
// Each query sees the first `sink` tokens and its last reach[query] ones. A query that reaches
// everything may count each far key several times (log_copies): a key counted m times adds log m to
// its score, so that 256 tokens stand for a haystack of a million.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int kDim = 64;  // head_dim
constexpr int kHalf = kDim / 2;
constexpr int kRows = 8;    // queries of a tile
constexpr int kLanes = 16;  // floats of a vector
constexpr float kHidden = -1e30F;

typedef float Vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::int32_t IntVec __attribute__((vector_size(64), aligned(4), may_alias));

Vec& vec(float* p) { return *reinterpret_cast<Vec*>(p); }
Vec vec(const float* p) { return *reinterpret_cast<const Vec*>(p); }

const IntVec kIota = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// e^x for x <= 0.1 or so, 3e-7 relative: 2^n times a polynomial in the rest.
inline Vec exponential(Vec x) {
  x = x > -87.F ? x : Vec{} - 87.F;
  const Vec t = x * 1.44269504F;
  const IntVec n =
      __builtin_convertvector(t - 0.5F, IntVec);  // rounds to nearest, t being negative
  const Vec f = t - __builtin_convertvector(n, Vec);
  Vec p = Vec{} + 1.5403530e-4F;
  p = p * f + 1.33335581e-3F;
  p = p * f + 9.61812911e-3F;
  p = p * f + 5.55041087e-2F;
  p = p * f + 2.40226507e-1F;
  p = p * f + 6.93147181e-1F;
  p = p * f + 1.F;
  const IntVec scale = (n + 127) << 23;
  return p * reinterpret_cast<const Vec&>(scale);
}

float sum(Vec v) {
  float s = 0;
  for (int i = 0; i < kLanes; ++i) s += v[i];
  return s;
}

float largest(Vec v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = std::max(m, v[i]);
  return m;
}

float dot(const float* a, const float* b) {
  Vec s{};
  for (int d = 0; d < kDim; d += kLanes) s += vec(a + d) * vec(b + d);
  return sum(s);
}

struct Range {
  int begin, end;  // keys, multiples of kLanes
};

// The keys that some query of a tile sees: one range, or the sinks and the recent tokens.
struct Ranges {
  Range range[2];
  int count;
  const Range* begin() const { return range; }
  const Range* end() const { return range + count; }
};

int round_up(int n) { return (n + kLanes - 1) / kLanes * kLanes; }

// scores[r][j] = a[r] . b[j] for b_t[d][j], kRows rows at a time.
template <int kColumns>
inline void multiply_columns(const float* a, const float* b_t, int ld, int j, float* scores) {
  constexpr int kVectors = kColumns / kLanes;
  Vec acc[kRows][kVectors] = {};
  for (int d = 0; d < kDim; ++d) {
    Vec b[kVectors];
    for (int c = 0; c < kVectors; ++c) b[c] = vec(b_t + std::size_t(d) * ld + j + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kVectors; ++c) acc[r][c] += a[r * kDim + d] * b[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kVectors; ++c)
      vec(scores + std::size_t(r) * ld + j + c * kLanes) = acc[r][c];
}

void multiply_transposed(const float* a, const float* b_t, int ld, Range keys, float* scores) {
  int j = keys.begin;
  for (; j + 2 * kLanes <= keys.end; j += 2 * kLanes)
    multiply_columns<2 * kLanes>(a, b_t, ld, j, scores);
  for (; j < keys.end; j += kLanes) multiply_columns<kLanes>(a, b_t, ld, j, scores);
}

// out[r] += sum over j of p[r][j] * v[j]
void accumulate_rows(const float* p, int ld, const float* v, Range keys, float* out) {
  for (int h = 0; h < kDim; h += 2 * kLanes) {
    Vec acc[kRows][2];
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < 2; ++c) acc[r][c] = vec(out + r * kDim + h + c * kLanes);
    for (int j = keys.begin; j < keys.end; ++j) {
      const Vec v0 = vec(v + std::size_t(j) * kDim + h),
                v1 = vec(v + std::size_t(j) * kDim + h + kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float w = p[std::size_t(r) * ld + j];
        acc[r][0] += w * v0;
        acc[r][1] += w * v1;
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < 2; ++c) vec(out + r * kDim + h + c * kLanes) = acc[r][c];
  }
}

// out[j] += sum over r of p[r][j] * x[r]
void accumulate_keys(const float* p, int ld, const float* x, Range keys, float* out) {
  for (int h = 0; h < kDim; h += 2 * kLanes) {
    Vec row[kRows][2];
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < 2; ++c) row[r][c] = vec(x + r * kDim + h + c * kLanes);
    for (int j = keys.begin; j < keys.end; ++j) {
      float* o = out + std::size_t(j) * kDim + h;
      Vec o0 = vec(o), o1 = vec(o + kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float w = p[std::size_t(r) * ld + j];
        o0 += w * row[r][0];
        o1 += w * row[r][1];
      }
      vec(o) = o0;
      vec(o + kLanes) = o1;
    }
  }
}

// y = scale * x rotated by the angles (direction +1) or back (direction -1).
void rotate(const float* x, const float* cos, const float* sin, float direction, float scale,
            float* y) {
  for (int d = 0; d < kHalf; ++d) {
    const float a = x[d], b = x[d + kHalf], s = direction * sin[d];
    y[d] = (a * cos[d] - b * s) * scale;
    y[d + kHalf] = (b * cos[d] + a * s) * scale;
  }
}

}  // namespace

// Filled in by attention.py; row-major, float32.
struct AttentionArgs {
  const float* qkv;  // [n_sequences, n_tokens, (n_heads + 2 n_kv_heads) * kDim], before rotation
  const float* cos;  // [n_sequences, n_tokens, kHalf]
  const float* sin;  // the same
  const float* log_copies;    // [n_sequences, round_up(n_tokens)]
  const std::int32_t* reach;  // [n_sequences, n_kv_heads, n_tokens]; n_tokens or more: everything
  float* out;                 // [n_sequences, n_tokens, n_heads * kDim]
  float* log_sum;             // [n_sequences, n_heads, n_tokens], kept for the backward pass
  const float* grad_out;      // like out; backward only
  float* grad_qkv;            // like qkv; backward only
  std::int32_t n_sequences, n_tokens, n_heads, n_kv_heads;
  std::int32_t sink, near;  // keys at most `near` back are never counted more than once
};

namespace {

// One key-value head of one sequence: rotated keys and values, both ways round, and the scores of a
// tile.
class Head {
 public:
  Head(const AttentionArgs& args, int sequence, int kv_head)
      : args_(args),
        sequence_(sequence),
        kv_head_(kv_head),
        padded_(round_up(args.n_tokens)),
        row_((args.n_heads + 2 * args.n_kv_heads) * kDim) {
    const std::size_t n = std::size_t(padded_) * kDim;
    for (auto* matrix : {&keys, &keys_t, &values, &values_t}) matrix->assign(n, 0.F);
    scores.assign(std::size_t(kRows) * padded_, 0.F);
    for (int j = 0; j < args.n_tokens; ++j) {
      rotate(input(j, args.n_heads + kv_head), cos(j), sin(j), 1, 1, &keys[std::size_t(j) * kDim]);
      std::memcpy(&values[std::size_t(j) * kDim],
                  input(j, args.n_heads + args.n_kv_heads + kv_head), kDim * sizeof(float));
    }
    transpose(keys, keys_t);
    transpose(values, values_t);
  }

  int padded() const { return padded_; }
  const float* cos(int token) const {
    return args_.cos + (std::size_t(sequence_) * args_.n_tokens + token) * kHalf;
  }
  const float* sin(int token) const {
    return args_.sin + (std::size_t(sequence_) * args_.n_tokens + token) * kHalf;
  }
  const float* input(int token, int head) const { return args_.qkv + input_offset(token, head); }
  std::size_t input_offset(int token, int head) const {
    return (std::size_t(sequence_) * args_.n_tokens + token) * row_ + std::size_t(head) * kDim;
  }
  std::size_t out_offset(int token, int head) const {
    return ((std::size_t(sequence_) * args_.n_tokens + token) * args_.n_heads + head) * kDim;
  }
  std::size_t sum_offset(int token, int head) const {
    return (std::size_t(sequence_) * args_.n_heads + head) * args_.n_tokens + token;
  }

  void load_queries(int first, int n, int head, float* q) const {
    std::memset(q, 0, kRows * kDim * sizeof(float));
    const float scale = 1.F / std::sqrt(float(kDim));
    for (int r = 0; r < n; ++r)
      rotate(input(first + r, head), cos(first + r), sin(first + r), 1, scale, q + r * kDim);
  }

  Ranges visible(int first, int n) const {
    const int end = round_up(first + n);
    int begin = first;
    for (int r = 0; r < n; ++r) begin = std::min(begin, first + r + 1 - reach(first + r));
    begin = std::max(0, begin) / kLanes * kLanes;
    const int sinks = round_up(args_.sink);
    if (begin <= sinks) return {{{0, end}, {0, 0}}, 1};
    return {{{0, sinks}, {begin, end}}, 2};
  }

  // Scores of kRows queries with the visible keys, masked.
  void score(const float* q, int first, int n, const Ranges& ranges) {
    for (const Range keys : ranges) {
      multiply_transposed(q, keys_t.data(), padded_, keys, scores.data());
      for (int r = 0; r < kRows; ++r)
        mask(first + std::min(r, n - 1), keys, &scores[std::size_t(r) * padded_]);
    }
  }

  std::vector<float> keys, keys_t, values, values_t;  // [padded, kDim] and [kDim, padded]
  std::vector<float> scores;                          // [kRows, padded]

 private:
  // kLanes tokens at a time, so that whole cache lines are written.
  void transpose(const std::vector<float>& from, std::vector<float>& to) const {
    for (int j = 0; j < padded_; j += kLanes)
      for (int d = 0; d < kDim; ++d)
        for (int i = 0; i < kLanes; ++i)
          to[std::size_t(d) * padded_ + j + i] = from[std::size_t(j + i) * kDim + d];
  }

  int reach(int token) const {
    return args_
        .reach[(std::size_t(sequence_) * args_.n_kv_heads + kv_head_) * args_.n_tokens + token];
  }

  void mask(int query, Range keys, float* row) const {
    const int recent = query + 1 - reach(query);  // the first recent key
    const bool everything = reach(query) >= args_.n_tokens;
    const float* copies = args_.log_copies + std::size_t(sequence_) * padded_;
    for (int j = keys.begin; j < keys.end; j += kLanes) {
      const IntVec key = kIota + j;
      Vec s = vec(row + j);
      if (everything) s += key < query - args_.near ? vec(copies + j) : Vec{};
      const IntVec seen = (key <= query) & ((key >= recent) | (key < args_.sink));
      vec(row + j) = seen ? s : Vec{} + kHidden;
    }
  }

  const AttentionArgs& args_;
  int sequence_, kv_head_, padded_, row_;
};

// Replaces a row of scores by e^(score - max); returns log of the sum of e^score.
float soften(const Ranges& ranges, float* row, float& total) {
  Vec most = Vec{} + kHidden;
  for (const Range keys : ranges)
    for (int j = keys.begin; j < keys.end; j += kLanes)
      most = vec(row + j) > most ? vec(row + j) : most;
  const float top = largest(most);
  Vec s{};
  for (const Range keys : ranges)
    for (int j = keys.begin; j < keys.end; j += kLanes)
      s += vec(row + j) = exponential(vec(row + j) - top);
  total = sum(s);
  return top + std::log(total);
}

void forward(const AttentionArgs& args, Head& head, int query_head) {
  alignas(64) float q[kRows * kDim], out[kRows * kDim];
  for (int first = 0; first < args.n_tokens; first += kRows) {
    const int n = std::min(kRows, args.n_tokens - first);
    head.load_queries(first, n, query_head, q);
    const Ranges ranges = head.visible(first, n);
    head.score(q, first, n, ranges);
    float total[kRows];
    for (int r = 0; r < kRows; ++r) {
      const float log_sum = soften(ranges, &head.scores[std::size_t(r) * head.padded()], total[r]);
      if (r < n) args.log_sum[head.sum_offset(first + r, query_head)] = log_sum;
    }
    std::memset(out, 0, sizeof out);
    for (const Range keys : ranges)
      accumulate_rows(head.scores.data(), head.padded(), head.values.data(), keys, out);
    for (int r = 0; r < n; ++r)
      for (int d = 0; d < kDim; ++d)
        args.out[head.out_offset(first + r, query_head) + d] = out[r * kDim + d] / total[r];
  }
}

struct Gradients {
  std::vector<float> keys, values, scores;
};

void backward(const AttentionArgs& args, Head& head, int query_head, Gradients& grad) {
  const int ld = head.padded();
  const float scale = 1.F / std::sqrt(float(kDim));
  alignas(64) float q[kRows * kDim], grad_out[kRows * kDim], grad_q[kRows * kDim];
  for (int first = 0; first < args.n_tokens; first += kRows) {
    const int n = std::min(kRows, args.n_tokens - first);
    head.load_queries(first, n, query_head, q);
    const Ranges ranges = head.visible(first, n);
    head.score(q, first, n, ranges);
    std::memset(grad_out, 0, sizeof grad_out);
    for (int r = 0; r < n; ++r)
      std::memcpy(grad_out + r * kDim, args.grad_out + head.out_offset(first + r, query_head),
                  kDim * sizeof(float));
    std::memset(grad_q, 0, sizeof grad_q);
    for (const Range keys : ranges) {
      multiply_transposed(grad_out, head.values_t.data(), ld, keys, grad.scores.data());
      for (int r = 0; r < kRows; ++r) {
        float* p = &head.scores[std::size_t(r) * ld];
        float* dp = &grad.scores[std::size_t(r) * ld];
        const bool real = r < n;
        const float log_sum = real ? args.log_sum[head.sum_offset(first + r, query_head)] : 0.F;
        const float mean =
            real ? dot(grad_out + r * kDim, args.out + head.out_offset(first + r, query_head))
                 : 0.F;
        for (int j = keys.begin; j < keys.end; j += kLanes) {
          const Vec s = vec(p + j);
          const Vec e = (s > 0.1F * kHidden) & (IntVec{} - std::int32_t(real))
                            ? exponential(s - log_sum)
                            : Vec{};
          vec(p + j) = e;
          vec(dp + j) = e * (vec(dp + j) - mean);
        }
      }
      accumulate_keys(head.scores.data(), ld, grad_out, keys, grad.values.data());
      accumulate_keys(grad.scores.data(), ld, q, keys, grad.keys.data());
      accumulate_rows(grad.scores.data(), ld, head.keys.data(), keys, grad_q);
    }
    for (int r = 0; r < n; ++r)
      rotate(grad_q + r * kDim, head.cos(first + r), head.sin(first + r), -1, scale,
             args.grad_qkv + head.input_offset(first + r, query_head));
  }
}

}  // namespace

extern "C" void attention_forward(const AttentionArgs* args) {
  const int group = args->n_heads / args->n_kv_heads;
  for (int b = 0; b < args->n_sequences; ++b)
    for (int k = 0; k < args->n_kv_heads; ++k) {
      Head head(*args, b, k);
      for (int g = 0; g < group; ++g) forward(*args, head, k * group + g);
    }
}

extern "C" void attention_backward(const AttentionArgs* args) {
  const int group = args->n_heads / args->n_kv_heads;
  Gradients grad;
  for (int b = 0; b < args->n_sequences; ++b)
    for (int k = 0; k < args->n_kv_heads; ++k) {
      Head head(*args, b, k);
      grad.keys.assign(head.keys.size(), 0.F);
      grad.values.assign(head.values.size(), 0.F);
      grad.scores.assign(head.scores.size(), 0.F);
      for (int g = 0; g < group; ++g) backward(*args, head, k * group + g, grad);
      for (int j = 0; j < args->n_tokens; ++j) {
        rotate(&grad.keys[std::size_t(j) * kDim], head.cos(j), head.sin(j), -1, 1,
               args->grad_qkv + head.input_offset(j, args->n_heads + k));
        std::memcpy(args->grad_qkv + head.input_offset(j, args->n_heads + args->n_kv_heads + k),
                    &grad.values[std::size_t(j) * kDim], kDim * sizeof(float));
      }
    }
}
