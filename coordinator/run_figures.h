// How far a run is, as numbers: what progress lines, the status page and metrics are made from.
// Plain values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace longhaul {

// "412", "18.2k", "1.20M"
std::string count_text(double count);
// "32s", "4m05s", "3h12m"
std::string duration_text(double seconds);

// How long things took, counted in ranges: as a histogram of Prometheus.
class Durations {
 public:
  // Upper ends of the ranges, in seconds: of a token to a prompt of millions of them.
  static const std::vector<double>& bounds();
  void add(double seconds, std::int64_t times = 1);
  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }
  // [bounds().size()]: how many lasted at most so long.
  std::vector<std::int64_t> cumulative() const;

 private:
  std::vector<std::int64_t> counts_;  // of each range; empty before the first
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// One request that was answered.
struct AnsweredRequest {
  double queued_seconds = 0;       // from the run's start until it was taken up
  double first_token_seconds = 0;  // from there to its first token
  double seconds = 0;              // from there to its end
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_cached_tokens = 0;  // of these, shared with a prompt before
  std::string finish_reason;
};

struct RunFigures {
  struct Document {
    std::size_t group = 0;
    std::int64_t n_tokens = -1;  // -1: not known, it was not tokenised yet
    std::int64_t n_read = 0;
    std::size_t n_bytes = 0;
  };
  std::vector<Document> documents;  // some of them, where there are many: those next in line
  std::int64_t n_documents = 0;
  std::int64_t n_documents_read = 0;
  std::int64_t n_requests = 0;
  std::int64_t n_ok = 0;
  std::int64_t n_failed = 0;
  std::int64_t n_running = 0;    // taken up, and not ended
  std::int64_t n_prefilled = 0;  // tokens
  std::int64_t n_decoded = 0;
  double prefill_seconds = 0;  // of steps; of the busiest replica
  double decode_seconds = 0;
  double eta_seconds = -1;  // of what is left; negative while nothing was measured
  std::size_t kv_bytes = 0;
  std::int64_t n_prompt_tokens = 0;  // of answered requests
  std::int64_t n_cached_tokens = 0;
  std::map<std::string, std::int64_t> finish_reasons;
  Durations steps;
  Durations between_tokens;
  Durations queued;
  Durations first_token;
  Durations decode;  // from the first token to the last
  Durations whole;
};

}  // namespace longhaul
