#include "tools/doctor/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/sizes.h"
#include "coordinator/fingerprint.h"

namespace longhaul {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMinDescriptors = 256;
constexpr std::int64_t kMinSharedMemory = std::int64_t{64} << 20;  // of each rank
constexpr double kSlowScratch = 50;                                // 10^6 bytes a second

using Ranks = std::vector<RankFacts>;

std::string names(const std::set<std::string>& hosts) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> some(hosts.begin(), hosts.end());
  const std::size_t n_more = some.size() > kMost ? some.size() - kMost : 0;
  some.resize(some.size() - n_more);
  return fmt::format("{}{}", fmt::join(some, ", "),
                     n_more == 0 ? "" : fmt::format(" and {} more", n_more));
}

// Hosts with a rank for which it holds.
std::set<std::string> where(const Ranks& ranks,
                            const std::function<bool(const RankFacts&)>& holds) {
  std::set<std::string> hosts;
  for (const RankFacts& rank : ranks)
    if (holds(rank)) hosts.insert(rank.host);
  return hosts;
}

template <typename T>
T least_of(const Ranks& ranks, T RankFacts::*fact) {
  T least = ranks[0].*fact;
  for (const RankFacts& rank : ranks) least = std::min(least, rank.*fact);
  return least;
}

std::map<std::string, std::int64_t> ranks_on_hosts(const Ranks& ranks) {
  std::map<std::string, std::int64_t> counts;
  for (const RankFacts& rank : ranks) ++counts[rank.host];
  return counts;
}

Finding program(const Ranks& ranks) {
  const auto differs = where(ranks, [&](const RankFacts& rank) {
    return to_text(rank.program) != to_text(ranks[0].program) || rank.mpi != ranks[0].mpi;
  });
  const Json* version = ranks[0].program.find("version");
  const std::string text = fmt::format(
      "longhaul {}{}{}", version != nullptr ? std::get<std::string>(version->value()) : "",
      ranks[0].mpi.empty() ? "" : ", " + ranks[0].mpi,
      ranks.size() == 1 ? "" : fmt::format(", the same on all {} ranks", ranks.size()));
  if (differs.empty()) return {Health::kPass, "program", text, "", ""};
  return {Health::kFail, "program",
          fmt::format("{} runs another program or MPI than rank 0 on {}", names(differs),
                      ranks[0].host),
          "ranks of different programs would compute different things",
          "install the same build on all hosts, or start it from a shared disk"};
}

Finding slurm(const Ranks& ranks) {
  const std::int64_t n_tasks = ranks[0].n_tasks;
  const auto size = static_cast<std::int64_t>(ranks.size());
  if (size > 1 || n_tasks <= 1)
    return {Health::kPass, "launcher",
            n_tasks > 0 ? fmt::format("{} ranks of {} tasks of Slurm", size, n_tasks)
                        : fmt::format("{} ranks", size),
            "", ""};
  return {Health::kFail, "launcher",
          fmt::format("Slurm started {} tasks, and each is alone", n_tasks),
          "the processes do not know of each other: each would do the whole job",
          "start them with srun --mpi=pmix (srun --mpi=list shows what Slurm has), or with mpirun"};
}

Finding cores(const Ranks& ranks) {
  std::map<std::string, std::map<std::int64_t, std::int64_t>> users;  // of each core of a host
  for (const RankFacts& rank : ranks)
    for (const std::int64_t core : rank.cores) ++users[rank.host][core];
  const auto counts = ranks_on_hosts(ranks);
  std::set<std::string> crowded;
  std::int64_t fewest = static_cast<std::int64_t>(ranks[0].cores.size());
  for (const auto& [host, of_cores] : users)
    if (static_cast<std::int64_t>(of_cores.size()) < counts.at(host)) crowded.insert(host);
  for (const RankFacts& rank : ranks)
    fewest = std::min(fewest, static_cast<std::int64_t>(rank.cores.size()));
  if (!crowded.empty()) {
    return {Health::kWarn, "cores", fmt::format("more ranks than cores on {}", names(crowded)),
            "ranks that share a core wait for each other in every step",
            "start one rank per host or per NUMA node"};
  }
  const auto pinned = where(ranks, [&](const RankFacts& rank) {
    return rank.cores.size() == 1 && rank.n_host_cores > counts.at(rank.host);
  });
  if (!pinned.empty()) {
    return {Health::kWarn, "cores",
            fmt::format("ranks on {} are bound to one core each", names(pinned)),
            "a rank computes with several threads, and here all of them share a core",
            "mpirun --bind-to none, or srun --cpus-per-task=N"};
  }
  const auto wide = where(ranks, [](const RankFacts& rank) { return rank.numa_nodes.size() > 1; });
  if (!wide.empty()) {
    return {Health::kWarn, "cores", fmt::format("ranks on {} span several NUMA nodes", names(wide)),
            "each node reads the others' memory more slowly",
            "one rank per node: mpirun --map-by ppr:1:numa --bind-to numa, srun --cpu-bind=ldoms"};
  }
  const bool knows_nodes =
      where(ranks, [](const RankFacts& rank) { return rank.numa_nodes.empty(); }).empty();
  return {Health::kPass, "cores",
          fmt::format("{} or more for each rank{}, {} kernels", fewest,
                      knows_nodes ? ", of one NUMA node" : "", ranks[0].instruction_set),
          "", ""};
}

Finding instruction_sets(const Ranks& ranks) {
  std::map<std::string, std::set<std::string>> hosts;
  for (const RankFacts& rank : ranks) hosts[rank.instruction_set].insert(rank.host);
  if (hosts.size() == 1)
    return {Health::kPass, "CPUs", fmt::format("{} everywhere", ranks[0].instruction_set), "", ""};
  std::vector<std::string> parts;
  for (const auto& [isa, of] : hosts) parts.push_back(fmt::format("{} on {}", isa, names(of)));
  return {Health::kWarn, "CPUs", fmt::format("{}", fmt::join(parts, "; ")),
          "roundings differ in the last bits, and ranks are unequally fast (plans see to that)",
          "LONGHAUL_ISA=... on all hosts, where answers must be the same to the bit"};
}

Finding memory(const Ranks& ranks) {
  std::int64_t least = ranks[0].free_memory;
  std::string at = ranks[0].host;
  for (const RankFacts& rank : ranks) {
    if (rank.free_memory >= least) continue;
    least = rank.free_memory;
    at = rank.host;
  }
  // What limits leave, when the host has far more.
  const auto limited =
      where(ranks, [](const RankFacts& rank) { return rank.free_memory < rank.host_memory / 4; });
  if (least < kGiB) {
    return {Health::kFail, "memory", fmt::format("{} on {}", format_byte_size(least), at),
            "no model worth its name fits",
            "ask the batch system for more (--mem), end what else runs there, or raise ulimit -v"};
  }
  if (!limited.empty()) {
    return {Health::kWarn, "memory",
            fmt::format("less than a quarter of the host's on {} ({} on {})", names(limited),
                        format_byte_size(least), at),
            "a control group, ulimit -v or other processes hold the rest",
            "ask the batch system for all of it (--mem=0), or end what else runs there"};
  }
  return {Health::kPass, "memory",
          fmt::format("{} or more free for each host", format_byte_size(least)), "", ""};
}

Finding shared_memory(const Ranks& ranks) {
  const auto counts = ranks_on_hosts(ranks);
  const auto small = where(ranks, [&](const RankFacts& rank) {
    return counts.at(rank.host) > 1 &&
           rank.free_shared_memory < counts.at(rank.host) * kMinSharedMemory;
  });
  if (small.empty())
    return {
        Health::kPass, "/dev/shm",
        fmt::format("{} free", format_byte_size(least_of(ranks, &RankFacts::free_shared_memory))),
        "", ""};
  return {Health::kWarn, "/dev/shm",
          fmt::format("less than {} for each rank on {}", format_byte_size(kMinSharedMemory),
                      names(small)),
          "MPI and NCCL pass data between the ranks of a host through it, and fail when it is full",
          "mount it larger (containers: --shm-size), or start one rank per host"};
}

Finding limits(const Ranks& ranks) {
  const auto few = where(ranks, [&](const RankFacts& rank) {
    return rank.n_descriptors < kMinDescriptors + 4 * static_cast<std::int64_t>(ranks.size());
  });
  if (!few.empty()) {
    return {Health::kFail, "limits",
            fmt::format("too few open files are allowed on {} ({})", names(few),
                        least_of(ranks, &RankFacts::n_descriptors)),
            "every rank holds a connection to every other, and the shards of the model",
            "ulimit -n 65536"};
  }
  const auto stack = where(ranks, [](const RankFacts& rank) { return rank.unlimited_stack; });
  if (!stack.empty()) {
    return {Health::kWarn, "limits", fmt::format("the stack is unlimited on {}", names(stack)),
            "glibc then gives threads 2 MiB instead of the 8 that libraries count on",
            "ulimit -s 8192"};
  }
  return {Health::kPass, "limits",
          fmt::format("{} open files", least_of(ranks, &RankFacts::n_descriptors)), "", ""};
}

Finding scratch(const Ranks& ranks) {
  for (const RankFacts& rank : ranks) {
    if (rank.scratch_error.empty()) continue;
    return {Health::kFail, "scratch", fmt::format("on {}: {}", rank.host, rank.scratch_error),
            "results, checkpoints and saved caches are written, synced, locked and renamed",
            "free space, or name another folder with --scratch; some network disks cannot lock"};
  }
  const auto slow =
      where(ranks, [](const RankFacts& rank) { return rank.scratch_mb_per_s < kSlowScratch; });
  const auto blind = where(ranks, [](const RankFacts& rank) { return !rank.sees_scratch_of_0; });
  if (!blind.empty()) {
    return {Health::kWarn, "scratch",
            fmt::format("{} and {} do not share it", names(blind), ranks[0].host),
            "checkpoints and saved caches are written by all ranks and read by any",
            "name a folder of a disk that all hosts share (--scratch)"};
  }
  if (!slow.empty()) {
    return {Health::kWarn, "scratch",
            fmt::format("{:.0f} MB/s on {}", least_of(ranks, &RankFacts::scratch_mb_per_s),
                        names(slow)),
            "a checkpoint of a million tokens has tens of GB",
            "a faster disk for --checkpoint-dir and --save-kv"};
  }
  return {Health::kPass, "scratch",
          fmt::format("written, synced, locked, renamed; {:.0f} MB/s",
                      least_of(ranks, &RankFacts::scratch_mb_per_s)),
          "", ""};
}

Finding saving(const Ranks& ranks) {
  if (!ranks[0].has_hdf5) {
    return {Health::kWarn, "HDF5", "none: this build is without HDF5",
            "caches and checkpoints cannot be saved: what is killed begins anew",
            "install its development files (Debian: libhdf5-openmpi-dev) and build again"};
  }
  for (const RankFacts& rank : ranks) {
    if (rank.hdf5_error.empty()) continue;
    return {Health::kFail, "HDF5", fmt::format("on {}: {}", rank.host, rank.hdf5_error),
            "caches and checkpoints are HDF5 files: --save-kv and --checkpoint-every would fail",
            "free space, or name another folder with --scratch"};
  }
  return {Health::kPass, "HDF5", "written and read back", "", ""};
}

// "2 x NVIDIA H200, 139 GiB", or why there are none.
std::string gpus_of(const RankFacts& rank) {
  if (rank.gpus.empty()) return "none: " + rank.why_no_gpus;
  std::map<std::string, int> counts;
  for (const std::string& gpu : rank.gpus) ++counts[gpu];
  std::vector<std::string> parts;
  for (const auto& [gpu, n] : counts)
    parts.push_back(n == 1 ? gpu : fmt::format("{} x {}", n, gpu));
  return fmt::format("{}", fmt::join(parts, "; "));
}

Finding gpus(const Ranks& ranks) {
  std::map<std::string, std::set<std::string>> hosts;  // that have the same
  for (const RankFacts& rank : ranks) {
    if (!rank.gpu_error.empty()) {
      return {Health::kFail, "GPUs", fmt::format("on {}: {}", rank.host, rank.gpu_error),
              "ranks on GPUs (--device cuda or auto) could not start",
              "nvidia-smi on that host; --device cpu works everywhere"};
    }
    hosts[gpus_of(rank)].insert(rank.host);
  }
  const bool some = std::any_of(ranks.begin(), ranks.end(),
                                [](const RankFacts& rank) { return !rank.gpus.empty(); });
  if (!some) return {Health::kPass, "GPUs", hosts.begin()->first, "", ""};
  std::vector<std::string> parts;
  for (const auto& [found, of] : hosts) parts.push_back(fmt::format("{} on {}", found, names(of)));
  const auto without = where(ranks, [](const RankFacts& rank) { return rank.gpus.empty(); });
  const std::string text = fmt::format("{}", fmt::join(parts, "\n"));
  if (without.empty()) return {Health::kPass, "GPUs", text, "", ""};
  return {Health::kWarn, "GPUs", text,
          "with --device cuda the job would not start there; with auto those ranks are far slower",
          "nvidia-smi there, or start ranks on hosts with GPUs alone"};
}

Finding nccl(const Ranks& ranks) {
  const auto lacks =
      where(ranks, [](const RankFacts& rank) { return !rank.gpus.empty() && rank.nccl.empty(); });
  const RankFacts& first = ranks[0];
  if (lacks.empty()) {
    return {Health::kPass, "NCCL",
            first.nccl.empty() ? "not needed without GPUs (" + first.why_no_nccl + ")" : first.nccl,
            "", ""};
  }
  const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const RankFacts& rank) {
    return lacks.contains(rank.host) && rank.nccl.empty();
  });
  return {Health::kWarn, "NCCL", fmt::format("none on {}: {}", names(lacks), at->why_no_nccl),
          "what GPUs exchange then goes through the hosts' memory",
          "install NCCL (Debian: libnccl2), build with its header (libnccl-dev)"};
}

// "config.json" for "config_sha256", "model.safetensors" for what differs of it.
std::string file_of(std::string path) {
  constexpr std::string_view kWeights = "weights.";
  if (path.starts_with(kWeights)) path.erase(0, kWeights.size());
  for (const std::string_view end : {".bytes", ".sampled_sha256"})
    if (path.ends_with(end)) path.erase(path.size() - end.size());
  constexpr std::string_view kHash = "_sha256";
  if (path.ends_with(kHash)) path.replace(path.size() - kHash.size(), kHash.size(), ".json");
  return path;
}

Finding model(const Ranks& ranks) {
  for (const RankFacts& rank : ranks) {
    if (rank.model_error.empty()) continue;
    return {Health::kFail, "model", fmt::format("on {}: {}", rank.host, rank.model_error), "",
            "copy it to all hosts, or use a disk that they share"};
  }
  std::set<std::string> other;
  std::set<std::string> files;
  for (const RankFacts& rank : ranks) {
    for (const Difference& difference : find_differences(ranks[0].model, rank.model)) {
      other.insert(rank.host);
      files.insert(file_of(difference.path));
    }
  }
  if (!other.empty()) {
    return {Health::kFail, "model",
            fmt::format("{} has another one than {}: {}", names(other), ranks[0].host,
                        fmt::join(files, ", ")),
            "ranks with different weights would answer wrongly",
            "copy it again; longhaul checksum --check says which file differs"};
  }
  return {Health::kPass, "model",
          "opens, its tokenizer works; configuration, tokenizer and weights are the same on all "
          "hosts",
          "", ""};
}

}  // namespace

std::vector<Finding> judge(const std::vector<RankFacts>& ranks) {
  std::vector<Finding> findings = {program(ranks), slurm(ranks),   instruction_sets(ranks),
                                   cores(ranks),   memory(ranks),  shared_memory(ranks),
                                   limits(ranks),  scratch(ranks), saving(ranks),
                                   gpus(ranks),    nccl(ranks)};
  const bool has_model = std::any_of(ranks.begin(), ranks.end(), [](const RankFacts& rank) {
    return !rank.model.is_null() || !rank.model_error.empty();
  });
  if (has_model) findings.push_back(model(ranks));
  return findings;
}

}  // namespace longhaul
