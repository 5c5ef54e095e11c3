// Whether all hosts of a job see the same folder: asked before anything is read for what shall lie
// there.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tools/job/job.h"
#include "tools/job/run_session.h"

namespace longhaul {

class SharedFolders {
 public:
  // What every rank does when it is asked; for run_job. This object must outlive it.
  Task task();
  // Called by rank 0's lead, collective. Names of the hosts whose ranks do not see the folder as
  // rank 0 does, in the order of ranks; none where the ranks are one process, or where rank 0
  // itself can neither write to the folder nor finds a file in it. The folder is as it was
  // afterwards, but for marks that killed processes left there.
  std::vector<std::string> hosts_without(const std::filesystem::path& folder, ModelSource& model,
                                         JobRanks& ranks);

 private:
  std::vector<std::string> hosts_without_;  // of the last question, on rank 0
};

// The file by which other ranks see that a folder is rank 0's; of a process of this host.
std::string mark_name(pid_t process);
// Those of processes that are gone, killed before they could; of other hosts those a day old.
void remove_left_marks(const std::filesystem::path& folder);

// "--save-kv caches: not the same folder on node2 and node3: ...", and what to do. Pure.
std::string explain_not_shared(const std::string& flag, const std::filesystem::path& folder,
                               const std::vector<std::string>& hosts);

// Collective, of rank 0's lead, before documents are read. Throws kIo where a folder that the user
// named (`given`) is not shared by all hosts; where the one for checkpoints is the default one,
// says so on stderr, and the run has no checkpoints.
void require_shared_folders(const AnswerConfig& given, RunSession& session, JobRanks& ranks,
                            SharedFolders& folders);

}  // namespace longhaul
