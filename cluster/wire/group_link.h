// The links to all ranks of a replica as one: a command goes to every rank, and their answers come
// back as one result. What the coordinator's engine talks to, whatever the number of ranks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cluster/wire/link.h"

namespace longhaul {

// Who answers: "rank 3 on node17".
struct RankName {
  Rank rank;
  std::string host;  // may be empty
};
std::string to_text(const RankName& name);

struct RankResult {
  RankName from;
  StepResult result;
};
// One result of all ranks' results for the same command. Tokens come from whichever rank has them;
// bytes of cache are summed, seconds those of the slowest, reports ordered by rank and named.
//
// If any rank failed: StepFailed of the rank that is the cause, which is the lowest one that says
// more than that a peer failed or did not answer. When the failure broke what the ranks share (a
// rank waited in vain or was told of a peer's failure), none of them can go on: throws Error with
// the cause's code instead. Pure.
StepResult merge_results(std::vector<RankResult> results);

class GroupLink final : public Link {
 public:
  struct Member {
    RankName name;
    std::unique_ptr<Link> link;
  };
  explicit GroupLink(std::vector<Member> members);  // at least one

  void send(StepCommand command) override;
  // Throws what a member's link throws, and what merge_results throws.
  StepResult receive(Deadline deadline) override;

 private:
  std::vector<Member> members_;
};

}  // namespace longhaul
