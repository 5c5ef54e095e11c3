#include "partition/decode_slices.h"

#include <algorithm>
#include <cstddef>

#include "base/int8_format.h"
#include "partition/apportion.h"
#include "partition/decode_reads.h"

namespace longhaul {
namespace {

// Slices begin at multiples of this where there is enough for everybody: whole vectors and cache
// lines.
std::int64_t granule_of(std::int64_t total, std::size_t n_ranks) {
  std::int64_t granule = 64;
  while (granule > 1 && total / granule < 4 * static_cast<std::int64_t>(n_ranks)) granule /= 2;
  return granule;
}

// Levels base + slice * unit_bytes over the speeds, adds the slices' bytes to base.
IndexedVector<RingPos, Extent> cut_slices(std::int64_t total, std::int64_t granule,
                                          double unit_bytes,
                                          const IndexedVector<RingPos, double>& speed,
                                          IndexedVector<RingPos, double>& base) {
  const IndexedVector<RingPos, std::int64_t> parts(apportion_level(
      ceil_div(total, granule), base, unit_bytes * static_cast<double>(granule), speed));
  IndexedVector<RingPos, Extent> slices;
  std::int64_t begin = 0;
  for (const RingPos i : parts.ids()) {
    const std::int64_t end = std::min(total, begin + parts[i] * granule);
    slices.push_back({begin, end});
    base[i] += static_cast<double>(end - begin) * unit_bytes;
    begin = end;
  }
  return slices;
}

}  // namespace

void set_decode_slices(const Plan& plan, const ModelSpec& spec, const ClusterSpec& cluster,
                       const Workload& workload, DecodeBalance balance, Stage& stage) {
  IndexedVector<RingPos, double> speed;
  IndexedVector<RingPos, double> base(stage.ring.size(), 0.0);
  for (const Rank rank : stage.ring) speed.push_back(cluster.rank(rank).memory_gb_per_s);
  if (balance == DecodeBalance::kTotalBytes) {
    IndexedVector<Rank, double> bytes(cluster.ranks.size(), 0.0);
    const std::int64_t n_tokens = workload.document_tokens + workload.tail_tokens;
    for (const LayerId layer : stage.layer_ids()) {
      add_attention_reads(plan, stage, spec, workload, layer, workload.n_sequences, n_tokens,
                          bytes);
    }
    for (const RingPos i : base.ids()) base[i] = bytes[stage.ring[i]];
  }
  const DType dtype = workload.weights(spec);
  const double column = static_cast<double>(stage.layers.size()) * ffn_column_bytes(spec, dtype);
  // Columns whose activations share a scale stay together.
  const std::int64_t ffn_granule =
      is_integer(dtype) ? kInt8Group : granule_of(spec.d_ff, speed.size());
  stage.ffn_slice = cut_slices(spec.d_ff, ffn_granule, column, speed, base);
  if (balance == DecodeBalance::kEachPhase) std::fill(base.begin(), base.end(), 0.0);
  stage.vocab_slice.assign(stage.ring.size(), Extent{});
  if (stage.layers.end == spec.n_layers) {
    stage.vocab_slice = cut_slices(spec.vocab_size, granule_of(spec.vocab_size, speed.size()),
                                   vocab_row_bytes(spec, dtype), speed, base);
  }
}

}  // namespace longhaul
