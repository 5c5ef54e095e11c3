// A small model that guesses how answers go on, one token after the other, for a large one that
// checks its guesses (speculative decoding, Leviathan et al. 2023, arXiv 2211.17192; Chen et al.
// 2023, arXiv 2302.01318). It draws its tokens with the same random numbers as the large one draws
// at the same places, which agree more often than independent draws do (drafts as in Daliri et al.
// 2024, arXiv 2408.07978).
#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cluster/wire/link.h"
#include "coordinator/draft_text.h"

namespace longhaul {

struct DraftConfig {
  std::int64_t chunk_len = 512;  // tokens of one prefill step
  std::int64_t vocab_size = 0;   // ids that both models have
  // Documents whose beginning is kept for requests to come.
  std::size_t most_documents = 8;
};

// What is to be guessed for one sequence of the large model.
struct DraftWish {
  SequenceId sequence;
  const DraftText* text = nullptr;  // all of it is certain, nothing of its last token computed yet
  SamplingParams sampling;          // as the large model picks
  std::int64_t most = 0;            // guesses; at least 1
};

// Used by one thread; the link, whose worker is the small model's, must outlive it.
class DraftModel {
 public:
  DraftModel(const DraftConfig& config, Link& link) : config_(config), link_(link) {}

  // For each wish up to as many tokens. What the text has since the last time is read first, and
  // guesses that it does not go on with are forgotten. Where the small model fails, as with a full
  // cache, there are none. Throws what the link throws. Blocks while it computes.
  std::vector<std::vector<std::int32_t>> guess(std::span<const DraftWish> wishes,
                                               Deadline deadline);
  // These sequences of the large model have ended; others may be among them.
  void forget(std::span<const SequenceId> sequences);

 private:
  struct Known {
    SequenceId id;                   // the small model's
    std::vector<std::int32_t> held;  // its tokens, guesses at the end
    std::int64_t n_certain = 0;      // that it cannot take back
    std::int64_t n_wrong = 0;        // of held, to be taken back before anything else
  };
  struct Shared {
    std::weak_ptr<const LookupDocument> document;
    SequenceId id;
    std::int64_t n_tokens = 0;
  };
  struct Row {
    const DraftWish* wish = nullptr;
    Known* known = nullptr;
    std::vector<std::int32_t> guesses;
  };

  std::optional<StepDone> run(StepCommand command, Deadline deadline);
  bool prefill(SequenceId id, std::span<const std::int32_t> tokens, AfterPrefill last,
               Deadline deadline);
  std::optional<SequenceId> shared_beginning(const DraftText& text, Deadline deadline);
  bool open(const DraftWish& wish, Known& known, Deadline deadline);
  Known* catch_up(const DraftWish& wish, Deadline deadline);
  bool read_news(std::span<Row> rows, Deadline deadline);
  bool look_further(std::span<Row> rows, Deadline deadline);
  bool is_known_id(std::int32_t token) const;
  void drop(SequenceId id, Deadline deadline);
  void drop_old_documents(Deadline deadline);

  DraftConfig config_;
  Link& link_;
  std::unordered_map<SequenceId, Known> known_;  // by the large model's sequence
  std::list<Shared> shared_;                     // the newest first
  std::vector<SequenceId> to_drop_;
  std::int64_t n_sequences_ = 0;
};

}  // namespace longhaul
