// A run that reads one document, long enough to be interrupted in, and answers eight questions
// about it; for tests of checkpoints.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tests/fault/ranked_job.h"

namespace longhaul::test {

class CheckpointedJob : public RankedJob {
 protected:
  CheckpointedJob();

  std::filesystem::path checkpoints() const { return folder() / "out.checkpoints"; }
  std::filesystem::path output() const { return folder() / "out.jsonl"; }
  static Words every(const char* interval, const char* n_ranks) {
    return {"--checkpoint-every", interval, "--ranks", n_ranks};
  }
  // Answers of a run that nobody disturbs; runs once for all tests of this program.
  const std::map<std::string, std::string>& undisturbed();
  // Tokens of the document that are saved; 0 when none are.
  std::int64_t n_saved() const;
  // Until more of the document is saved than before, or the process ended, and a moment longer.
  void wait_for_more(ChildProcess& process, std::int64_t before);
  // What is saved is whole: the old files or the new ones.
  void expect_whole() const;
};

// Of what a run printed when it went on from a checkpoint: tokens that it read for the second time;
// -1 where it says nothing of it.
std::int64_t n_read_twice(const std::string& printed);

}  // namespace longhaul::test
