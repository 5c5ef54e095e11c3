// A sequence's caches as they are at one moment, for a thread that writes them while the sequence
// goes on: full blocks never change and are shared, the others are copied. Private to this folder.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/kv_block.h"
#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul {

class FrozenCache {
 public:
  // Bytes that freezing these pieces copies.
  static std::size_t copied_bytes(const SequenceCache& cache, std::span<const HeadPiece> pieces);

  // Of caches on the host. Made and destroyed by the thread that the caches' pool belongs to; what
  // it gives may be read by any one.
  FrozenCache(const SequenceCache& cache, std::span<const HeadPiece> pieces, const PartRest& rest);
  FrozenCache(const FrozenCache&) = delete;
  FrozenCache& operator=(const FrozenCache&) = delete;

  std::span<const HeadPiece> pieces() const { return pieces_; }
  const PartRest& rest() const { return rest_; }

 private:
  std::vector<HeadCache> shared_;                // owners of the full blocks
  std::vector<std::byte> copied_;                // the other blocks
  std::vector<std::vector<KvBlockRef>> blocks_;  // of each piece
  std::vector<std::vector<double>> attention_;   // of each piece, and its local part
  ObservedQueries queries_;
  std::vector<float> last_hidden_;
  std::vector<HeadPiece> pieces_;
  PartRest rest_;
};

}  // namespace longhaul
