// Who can send to whom when a job starts, found out before anything waits for a message that
// cannot come: a firewall between two hosts, or a network that leads nowhere, would hang MPI
// without a word.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/comm/interfaces.h"

namespace longhaul {

// A rank's host, and the interfaces that its ranks use.
struct RankPlace {
  std::string host;
  std::vector<NetworkInterface> interfaces;
  bool operator==(const RankPlace&) const = default;
};
// As text, for a message of at most `n_bytes`: interfaces that find no room are left out.
std::string encode(const RankPlace& place, std::size_t n_bytes);
RankPlace decode_place(std::string_view text);

// What rank 0 found. A host is stood for by its first rank; these are the ranks that try all pairs.
struct Reach {
  std::vector<RankPlace> places;  // [size]; empty for ranks that were not heard of
  std::vector<int> silent;        // ranks that rank 0 has not heard of
  std::vector<int> first_ranks;   // of each host, ascending
  // [host][from host]: 1 where it was heard; as many as first_ranks. Empty when nobody tried,
  // because ranks were silent.
  std::vector<std::vector<char>> heard;
  bool complete() const;
};
// The first rank of each host. Pure.
std::vector<int> first_ranks_of(const std::vector<RankPlace>& places);
// Which hosts do not reach each other, as a table where it is small, and what to do. Pure.
std::string explain_reach(const Reach& reach);
// What a rank says that rank 0 does not answer. Pure.
std::string explain_silence(int rank, const RankPlace& place, std::chrono::seconds limit);

// Collective over all processes; the first messages between them. Plain MPI: even duplicating a
// communicator waits for all pairs. Returns on rank 0 what was found; on the others a Reach without
// places, with its `silent` not empty when the job cannot go on. Throws kIo on a rank that rank 0
// does not answer within `limit`. After a failure MPI may only be left by exit_now().
Reach find_reach(const RankPlace& mine, std::chrono::seconds limit);

}  // namespace longhaul
