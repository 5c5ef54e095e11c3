#include "tools/job/check_in.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "build_info.h"
#include "coordinator/fingerprint.h"
#include "kernels/cpu/isa.h"
#include "tools/job/rank_ranges.h"
#include "tools/job/weight_check.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostShown = 8;  // differences of one rank

// What a rank says of itself, of equal size on all.
struct Card {
  std::array<char, 64> identity{};  // SHA-256 in hexadecimal
  std::array<char, 32> isa{};       // ends with 0
  bool operator==(const Card& other) const { return identity == other.identity; }
};

std::string name_of_rank(const HostInfo& hosts, std::size_t rank) {
  return fmt::format("rank {} on {}", rank, hosts.hostnames[rank]);
}

// Collective. What every rank's `work` threw first, on all of them, with the rank's host.
template <typename Work>
void together(Communicator& comm, const HostInfo& hosts, const Work& work) {
  Verdict mine;
  try {
    work();
  } catch (...) {
    mine = verdict_of(std::current_exception(), comm.job_rank());
  }
  const Verdict first = comm.agree(mine);
  if (first.ok) return;
  if (first.rank == 0) throw Error(first.code, first.message);  // where people look first
  throw Error(first.code,
              fmt::format("{}: {}", name_of_rank(hosts, static_cast<std::size_t>(first.rank)),
                          first.message));
}

Card card_of(const Json& identity) {
  Card card;
  const std::string hash = sha256_of(to_text(identity));
  std::memcpy(card.identity.data(), hash.data(), std::min(hash.size(), card.identity.size()));
  const std::string_view isa = name_of(active_isa());
  std::memcpy(card.isa.data(), isa.data(), std::min(isa.size(), card.isa.size() - 1));
  return card;
}

}  // namespace

Json program_identity() {
  using namespace build_info;
  // Read piece by piece: where memory is short (ulimit -v) it must not look like another program.
  Json executable = nullptr;  // where there is no /proc version and parts must do
  if (std::ifstream file("/proc/self/exe", std::ios::binary); file) {
    Sha256 hash;
    std::array<char, 65536> piece;
    while (file.read(piece.data(), piece.size()), file.gcount() > 0)
      hash.add({piece.data(), static_cast<std::size_t>(file.gcount())});
    executable = hash.finish();
  }
  return JsonObject{{"version", std::string(kVersion)},
                    {"built_with", fmt::format("MPI {}, CUDA {}, NCCL {}, HDF5 {}, oneDNN {}",
                                               kHasMpi, kHasCuda, kHasNccl, kHasHdf5, kHasOneDnn)},
                    {"executable_sha256", std::move(executable)}};
}

Json job_identity(const JobConfig& config, const ModelSource* model) {
  return JsonObject{{"program", program_identity()},
                    {"flags", config.flags_given},
                    {"model", model == nullptr ? Json(nullptr) : model->fingerprint()}};
}

CheckIn check_in(Communicator& comm, const HostInfo& hosts, const JobConfig& config,
                 const OpenModel& open_model, PhaseBoard* board) {
  CheckIn result;
  Json identity;
  together(comm, hosts, [&] {
    if (board != nullptr) board->enter(Activity::kLoading);
    if (open_model) result.model = open_model();
    if (hosts.local_rank == 0) verify_if_asked(config, result.model.get());  // one for each host
    identity = job_identity(config, result.model.get());
    if (board != nullptr) board->enter(Activity::kIdle);
  });
  const Card mine = card_of(identity);
  std::vector<Card> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (const Card& card : all) result.instruction_sets.emplace_back(card.isa.data());

  const std::string sets = explain_instruction_sets(result.instruction_sets);
  if (config.reproducible && !sets.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("--reproducible: {}, which round differently; LONGHAUL_ISA names one "
                            "that all hosts have",
                            sets));
  }

  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Card& c) { return c != all[0]; });
  if (other == all.end()) return result;
  const auto rank = static_cast<std::size_t>(other - all.begin());
  const auto n = static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const Card& c) { return c != all[0]; }));
  const std::string first = comm.broadcast_text(to_text(identity), 0);
  const std::string differing = comm.broadcast_text(to_text(identity), static_cast<int>(rank));
  throw Error(ErrorCode::kFailedPrecondition,
              explain_differences(hosts, rank, parse_json(first, "rank 0's identity"),
                                  parse_json(differing, "a rank's identity"), n - 1));
}

std::string explain_differences(const HostInfo& hosts, std::size_t rank, const Json& of_rank_0,
                                const Json& of_rank, std::size_t n_more) {
  std::string text = fmt::format(
      "{} does not run the same job as {}{}:", name_of_rank(hosts, rank), name_of_rank(hosts, 0),
      n_more == 0 ? "" : fmt::format(" (nor do {} other ranks)", n_more));
  const auto found = find_differences(of_rank_0, of_rank);
  for (std::size_t i = 0; i < std::min(found.size(), kMostShown); ++i) {
    text += fmt::format("\n  {}: rank 0 has {}, rank {} has {}", found[i].path, found[i].before,
                        rank, found[i].now);
  }
  if (found.size() > kMostShown) text += fmt::format("\n  and {} more", found.size() - kMostShown);
  return text +
         "\nNothing was read. Give all ranks the same program, flags and model files: copy "
         "those of rank 0 to the other hosts, or put them where all hosts see them";
}

std::string explain_instruction_sets(const std::vector<std::string>& sets) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
  for (std::size_t rank = 0; rank < sets.size(); ++rank) {
    const auto at = std::find_if(groups.begin(), groups.end(),
                                 [&](const auto& group) { return group.first == sets[rank]; });
    if (at == groups.end()) {
      groups.push_back({sets[rank], {rank}});
    } else {
      at->second.push_back(rank);
    }
  }
  if (groups.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [name, ranks] : groups)
    parts.push_back(fmt::format("{} on {}", name, ranges_of(ranks)));
  return fmt::format("instruction sets differ: {}", fmt::join(parts, "; "));
}

}  // namespace longhaul
