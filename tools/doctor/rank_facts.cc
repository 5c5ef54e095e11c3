#include "tools/doctor/rank_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/clock.h"
#include "base/device/device_cuda.h"
#include "base/error.h"
#include "base/sizes.h"
#include "cluster/comm/gpu_communicator.h"
#include "cluster/comm/host_info.h"
#include "cluster/comm/mpi_environment.h"
#include "cluster/comm/nccl_transport.h"
#include "kernels/cpu/isa.h"
#include "tools/job/check_in.h"
#include "tools/job/memory_probe.h"
#include "tools/job/numa_advice.h"
#include "worker/snapshot/try_hdf5.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 62;

JsonArray list_of(const std::vector<std::int64_t>& values) {
  return JsonArray(values.begin(), values.end());
}

std::vector<std::int64_t> integers_in(const JsonField& list) {
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < list.size(); ++i) values.push_back(list.at(i).as_integer(0, kMost));
  return values;
}

std::vector<std::string> texts_in(const JsonField& list) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < list.size(); ++i) texts.push_back(list.at(i).as_string());
  return texts;
}

std::int64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  std::int64_t value = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value;
}

rlim_t soft_limit(int resource) {
  rlimit limit{};
  return ::getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 ? limit.rlim_cur
                                                                            : RLIM_INFINITY;
}

void look_for_gpus(RankFacts& facts) {
  const NcclFound nccl = find_nccl(GpuCommunicatorConfig{}.nccl_library);
  facts.nccl = nccl.version;
  facts.why_no_nccl = nccl.why_none;
  const int n_gpus = cuda::device_count();
  if (n_gpus == 0) facts.why_no_gpus = cuda::why_no_device();
  try {
    for (int gpu = 0; gpu < n_gpus; ++gpu) {
      const cuda::DeviceInfo info = cuda::device_info(gpu);
      facts.gpus.push_back(fmt::format(
          "{}, {}", info.name, format_byte_size(static_cast<std::int64_t>(info.memory_bytes))));
    }
  } catch (const Error& error) {
    facts.gpu_error = error.what();
  }
}

// A file of the disk that is tried; removed at the end, whatever happens.
class TrialFile {
 public:
  explicit TrialFile(std::string path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) throw_errno("cannot create", path_);
  }
  ~TrialFile() {
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;

  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_errno("cannot write", path_);
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void sync() const {
    if (::fsync(descriptor_) != 0) throw_errno("cannot sync", path_);
  }
  void lock() const {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) throw_errno("cannot lock", path_);
  }
  void rename(const std::string& to) {
    if (::rename(path_.c_str(), to.c_str()) != 0) throw_errno("cannot rename", path_);
    path_ = to;
  }
  std::string read(std::size_t n_bytes) const {
    std::string bytes(n_bytes, '\0');
    const ssize_t n = ::pread(descriptor_, bytes.data(), n_bytes, 0);
    if (n < 0) throw_errno("cannot read", path_);
    bytes.resize(static_cast<std::size_t>(n));
    return bytes;
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

Json to_json(const RankFacts& facts) {
  return JsonObject{{"host", facts.host},
                    {"program", facts.program},
                    {"mpi", facts.mpi},
                    {"n_tasks", facts.n_tasks},
                    {"instruction_set", facts.instruction_set},
                    {"cores", list_of(facts.cores)},
                    {"numa_nodes", list_of(facts.numa_nodes)},
                    {"free_memory", facts.free_memory},
                    {"n_host_cores", facts.n_host_cores},
                    {"host_memory", facts.host_memory},
                    {"free_shared_memory", facts.free_shared_memory},
                    {"n_descriptors", facts.n_descriptors},
                    {"unlimited_stack", facts.unlimited_stack},
                    {"scratch_error", facts.scratch_error},
                    {"scratch_mb_per_s", facts.scratch_mb_per_s},
                    {"sees_scratch_of_0", facts.sees_scratch_of_0},
                    {"has_hdf5", facts.has_hdf5},
                    {"hdf5_error", facts.hdf5_error},
                    {"gpus", JsonArray(facts.gpus.begin(), facts.gpus.end())},
                    {"why_no_gpus", facts.why_no_gpus},
                    {"gpu_error", facts.gpu_error},
                    {"nccl", facts.nccl},
                    {"why_no_nccl", facts.why_no_nccl},
                    {"model_error", facts.model_error},
                    {"model", facts.model}};
}

RankFacts facts_from(const Json& json) {
  const JsonField in(json, "a rank's facts");
  RankFacts facts;
  facts.host = in.at("host").as_string();
  facts.program = in.at("program").json();
  facts.mpi = in.at("mpi").as_string();
  facts.n_tasks = in.at("n_tasks").as_integer(0, kMost);
  facts.instruction_set = in.at("instruction_set").as_string();
  facts.cores = integers_in(in.at("cores"));
  facts.numa_nodes = integers_in(in.at("numa_nodes"));
  facts.free_memory = in.at("free_memory").as_integer(0, kMost);
  facts.n_host_cores = in.at("n_host_cores").as_integer(0, kMost);
  facts.host_memory = in.at("host_memory").as_integer(0, kMost);
  facts.free_shared_memory = in.at("free_shared_memory").as_integer(0, kMost);
  facts.n_descriptors = in.at("n_descriptors").as_integer(0, kMost);
  facts.unlimited_stack = in.at("unlimited_stack").as_bool();
  facts.scratch_error = in.at("scratch_error").as_string();
  facts.scratch_mb_per_s = in.at("scratch_mb_per_s").as_number();
  facts.sees_scratch_of_0 = in.at("sees_scratch_of_0").as_bool();
  facts.has_hdf5 = in.at("has_hdf5").as_bool();
  facts.hdf5_error = in.at("hdf5_error").as_string();
  facts.gpus = texts_in(in.at("gpus"));
  facts.why_no_gpus = in.at("why_no_gpus").as_string();
  facts.gpu_error = in.at("gpu_error").as_string();
  facts.nccl = in.at("nccl").as_string();
  facts.why_no_nccl = in.at("why_no_nccl").as_string();
  facts.model_error = in.at("model_error").as_string();
  if (const auto model = in.find("model")) facts.model = model->json();
  return facts;
}

RankFacts facts_of_this_rank() {
  RankFacts facts;
  facts.host = hostname();
  facts.program = program_identity();
  facts.mpi = mpi_library();
  facts.n_tasks = number_in("SLURM_NTASKS");
  facts.instruction_set = name_of(active_isa());
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &cores)) facts.cores.push_back(core);
  }
  for (const int node : numa_nodes_of(cores)) facts.numa_nodes.push_back(node);
  facts.n_host_cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  facts.free_memory = free_memory_bytes();
  facts.host_memory =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0)
    facts.free_shared_memory = static_cast<std::int64_t>(shared.f_bavail * shared.f_frsize);
  const rlim_t n_descriptors = soft_limit(RLIMIT_NOFILE);
  facts.n_descriptors =
      n_descriptors == RLIM_INFINITY ? kMost : static_cast<std::int64_t>(n_descriptors);
  facts.unlimited_stack = soft_limit(RLIMIT_STACK) == RLIM_INFINITY;
  look_for_gpus(facts);
  return facts;
}

void try_scratch(const std::string& folder, int rank, RankFacts& facts) {
  constexpr std::size_t kBytes = 16 << 20;
  const std::string path =
      fmt::format("{}/longhaul-doctor-{}-{}-{}", folder, facts.host, ::getpid(), rank);
  try {
    const std::string bytes(kBytes, 'd');
    TrialFile file(path + ".partial");
    const Stopwatch watch;
    file.write(bytes);
    file.sync();
    facts.scratch_mb_per_s = static_cast<double>(kBytes) / 1e6 / watch.seconds();
    file.lock();
    file.rename(path);
    if (file.read(kBytes) != bytes)
      throw Error(ErrorCode::kIo, path + ": reads back other bytes than were written");
  } catch (const Error& error) {
    facts.scratch_error = error.what();
  }
  try {
    try_hdf5(path + ".h5");
  } catch (const Error& error) {
    facts.has_hdf5 = error.code() != ErrorCode::kUnsupported;
    facts.hdf5_error = error.what();
  }
}

}  // namespace longhaul
