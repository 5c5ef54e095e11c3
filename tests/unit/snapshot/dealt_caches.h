// Caches of a made-up sequence, dealt to ranks by hand, and the comparison of the files that they
// are saved to with what was put in: by a script that knows h5py and nothing of Longhaul.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "tests/support/random.h"
#include "worker/kv/block_pool.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul::test {

struct DealtSpec {
  std::int64_t n_layers = 2;
  std::int64_t n_kv_heads = 2;
  KvBlockShape shape = {.block_size = 16, .head_dim = 8};
  std::int64_t n_tokens = 100;
  int n_ranks = 3;
  std::int64_t sink = 4;
  std::int64_t recent = 20;
};

// Retrieval heads (layer + head even) have their blocks dealt at random over the ranks; streaming
// heads live on one rank and lack the blocks between sink and recent. With types that quantise
// groups of tokens the partial last block is open. Values are random bits of every kind but NaN.
class DealtCaches {
 public:
  DealtCaches(const DealtSpec& spec, Random& random);

  const ModelSpec& model() const { return model_; }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::vector<HeadPiece> pieces(int rank) const;
  // All parts, then the master.
  void save(const SavedSequence& saved) const;
  SavedSequence saved_in(const std::filesystem::path& folder) const;
  // Puts what kv_read says into files that the script reads.
  void write_expectation(const std::filesystem::path& folder) const;

 private:
  struct Head {
    LayerId layer;
    KvHeadId kv_head;
    HeadKind kind = HeadKind::kRetrieval;
    KeyWindow window;
    std::vector<std::vector<KvBlockRef>> blocks;  // [rank]
    std::vector<KvBlockRef> open;                 // [rank], of no tokens but on one
  };
  std::vector<KvBlockRef> all_blocks(const Head& head) const;  // by position
  void fill(const Head& head, Random& random);
  void fill(const KvBlockShape& shape, const KvBlockRef& block, Random& random);
  // The head's blocks by position, each with its shape.
  std::vector<std::pair<KvBlockShape, KvBlockRef>> shaped_blocks(const Head& head) const;

  DealtSpec spec_;
  ModelSpec model_;
  BlockPool pool_;
  std::vector<std::int32_t> tokens_;
  std::vector<Named<std::string>> facts_;
  std::vector<Head> heads_;
};

bool has_h5py();
// Runs check_cache_files.py with these arguments: empty when it is satisfied, else what it says.
std::string run_check(const std::vector<std::string>& arguments);
// Everything that was put in is in the files, bit for bit.
testing::AssertionResult holds(const std::filesystem::path& master, const DealtCaches& caches);

}  // namespace longhaul::test

#define LONGHAUL_SKIP_UNLESS_H5PY() \
  if (!::longhaul::test::has_h5py()) GTEST_SKIP() << "skipped: no Python with h5py and numpy"
