#include "tools/job/shared_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/kernel_text.h"
#include "base/print_stderr.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/local_ranks.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Network file systems show a new file to other hosts a little later.
constexpr auto kPatience = std::chrono::seconds(3);

constexpr std::string_view kMark = ".longhaul-";
constexpr std::size_t kRandomDigits = 8;
// Of a mark of another host; they are needed for seconds.
constexpr auto kOld = std::chrono::hours(24);

bool becomes_visible(const fs::path& file) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::error_code ignored;
  while (!fs::exists(file, ignored)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

// A file that was not there before, in a folder that is made if need be; both go again.
class Mark {
 public:
  explicit Mark(const fs::path& folder) : folder_(folder) {
    std::error_code ignored;
    made_folder_ = fs::create_directories(folder, ignored);
    file_ = folder / mark_name(::getpid());
    is_there_ = static_cast<bool>(std::ofstream(file_) << "to see which hosts share this folder\n");
  }
  ~Mark() {
    std::error_code ignored;
    if (is_there_) fs::remove(file_, ignored);
    if (made_folder_) fs::remove(folder_, ignored);
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  // Empty where none could be made.
  fs::path file() const { return is_there_ ? file_ : fs::path(); }

 private:
  fs::path folder_;
  fs::path file_;
  bool made_folder_ = false;
  bool is_there_ = false;
};

fs::path any_file_in(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) return entry.path();
  }
  return {};
}

// Process ids are this namespace's: containers of one host have their own.
std::string process_namespace() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

// What stands behind the random number: nobody else's marks end so.
std::string mark_of(pid_t process, const std::string& host) {
  return fmt::format("-{}-{}-{}", process, process_namespace(), host);
}

// The process that a mark of this host names; nullopt for others.
std::optional<pid_t> maker_of(const std::string& name) {
  const std::size_t at = kMark.size() + kRandomDigits + 1;
  pid_t process = 0;
  if (!name.starts_with(kMark) || name.size() <= at) return std::nullopt;
  std::from_chars(name.data() + at, name.data() + name.size(), process);
  return name.ends_with(mark_of(process, hostname())) ? std::optional(process) : std::nullopt;
}

// Also one that has ended and whose parent has not asked for its end yet.
bool is_gone(pid_t process) {
  const char state = state_in(kernel_text(fmt::format("/proc/{}/stat", process)));
  return state == 'Z' || state == 'X' || (::kill(process, 0) != 0 && errno == ESRCH);
}

bool is_left(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!name.starts_with(kMark)) return false;
  if (const auto process = maker_of(name)) return is_gone(*process);
  std::error_code error;
  const fs::file_time_type made = entry.last_write_time(error);
  return !error && fs::file_time_type::clock::now() - made > kOld;
}

}  // namespace

std::string mark_name(pid_t process) {
  return fmt::format("{}{:0{}x}{}", kMark, std::random_device{}(), kRandomDigits,
                     mark_of(process, hostname()));
}

void remove_left_marks(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_left(entry)) left.push_back(entry.path());
  }
  for (const fs::path& file : left) fs::remove(file, ignored);
}

Task SharedFolders::task() {
  return [this](Communicator& comm, ModelSource&, const std::string& order) {
    const HostInfo hosts = host_info(comm);
    const std::array<char, 1> sees = {static_cast<char>(becomes_visible(order) ? 1 : 0)};
    std::vector<char> all(static_cast<std::size_t>(comm.size()));
    comm.all_gather(std::as_bytes(std::span(sees)), std::as_writable_bytes(std::span(all)));
    if (comm.rank() != 0) return;
    hosts_without_.clear();
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const std::string& host = hosts.hostnames[rank];
      const auto known = std::find(hosts_without_.begin(), hosts_without_.end(), host);
      if (all[rank] == 0 && known == hosts_without_.end()) hosts_without_.push_back(host);
    }
  };
}

std::vector<std::string> SharedFolders::hosts_without(const fs::path& folder, ModelSource& model,
                                                      JobRanks& ranks) {
  const bool are_processes = ranks.instruction_sets.size() > 1;
  if (folder.empty()) return {};
  remove_left_marks(folder);
  if (!are_processes) return {};
  const Mark mark(folder);
  const fs::path file = mark.file().empty() ? any_file_in(folder) : mark.file();
  if (file.empty()) return {};
  ranks.together(model, file.string());
  return hosts_without_;
}

std::string explain_not_shared(const std::string& flag, const fs::path& folder,
                               const std::vector<std::string>& hosts) {
  return fmt::format(
      "{} {}: this folder is not shared by {}; all ranks write and read files in it, so it must "
      "lie "
      "on a file system that all hosts see: name another one, or leave {} out",
      flag, folder.string(), fmt::join(hosts, ", "), flag);
}

void require_shared_folders(const AnswerConfig& given, RunSession& session, JobRanks& ranks,
                            SharedFolders& folders) {
  const auto require_shared = [&](const std::string& flag, const fs::path& folder) {
    const std::vector<std::string> hosts = folders.hosts_without(folder, *session.weights, ranks);
    if (!hosts.empty()) throw Error(ErrorCode::kIo, explain_not_shared(flag, folder, hosts));
  };
  require_shared("--save-kv", given.save_kv);
  require_shared("--load-kv", given.load_kv);
  std::optional<SaveCaches>& checkpoint = session.engine.scheduler.checkpoint;
  if (!checkpoint) return;
  if (!given.checkpoint_dir.empty())
    return require_shared("--checkpoint-dir", given.checkpoint_dir);
  const std::vector<std::string> hosts =
      folders.hosts_without(checkpoint->folder, *session.weights, ranks);
  if (hosts.empty()) return;
  print_stderr(
      "longhaul: warning: documents are read without checkpoints: the folder {} is not shared "
      "by {}; --checkpoint-dir names one that all hosts see\n",
      checkpoint->folder, fmt::join(hosts, ", "));
  checkpoint.reset();
}

}  // namespace longhaul
