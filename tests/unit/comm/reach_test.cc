#include "cluster/comm/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const NetworkInterface kEth{"eth0", "10.1.0.7", 16};
const NetworkInterface kIb{"ib0", "192.168.9.7", 24};
const NetworkInterface kDocker{"docker0", "172.17.0.1", 16};
const NetworkInterface kSix{"eth0", "fd77::7", 64};

TEST(Interfaces, ThoseOfContainersAreKnownByName) {
  for (const char* name : {"docker0", "virbr0", "veth12ab34c", "br-0123456789ab", "cni0", "lxdbr0"})
    EXPECT_TRUE(serves_containers(name)) << name;
  for (const char* name :
       {"eth0", "eno1", "ib0", "enp3s0f1", "bond0", "br0", "br-lan", "br-backbone12"})
    EXPECT_FALSE(serves_containers(name)) << name;
  EXPECT_THAT(between_hosts({kDocker, kEth}), ElementsAre(kEth));
}

TEST(Interfaces, AreNamedOrGivenBySubnet) {
  const std::vector<NetworkInterface> all = {kEth, kIb, kDocker, kSix};
  EXPECT_THAT(named_interfaces(all, "eth0"), ElementsAre(kEth, kSix));
  EXPECT_THAT(named_interfaces(all, "192.168.8.0/22"), ElementsAre(kIb));
  EXPECT_THAT(named_interfaces(all, "fd77::/64,docker0"), ElementsAre(kSix, kDocker));
  EXPECT_THAT(named_interfaces(all, "10.9.0.0/16,ib0"), ElementsAre(kIb))
      << "one list for all hosts: this one need not be in every subnet";
  EXPECT_THROW(named_interfaces(all, "ib1"), Error);
  EXPECT_THROW(named_interfaces(all, "10.9.0.0/16"), Error);
  EXPECT_THROW(named_interfaces(all, "10.1.0.0/33"), Error);
  EXPECT_THROW(named_interfaces(all, ",eth0"), Error) << "an empty name is none";
}

TEST(Interfaces, TheCommonAddressIsOneThatOthersShareAndNobodyElseHas) {
  const NetworkInterface eth8{"eth0", "10.1.0.8", 16};
  const NetworkInterface ib8{"ib0", "192.168.77.8", 24};
  EXPECT_EQ(common_address({{kDocker, kIb, kEth}, {kDocker, ib8, eth8}}), "10.1.0.7");
  EXPECT_EQ(common_address({{kIb, kEth}, {ib8}}), "192.168.9.7") << "routed: the first";
  EXPECT_EQ(common_address({{kDocker}, {kDocker, eth8}}), "") << "both hosts have it";
  EXPECT_EQ(common_address({{kSix}, {{"eth0", "fd77::8", 64}}}), "fd77::7");
}

TEST(Reach, PlacesTravelAsText) {
  const RankPlace place{"node7", {kEth, kSix}};
  EXPECT_EQ(decode_place(encode(place, 2000)), place);
  EXPECT_THAT(decode_place(encode(place, 30)).interfaces, ElementsAre(kEth)) << "what finds room";
}

TEST(Reach, ShowsWhoDoesNotReachWhom) {
  Reach reach;
  for (const char* host : {"a", "a", "b", "c"}) reach.places.push_back({host, {kEth}});
  reach.first_ranks = first_ranks_of(reach.places);
  EXPECT_THAT(reach.first_ranks, ElementsAre(0, 2, 3));
  reach.heard = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  EXPECT_TRUE(reach.complete());
  reach.heard[1][2] = 0;
  EXPECT_FALSE(reach.complete());
  EXPECT_THAT(explain_reach(reach), HasSubstr("      b           yes      -     NO\n"));
  EXPECT_THAT(explain_reach(reach), HasSubstr("--interfaces"));
  reach.silent = {2};
  EXPECT_FALSE(reach.complete());
  EXPECT_THAT(explain_reach(reach),
              HasSubstr("rank 2 of 4 cannot send to rank 0 on a, which uses eth0 10.1.0.7/16"));
}

TEST(Reach, OfManyHostsShowsThePairsThatFail) {
  Reach reach;
  for (int i = 0; i < 40; ++i) {
    reach.places.push_back({"n" + std::to_string(i), {}});
    reach.heard.emplace_back(40, 1);
  }
  reach.first_ranks = first_ranks_of(reach.places);
  reach.heard[3][17] = 0;
  EXPECT_THAT(explain_reach(reach), HasSubstr("each other:\n  n3 does not hear n17\n"));
  reach.heard[5].assign(40, 0);
  EXPECT_THAT(explain_reach(reach), HasSubstr("\n  and 21 more\n"));
}

}  // namespace
}  // namespace longhaul
