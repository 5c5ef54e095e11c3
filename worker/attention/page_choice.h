// Which pages the queries of a decode step read (ReadTopPages): each query head of a KV head by
// itself the sequence's last page and those with the highest bounds. start here: run().
//
// On a ring a head's pages may lie with several ranks. Each sends the bounds of its best ones; the
// best of all are the same pages that one rank would choose, and each home attends to its own:
//
//   3 pages beside the last, rank 0 has pages 0 1 2 6, rank 1 has 3 4 5 and the last one
//   rank 0 sends 2 (9.1) 0 (4.0) 6 (3.2)       both choose 2, 4, 0
//   rank 1 sends 4 (7.5) 3 (1.0) 5 (0.3)       rank 0 attends to 0 2, rank 1 to 4 and the last
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "worker/attention/attention_work.h"
#include "worker/attention/gather_bytes.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

// Used by one thread. Bounds are made by the stream's device; pages are chosen on the host.
class PageChoice {
 public:
  // The layout must outlive it.
  PageChoice(const CacheLayout& layout, StreamRef stream);

  // Whether the head's queries choose.
  bool chooses(LayerId layer, KvHeadId kv_head) const;

  // Starts an empty list for one layer.
  void begin(LayerId layer);
  // One row of the KV head's queries, and the cache of its sequence. `row` is the same on every
  // rank. Queries, states and blocks stay where they are until the work that run() adds is done.
  void add(const QueryRows& queries, KvHeadId kv_head, std::int64_t row, SequenceCache& cache);
  // Chooses, and adds the chosen pages that are here to `work`. With `gather` collective over the
  // ring: what all ranks have of something, in ring order; without it all pages are here.
  void run(const GatherBytes* gather, AttentionWork& work);

  // Numbers of the pages that are here and were chosen, of the i-th query head since begin(), in
  // the order in which they were added.
  std::vector<std::int64_t> chosen(std::size_t i) const;

 private:
  // A page of all ranks', as it travels.
  struct Candidate {
    std::int64_t question = 0;  // row and query head of the model
    std::int64_t page = 0;
    double bound = 0;
  };
  // One query head.
  struct Question {
    std::int64_t number = 0;
    QueryRows queries;  // one row
    Extent heads;       // one head of them
    ReadTopPages choose;
    std::int64_t last_page = 0;
    std::span<const PageBounds::Page> pages;  // that are here, ascending
    std::size_t first_bound = 0;              // of their bounds
    std::span<const KvBlockRef> blocks;
    std::vector<Candidate> best = {};           // of those that are here
    std::vector<PageBounds::Page> chosen = {};  // that are here, ascending
  };

  // The query heads of one KV head in one row.
  struct Group {
    std::span<const float> q;  // [n_heads, head_dim]
    std::span<const float* const> tiles;
    std::size_t first_bound = 0;
  };

  void find_bounds();
  void find_best();
  void join(const GatherBytes& gather);
  void take_chosen(Question& question) const;
  void attend(const Question& question, AttentionWork& work);

  const CacheLayout& layout_;
  StreamRef stream_;
  LayerId layer_;
  std::vector<Group> groups_;
  std::vector<Question> questions_;
  // Of all questions, reused: allocated anew for each layer they would be new pages of memory.
  std::vector<float> bounds_;
  std::vector<std::int32_t> best_;
  std::deque<std::vector<KvBlockRef>> refs_;
  std::array<std::int64_t, 1> position_;  // of every query, in the words of attend()
};

}  // namespace longhaul
