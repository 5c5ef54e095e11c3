// Marks by which ranks see that a folder is the same for all: none stays behind.
#include "tools/job/shared_folders.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "cluster/comm/host_info.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// A process that has ended; WNOWAIT: nobody has taken notice of it.
pid_t ended_process(int how = WEXITED) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ignored{};
  ::waitid(P_PID, static_cast<id_t>(child), &ignored, how);
  return child;
}

TEST(RemoveLeftMarks, TakesThoseOfProcessesThatAreGone) {
  const test::TemporaryFolder folder;
  const auto make = [&](const std::string& name) {
    const fs::path file = folder.path() / name;
    std::ofstream(file) << "here";
    return file;
  };
  const auto of_another_host = [](std::string name) {
    return name.replace(name.rfind(hostname()), hostname().size(), "elsewhere");
  };
  const fs::path left = make(mark_name(ended_process()));
  const pid_t zombie = ended_process(WEXITED | WNOWAIT);
  const fs::path unnoticed = make(mark_name(zombie));
  const fs::path own = make(mark_name(::getpid()));
  const fs::path elsewhere = make(of_another_host(mark_name(ended_process())));
  const fs::path old = make(of_another_host(mark_name(::getpid())));
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(25));
  const fs::path earlier = make(".longhaul-0123abcd-71");  // as releases before wrote them
  fs::last_write_time(earlier, fs::file_time_type::clock::now() - std::chrono::hours(25));
  const fs::path other = make("document.h5");
  fs::last_write_time(other, fs::file_time_type::clock::now() - std::chrono::hours(25));
  remove_left_marks(folder.path());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(unnoticed));
  ::waitpid(zombie, nullptr, 0);
  EXPECT_TRUE(fs::exists(own));
  EXPECT_TRUE(fs::exists(elsewhere));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(fs::exists(earlier));
  EXPECT_TRUE(fs::exists(other));
  remove_left_marks(folder.path() / "missing");  // is no error
}

}  // namespace
}  // namespace longhaul
