#include "tools/bench/kv_speed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "cluster/comm/communicator.h"
#include "kernels/kv_block_check.h"
#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/restore_sequence.h"
#include "worker/snapshot/save_sequence.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr int kRounds = 3;

class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags)
      : path_(path), file_(::open(path.c_str(), flags, 0600)) {
    check(file_, "open");
  }
  ~OpenFile() { ::close(file_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  ssize_t check(ssize_t result, const char* what) const {
    if (result >= 0) return result;
    throw Error(ErrorCode::kIo,
                fmt::format("cannot {} {}: {}", what, path_.string(), std::strerror(errno)));
  }
  operator int() const { return file_; }

 private:
  fs::path path_;
  int file_;
};

// What the next reader gets comes from the disk, as far as the system does as it is asked.
void forget(const fs::path& path) {
  const OpenFile file(path, O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

double write_plainly(const fs::path& path, std::int64_t n_bytes) {
  std::vector<char> piece(kPiece);
  std::minstd_rand random(1);
  for (char& byte : piece) byte = static_cast<char>(random());
  const Stopwatch watch;
  const OpenFile file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  for (std::int64_t left = n_bytes; left > 0;) {
    const auto n = std::min(static_cast<std::size_t>(left), kPiece);
    left -= file.check(::write(file, piece.data(), n), "write");
  }
  file.check(::fsync(file), "sync");
  return watch.seconds();
}

double read_plainly(const fs::path& path) {
  forget(path);
  std::vector<char> piece(kPiece);
  const Stopwatch watch;
  const OpenFile file(path, O_RDONLY | O_CLOEXEC);
  while (file.check(::read(file, piece.data(), kPiece), "read") > 0) {
  }
  return watch.seconds();
}

ModelSpec spec_of(const KvSpeedCase& c) {
  ModelSpec spec;
  spec.model_type = "bench";
  spec.n_layers = c.n_layers;
  spec.n_kv_heads = c.n_kv_heads;
  spec.head_dim = c.shape.head_dim;
  return spec;
}

void fill(SequenceCache& cache, const KvSpeedCase& c) {
  std::minstd_rand random(2);
  const std::size_t n_bytes = c.shape.bytes();
  for (const LayerId layer : cache.layout().layer_ids()) {
    for (const KvHeadId kv_head : cache.layout().kv_head_ids()) {
      HeadCache& head = cache.head(layer, kv_head);
      const auto place = head.extend(c.n_tokens);
      if (!place) throw Error(ErrorCode::kOutOfMemory, "the caches do not fit this machine");
      for (std::int64_t i = 0; i < place->n_blocks; ++i) {
        std::byte* block = head.writable_block(*place, i);
        for (std::size_t at = 0; at + sizeof(std::uint32_t) <= n_bytes;
             at += sizeof(std::uint32_t)) {
          const auto word = static_cast<std::uint32_t>(random());
          std::memcpy(block + at, &word, sizeof(word));
        }
      }
    }
  }
}

}  // namespace

KvSpeed measure_kv_speed(const KvSpeedCase& c) {
  check_kv_block_shape("bench kv", c.shape);
  fs::create_directories(c.folder);
  const ModelSpec spec = spec_of(c);
  const CacheLayout layout(HeadTable(c.n_layers, c.n_kv_heads), {0, c.n_layers}, c.shape);
  const auto comm = make_communicator({});
  BlockPool pool(c.shape);
  const std::string name = "bench-kv";
  const fs::path plain = c.folder / "bench-kv.plain";
  KvSpeed speed{.plain_write = 1e9, .save = 1e9, .plain_read = 1e9, .restore = 1e9};
  {
    SequenceCache cache(layout, pool);
    fill(cache, c);
    const auto n_bytes = static_cast<std::int64_t>(pool.bytes_in_use());
    const SaveSequence command{
        .sequence = {1},
        .folder = c.folder.string(),
        .name = name,
        .tokens = std::vector<std::int32_t>(static_cast<std::size_t>(c.n_tokens), 7),
        .facts = {{"content_id", "bench"}}};
    for (int round = 0; round < kRounds; ++round) {
      speed.plain_write = std::min(speed.plain_write, write_plainly(plain, n_bytes));
      remove_saved(c.folder, name);
      const Stopwatch watch;
      save_sequence({.command = command, .cache = cache, .spec = spec, .comm = *comm});
      speed.save = std::min(speed.save, watch.seconds());
    }
  }
  const SavedHeader header = read_saved_header(c.folder / (name + ".h5"));
  speed.n_bytes = header.n_bytes();
  const RestoreSequence command{.sequence = {1},
                                .folder = c.folder.string(),
                                .name = name,
                                .content_id = "bench",
                                .n_tokens = c.n_tokens};
  for (int round = 0; round < kRounds; ++round) {
    speed.plain_read = std::min(speed.plain_read, read_plainly(plain));
    for (const WrittenFile& part : header.parts) forget(c.folder / part.name);
    SequenceCache cache(layout, pool);
    const Stopwatch watch;
    restore_sequence({.command = command,
                      .cache = cache,
                      .spec = spec,
                      .comm = *comm,
                      .is_home = [](LayerId, KvHeadId, std::int64_t) { return true; }});
    speed.restore = std::min(speed.restore, watch.seconds());
  }
  remove_saved(c.folder, name);
  std::error_code ignored;
  fs::remove(plain, ignored);
  fs::remove(c.folder, ignored);
  return speed;
}

}  // namespace longhaul::bench
