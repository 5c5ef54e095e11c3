#include "tools/supervise/launcher_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"
#include "tools/supervise/supervise.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LauncherCommand, IsWhatStandsBeforeTheProgram) {
  const LauncherCommand found = split_command(
      {"mpirun", "-n", "4", "/opt/bin/longhaul", "run", "-m", "longhaul"}, "longhaul");
  EXPECT_THAT(found.launcher, ElementsAre("mpirun", "-n", "4"));
  EXPECT_THAT(found.program, ElementsAre("/opt/bin/longhaul", "run", "-m", "longhaul"));
  EXPECT_THROW(split_command({"mpirun", "-n", "4", "hostname"}, "longhaul"), Error);
  EXPECT_THROW(split_command({"longhaul", "run"}, "longhaul"), Error);
}

TEST(LauncherCommand, NamesItsHosts) {
  EXPECT_THAT(hosts_of({"mpirun", "-n", "4"}), IsEmpty());
  EXPECT_THAT(hosts_of({"mpirun", "--host", "a:2,b,a", "-n", "4"}),
              ElementsAre(HostSlots{"a", 3}, HostSlots{"b", 1}));
  EXPECT_THAT(
      parse_hostfile("# the cluster\nnode1 slots=4 max_slots=8\nnode2:2\n\n node3 # slots=9\n"),
      ElementsAre(HostSlots{"node1", 4}, HostSlots{"node2", 2}, HostSlots{"node3", std::nullopt}));
  // As Open MPI 4.1 reads them; a host that is named twice has two slots.
  EXPECT_THAT(parse_hostfile("a slots = 4 max_slots = 8\nb slots= 2\nc cpu=3\nd count =5\n"
                             "e max_slots=8\nf\nf\n"),
              ElementsAre(HostSlots{"a", 4}, HostSlots{"b", 2}, HostSlots{"c", 3},
                          HostSlots{"d", 5}, HostSlots{"e", std::nullopt}, HostSlots{"f", 2}));
  EXPECT_THAT(
      hosts_of({"mpirun", "--host", "a:*,b:auto,c"}),
      ElementsAre(HostSlots{"a", std::nullopt}, HostSlots{"b", std::nullopt}, HostSlots{"c", 1}));
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "hosts").string();
  replace_file(file, "a slots=2\nb slots=4\n");
  EXPECT_THAT(hosts_of({"mpirun", "-hostfile", file}),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 4}));
  EXPECT_THAT(hosts_of({"mpirun", "--hostfile", file, "-H", "b"}), ElementsAre(HostSlots{"b", 4}))
      << "--host chooses from the file";
  replace_file(file, "a\nb\n");
  EXPECT_THAT(hosts_of({"mpirun", "--hostfile", file, "-H", "b,b"}),
              ElementsAre(HostSlots{"b", 2}));
}

TEST(LauncherCommand, GoesOnWithFewerHosts) {
  const std::vector<HostSlots> left = {{"a", 2}, {"c", 1}};
  EXPECT_THAT(with_hosts({"mpirun", "-n", "8", "--host", "a:2,b:5,c:1", "--bind-to", "none"}, left),
              ElementsAre("mpirun", "-n", "3", "--bind-to", "none", "--host", "a:2,c:1"));
  EXPECT_THAT(with_hosts({"mpirun", "--hostfile", "f"}, left),
              ElementsAre("mpirun", "--host", "a:2,c:1"));
  EXPECT_THAT(with_hosts({"mpirun", "-n", "2", "--hostfile", "f"}, left),
              ElementsAre("mpirun", "-n", "2", "--host", "a:2,c:1"));
}

// Hosts without slots=N counted as 1: a job of 64 ranks went on with as many as hosts were left.
TEST(LauncherCommand, KeepsACountThatItCannotLower) {
  const std::vector<HostSlots> left = {{"a", 2}, {"c", std::nullopt}};
  EXPECT_THAT(with_hosts({"mpirun", "-n", "64", "--hostfile", "f"}, left),
              ElementsAre("mpirun", "-n", "64", "--host", "a:2,c:*"));
}

TEST(LauncherCommand, AsksAHostInTheWayOfTheJob) {
  EXPECT_THAT(
      probe_of({"mpirun", "-n", "8", "--mca", "plm_rsh_agent", "ssh -p 7", "--host", "a,b"}, "b"),
      ElementsAre("mpirun", "--mca", "plm_rsh_agent", "ssh -p 7", "--host", "b:1", "-n", "1",
                  "true"));
}

TEST(Supervise, KnowsWhatAnotherTryMends) {
  EXPECT_EQ(ending_of(0), Ending::kFinal);
  EXPECT_EQ(ending_of(3), Ending::kFinal) << "what does not fit, does not fit the next time";
  EXPECT_EQ(ending_of(75), Ending::kStopped);
  EXPECT_EQ(ending_of(128 + 9), Ending::kLost);
  EXPECT_EQ(ending_of(205), Ending::kLost) << "Open MPI has lost a daemon";
}

}  // namespace
}  // namespace longhaul
