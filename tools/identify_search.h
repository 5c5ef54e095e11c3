// The search of `longhaul identify --target`: how few heads of a ranking need to see every token,
// tried on the job's ranks, with the points that are done kept in the profile's folder.
#pragma once
#include <optional>
#include <vector>

#include "tools/eval/needle_runner.h"
#include "tools/identify/profile_files.h"
#include "tools/identify/share_search.h"
#include "tools/identify_flags.h"
#include "tools/progress_line.h"

namespace longhaul {

inline constexpr const char* kSharePoints = "share.json";  // in the profile's folder
inline constexpr const char* kSharePicture = "share.svg";

// Used by rank 0's thread. Everything that it is given must outlive it.
class IdentifySearch {
 public:
  // Throws kInvalidArgument when the documents that questions are asked about cannot be made, or
  // the model cannot read them.
  IdentifySearch(const IdentifyFlags& flags, RankTasks& tasks, JobRanks& ranks,
                 ProgressLine& progress);

  // Prints the curve and writes its picture. `settings`: what the ranking was made by. False when a
  // stop was asked for before it was done; the next call with the same ranking and settings goes on
  // from there.
  bool run(const FoundHeads& heads, const Json& settings);

 private:
  // Nothing when a stop was asked for before it was done.
  std::optional<TriedShare> attempt(const FoundHeads& heads, std::int64_t n_heads);

  const IdentifyFlags& flags_;
  RankTasks& tasks_;
  JobRanks& ranks_;
  ProgressLine& progress_;
  std::vector<PlannedDocument> documents_;
  NeedleRunner runner_;
  Workload workload_;
};

}  // namespace longhaul
