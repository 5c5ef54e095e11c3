// compensate: a thread block for each item, which lets tokens go and asks queries in the order of
// their positions, as one must: each query has the sums of what is gone for itself. A thread has
// some dimensions of the sums; products are summed over threads.
#include <algorithm>
#include <vector>

#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/key_values.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softmax_state.cuh"
#include "kernels/cuda/state_ref.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

struct Item {
  const float* q;  // [q_len, gqa_group, head_dim]
  std::int64_t q_token_stride;
  std::int64_t q_head_stride;
  std::int64_t q_len;
  std::int64_t gqa_group;
  std::int64_t positions_at;  // of [q_len]
  std::int64_t blocks_at;     // of the blocks of those that go
  std::int64_t sink;
  std::int64_t recent;
  std::int64_t n_before;  // tokens gone
  std::int64_t n_in_the_end;
  StateRef state;
};
static_assert(sizeof(Item) == kCompensateItemBytes);
static_assert(sizeof(KvBlockRef) == kBlockRefBytes);

struct CompensateWork {
  const Item* items;
  const std::int64_t* positions;
  const KvBlockRef* blocks;
  double* sums;  // [n_items, k and v, head_dim]
  KeyPart k;
  KeyPart v;
  float sm_scale;
  bool operator==(const CompensateWork&) const = default;
};

// One thread's part of an item's sums.
class Gone {
 public:
  __device__ Gone(const CompensateWork& work, const Item& item)
      : work_(work),
        item_(item),
        block_(work.blocks + item.blocks_at),
        k_(work.sums + static_cast<std::int64_t>(blockIdx.x) * 2 * work.k.head_dim),
        v_(k_ + work.k.head_dim),
        n_(item.n_before) {}

  // Until so many tokens are gone.
  __device__ void until(std::int64_t n) {
    for (; n_ < n; ++n_) {
      const std::int64_t position = item_.sink + n_;
      while (position >= block_->first_position + block_->n_tokens) ++block_;
      const std::int64_t slot = position - block_->first_position;
      for (std::int64_t d = threadIdx.x; d < work_.k.head_dim; d += kChoiceThreads) {
        k_[d] += static_cast<double>(key_value(work_.k, block_->data, d, slot));
        v_[d] += static_cast<double>(cached_value(work_.v, block_->data, d, slot));
      }
    }
  }

  // Merges the key that stands for what is gone into one head's state. All threads call.
  __device__ void add_to(std::int64_t token, std::int64_t head, double* shared) const {
    const float* q = item_.q + token * item_.q_token_stride + head * item_.q_head_stride;
    double product = 0.0;
    for (std::int64_t d = threadIdx.x; d < work_.k.head_dim; d += kChoiceThreads)
      product += static_cast<double>(q[d]) * k_[d];
    product = reduce_block(product, Add(), shared);
    const auto n = static_cast<double>(n_);
    const double logit = static_cast<double>(work_.sm_scale) * product / n + log(n);
    float* m = item_.state.m_at(token, head);
    float* l = item_.state.l_at(token, head);
    float* o = item_.state.o_at(token, head);
    const double before = static_cast<double>(*m);
    const double sum = static_cast<double>(*l);
    const bool is_empty = *m == minus_infinity();
    const double reference = Larger()(before, logit);
    const double keeps = is_empty ? 0.0 : exp(before - reference);
    const double weight = exp(logit - reference);
    for (std::int64_t d = threadIdx.x; d < work_.k.head_dim; d += kChoiceThreads)
      o[d] = static_cast<float>(static_cast<double>(o[d]) * keeps + weight / n * v_[d]);
    __syncthreads();  // m and l are read before they are written, the threads' products before the
                      // next ones
    if (threadIdx.x != 0) return;
    *m = static_cast<float>(reference);
    *l = static_cast<float>(sum * keeps + weight);
  }
  __device__ bool is_any() const { return n_ > 0; }

 private:
  const CompensateWork& work_;
  const Item& item_;
  const KvBlockRef* block_;
  double* k_;
  double* v_;
  std::int64_t n_;
};

// grid.x is the item. Shared: a double for each warp.
__global__ void compensate_kernel(CompensateWork work) {
  auto* shared = reinterpret_cast<double*>(shared_memory());
  const Item item = work.items[blockIdx.x];
  Gone gone(work, item);
  for (std::int64_t i = 0; i < item.q_len; ++i) {
    gone.until(work.positions[item.positions_at + i] - item.recent - item.sink + 1);
    if (!gone.is_any()) continue;
    for (std::int64_t head = 0; head < item.gqa_group; ++head) gone.add_to(i, head, shared);
  }
  gone.until(item.n_in_the_end);
}

// The blocks of the tokens that go, to the end of `blocks`.
void add_blocks(const CompensateItem& item, std::int64_t n_in_the_end,
                std::vector<KvBlockRef>& blocks) {
  std::int64_t next = item.sink + item.sums->n;
  const std::int64_t end = item.sink + n_in_the_end;
  for (const KvBlockRef& block : item.blocks) {
    if (next >= end || block.first_position > next) break;
    if (block.first_position + block.n_tokens <= next) continue;
    blocks.push_back(block);
    next = block.first_position + block.n_tokens;
  }
  require(next >= end, "compensate: a token that goes is not in the cache");
}

}  // namespace

void compensate(Stream& stream, const CompensateArgs& args) {
  const auto head_dim = static_cast<std::size_t>(args.shape.head_dim);
  std::vector<Item> items;
  std::vector<std::int64_t> positions;
  std::vector<KvBlockRef> blocks;
  std::vector<double> before;
  std::vector<const CompensateItem*> of_items;
  for (const CompensateItem& item : args.items) {
    const std::int64_t n_in_the_end = n_gone_in_the_end(item);
    if (n_in_the_end == 0 || (n_in_the_end == item.sums->n && item.q_positions.empty())) continue;
    const bool has_queries = !item.q_positions.empty();
    items.push_back({.q = item.q.data(),
                     .q_token_stride = has_queries ? item.q.stride(0) : 0,
                     .q_head_stride = has_queries ? item.q.stride(1) : 0,
                     .q_len = static_cast<std::int64_t>(item.q_positions.size()),
                     .gqa_group = has_queries ? item.q.dim(1) : 0,
                     .positions_at = static_cast<std::int64_t>(positions.size()),
                     .blocks_at = static_cast<std::int64_t>(blocks.size()),
                     .sink = item.sink,
                     .recent = item.recent,
                     .n_before = item.sums->n,
                     .n_in_the_end = n_in_the_end,
                     .state = has_queries ? state_ref(item.state) : StateRef{}});
    positions.insert(positions.end(), item.q_positions.begin(), item.q_positions.end());
    add_blocks(item, n_in_the_end, blocks);
    for (std::vector<double>* sums : {&item.sums->k, &item.sums->v}) {
      sums->resize(head_dim);
      before.insert(before.end(), sums->begin(), sums->end());
    }
    of_items.push_back(&item);
  }
  if (items.empty()) return;
  Parcel parcel;
  const std::size_t items_at = parcel.add(items);
  const std::size_t positions_at = parcel.add(positions);
  const std::size_t blocks_at = parcel.add(blocks);
  const std::size_t sums_at = parcel.add(before);
  const std::byte* base = stream.upload(parcel.bytes());
  const std::size_t sum_bytes = before.size() * sizeof(double);
  std::byte* sums = stream.scratch(sum_bytes);
  copy_on_device(stream, sums, base + sums_at, sum_bytes);
  const CompensateWork work = {.items = part<Item>(base, items_at),
                               .positions = part<std::int64_t>(base, positions_at),
                               .blocks = part<KvBlockRef>(base, blocks_at),
                               .sums = reinterpret_cast<double*>(sums),
                               .k = key_part(args.shape),
                               .v = value_part(args.shape),
                               .sm_scale = args.sm_scale};
  launch(stream, "compensate", compensate_kernel,
         {.x = static_cast<std::int64_t>(items.size()),
          .block = kChoiceThreads,
          .shared_bytes = kChoiceThreads / kWarp * sizeof(double)},
         work);
  const auto* after = reinterpret_cast<const double*>(stream.download(sums, sum_bytes));
  for (std::size_t i = 0; i < items.size(); ++i) {
    GoneSums& of_item = *of_items[i]->sums;
    std::copy_n(after + 2 * i * head_dim, head_dim, of_item.k.begin());
    std::copy_n(after + (2 * i + 1) * head_dim, head_dim, of_item.v.begin());
    of_item.n = items[i].n_in_the_end;
  }
}

}  // namespace longhaul::cuda
