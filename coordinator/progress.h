// How far a run is, how fast it goes and how long it will take. Observes commands and results.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cluster/wire/step.h"
#include "coordinator/run_figures.h"

namespace longhaul {

// Seconds of a prefill step of n tokens after h earlier ones: a n + b n (h + n / 2), because each
// token attends to all before it. Least squares over the tokens seen, with a, b >= 0.
class PrefillCost {
 public:
  void add(std::int64_t n_tokens, std::int64_t history, double seconds);
  // Of `n_tokens` more after `history`, in any number of steps; 0 while no step was seen.
  double seconds_for(double n_tokens, double history) const;

 private:
  double xx_ = 0, xy_ = 0, yy_ = 0, xs_ = 0, ys_ = 0;  // sums over tokens
};

// A step as it was: chunks have tokens after `history` earlier ones, answers a token for each of
// n_tokens sequences, the longest of which has `history`.
struct StepOfRun {
  std::size_t lane = 0;
  bool is_prefill = false;
  std::int64_t n_tokens = 0;
  std::int64_t history = 0;
  double seconds = 0;
};

// What a run has to do, in bytes of text: token counts are known only when a group is prepared.
struct ProgressTotals {
  std::vector<std::size_t> group_bytes;  // of each group's documents, in order
  std::int64_t n_requests = 0;
};

// Thread-safe: the engines of several replicas tell one Progress, each in a lane of its own.
class Progress {
 public:
  // `now` says what time it is.
  explicit Progress(ProgressTotals totals, std::function<Deadline()> now = Clock::now)
      : now_(std::move(now)), totals_(std::move(totals)), lanes_(1) {}

  // Before anything is told: how many engines there are.
  void set_lanes(std::size_t n_lanes);
  // Likewise: who else hears of every step that is done, of all lanes, one at a time.
  void hand_steps_to(std::function<void(const StepOfRun&)> listener);

  // The next group, and the tokens of each of its documents.
  void group_prepared(std::vector<std::int64_t> document_lengths, std::size_t lane = 0);
  void sent(const StepCommand& command, std::size_t lane = 0);
  void received(const StepResult& result, std::size_t lane = 0);
  // What a draft model guessed for the next batch, which waited for it so long.
  void drafted(std::int64_t n_guesses, double seconds, std::size_t lane = 0);
  void request_ended(bool ok, std::int64_t n_generated);
  void request_answered(const AnsweredRequest& request);
  void set_running(std::size_t n_requests, std::size_t lane = 0);
  // The prepared documents that are not read whole yet: [tokens read, tokens).
  void set_unread(std::vector<Extent> unread, std::size_t lane = 0);

  // Until documents of so many tokens each are read, after those that this lane has not read yet;
  // 0 while nothing was measured.
  double seconds_until_read(const std::vector<std::int64_t>& document_lengths,
                            std::size_t lane) const;
  // Of what is left; negative while nothing was measured.
  double eta_seconds() const;
  // With at most so many documents.
  RunFigures figures(std::size_t most_documents = 100) const;
  // "documents 3/20  requests 12/100 (1 failed)  prefill 412k tokens, 18.2k/s  ...", without the
  // parts that matter least where the whole does not fit so many columns.
  std::string line(std::size_t width = std::numeric_limits<std::size_t>::max()) const;
  // The same at the end: what was done, and nothing of what is left.
  std::string summary() const;

 private:
  struct Sent {
    bool is_prefill = false;
    std::int64_t n_tokens = 0;
    std::int64_t history = 0;
    std::int64_t n_guesses = 0;
  };
  struct Lane {
    std::deque<Sent> sent;
    std::unordered_map<SequenceId, std::int64_t> lengths;
    std::vector<Extent> unread;
    std::size_t n_running = 0;
    std::size_t kv_bytes = 0;
    double prefill_seconds = 0;
    double decode_seconds = 0;
    std::optional<Deadline> begin;  // of its first step
    double seconds = 0;             // from there to the end of its last
  };
  struct Part {
    std::string text;
    int drop;  // the greatest goes first
  };
  std::vector<Part> parts_locked() const;
  std::vector<std::int64_t> read_locked() const;
  bool is_read(std::size_t group, const std::vector<std::int64_t>& read) const;
  double document_tokens_per_byte() const;
  double eta_locked() const;
  double unread_seconds(const Lane& lane) const;
  double document_seconds() const;
  double answer_seconds() const;
  double seconds_of(double Lane::*kind) const;

  const std::function<Deadline()> now_;
  mutable std::mutex mutex_;  // guards what follows
  ProgressTotals totals_;
  std::function<void(const StepOfRun&)> listener_;
  std::vector<Lane> lanes_;
  PrefillCost cost_;
  struct Prepared {
    std::vector<std::int64_t> documents;  // their tokens
    std::int64_t n_tokens = 0;
    std::size_t lane = 0;
  };
  std::vector<Prepared> prepared_;  // groups, in order
  RunFigures of_requests_;          // what request_answered() and received() add up
  std::size_t n_groups_prepared_ = 0;
  std::size_t bytes_prepared_ = 0;
  std::size_t tokens_prepared_ = 0;
  std::int64_t n_prefilled_ = 0;
  std::int64_t n_decoded_ = 0;
  std::int64_t n_decode_rows_ =
      0;  // each of which gave one of them, and its guesses that came true
  std::int64_t n_guesses_ = 0;
  std::int64_t n_drafted_ = 0;  // of them, by a draft model
  double draft_seconds_ = 0;
  std::int64_t n_ok_ = 0;
  std::int64_t n_failed_ = 0;
  std::int64_t n_generated_ = 0;
};

}  // namespace longhaul
