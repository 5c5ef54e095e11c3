// What was picked so far of answers that were not complete when a run ended, in a file beside the
// results: the next run reads these tokens as the end of the prompt and goes on behind them. A
// line for each answer, with a checksum.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/wire/step.h"
#include "coordinator/result_lines.h"

namespace longhaul {

// One line with its line break: {"custom_id", "tokens": "17 4 ...", "logprobs": null or
// [[log-probability, [[token, log-probability], ...]], ...], "longhaul": {identity,
// "line_sha256"}}.
std::string unfinished_line(const RequestIdentity& identity,
                            const std::vector<PickedToken>& tokens);
// The tokens of such a line, without their sequence. Throws kCorruptData, naming `source`, for
// another one or one that was changed.
std::vector<PickedToken> tokens_of_line(std::string_view line, std::string_view source);

// Used by one thread.
class UnfinishedAnswers {
 public:
  // Reads the file, if it is there. Throws kCorruptData for a line that is not as it was written,
  // kIo.
  explicit UnfinishedAnswers(std::filesystem::path path);

  // In the order they were picked; empty when nothing is known of the request.
  std::vector<PickedToken> find(const RequestIdentity& identity) const;
  void set(const RequestIdentity& identity, const std::vector<PickedToken>& tokens);
  void forget(const RequestIdentity& identity);
  // Forgets what belongs to no request of these: it was done since, or is not asked any more.
  void keep_only(const std::vector<RequestIdentity>& identities);
  // Makes the file hold what is known, in one rename; removes it when that is nothing. Throws kIo.
  void write();
  std::size_t size() const { return lines_.size(); }

 private:
  std::filesystem::path path_;
  std::map<std::string, std::string> lines_;  // by custom_id
  bool is_written_ = true;                    // the file holds them
};

}  // namespace longhaul
