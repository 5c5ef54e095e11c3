#include "tools/supervise/child_process_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/kernel_text.h"
#include "cluster/comm/local_ranks.h"

extern char** environ;

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr auto kKilled = std::chrono::seconds(10);  // that a process may live after SIGKILL

// How a process is started: in a group of its own, with no signal blocked.
class SpawnSettings {
 public:
  explicit SpawnSettings(ChildProcessGroup::Output output) {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&files_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    if (output == ChildProcessGroup::Output::kOurs) return;
    for (const int descriptor : {0, 1, 2})
      posix_spawn_file_actions_addopen(&files_, descriptor, "/dev/null", O_RDWR, 0);
  }
  ~SpawnSettings() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&files_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  const posix_spawnattr_t* attributes() const { return &attributes_; }
  const posix_spawn_file_actions_t* files() const { return &files_; }

 private:
  posix_spawnattr_t attributes_{};
  posix_spawn_file_actions_t files_{};
};

}  // namespace

ChildProcessGroup::ChildProcessGroup(const std::vector<std::string>& words,
                                     const std::string& variable, Output output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (char** at = environ; *at != nullptr; ++at) environment.push_back(*at);
  if (!variable.empty()) environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  const SpawnSettings settings(output);
  const int error = ::posix_spawnp(&pid_, arguments.front(), settings.files(),
                                   settings.attributes(), arguments.data(), environment.data());
  if (error != 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot start {}: {}", words.front(), std::strerror(error)));
  }
}

ChildProcessGroup::~ChildProcessGroup() {
  if (poll()) return;
  signal_group(SIGKILL);
  wait(kKilled);
}

std::optional<int> ChildProcessGroup::poll() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return status_;
}

std::optional<int> ChildProcessGroup::wait(std::chrono::milliseconds limit) {
  const Deadline deadline = deadline_in(limit);
  while (!poll() && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return status_;
}

void ChildProcessGroup::signal(int number) {
  if (!poll()) ::kill(pid_, number);
}

void ChildProcessGroup::signal_group(int number) {
  if (!poll()) ::kill(-pid_, number);
}

std::vector<pid_t> processes_with(const std::string& variable, const std::string& program_name) {
  const std::size_t equals = variable.find('=');
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (fs::read_symlink(at->path() / "exe", gone).filename() != program_name) continue;
    const std::string environment = kernel_text(at->path() / "environ");
    if (variable_in(environment, variable.substr(0, equals)) ==
        std::string_view(variable).substr(equals + 1))
      found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace longhaul
