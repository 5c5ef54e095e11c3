#include "tools/bench/kv_speed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/direct_file.h"
#include "base/direct_output.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/ids.h"
#include "cluster/comm/communicator.h"
#include "kernels/kv_block_check.h"
#include "kernels/kv_close.h"
#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/in_parallel.h"
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

void fill_randomly(std::span<std::byte> bytes) {
  std::minstd_rand random(1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
}

// As dd does.
double write_on_one_thread(const fs::path& path, std::int64_t n_bytes) {
  std::vector<std::byte> piece(kPiece);
  fill_randomly(piece);
  fs::remove(path);
  const Stopwatch watch;
  const OpenFile file(path, O_WRONLY | O_CREAT | O_CLOEXEC);
  for (std::int64_t left = n_bytes; left > 0;) {
    const auto n = std::min(static_cast<std::size_t>(left), kPiece);
    left -= file.check(::write(file, piece.data(), n), "write");
  }
  file.check(::fsync(file), "sync");
  return watch.seconds();
}

double read_on_one_thread(const fs::path& path) {
  forget(path);
  std::vector<char> piece(kPiece);
  const Stopwatch watch;
  const OpenFile file(path, O_RDONLY | O_CLOEXEC);
  while (file.check(::read(file, piece.data(), kPiece), "read") > 0) {
  }
  return watch.seconds();
}

// Calls use(offset, n_bytes, buffer) for pieces of so many bytes, on as many threads as caches are
// saved and restored with.
template <typename Use>
void each_piece(std::int64_t n_bytes, const Use& use) {
  constexpr auto kBytes = static_cast<std::int64_t>(kPiece);
  in_parallel(ceil_div(n_bytes, kBytes), [&](std::int64_t i, Piece& buffer) {
    use(i * kBytes, std::min(kBytes, n_bytes - i * kBytes), buffer);
  });
}

// Past the page cache, into space that was taken before.
double write_on_threads(const fs::path& path, std::int64_t n_bytes) {
  HostMemory piece(kHugePageBytes);
  fill_randomly({piece.data(), kPiece});
  fs::remove(path);
  const Stopwatch watch;
  const OpenFile file(path, O_WRONLY | O_CREAT | O_CLOEXEC);
  DirectOutput out(path);
  out.reserve(n_bytes);
  each_piece(n_bytes, [&](std::int64_t offset, std::int64_t n, Piece&) {
    out.write(offset, {piece.data(), static_cast<std::size_t>(n)});
  });
  out.finish();
  file.check(::fsync(file), "sync");
  return watch.seconds();
}

double read_on_threads(const fs::path& path, std::int64_t n_bytes) {
  forget(path);
  const Stopwatch watch;
  const DirectFile file(path);
  each_piece(n_bytes, [&](std::int64_t offset, std::int64_t n, Piece& buffer) {
    buffer.set_size(DirectFile::room_for(static_cast<std::size_t>(n)));
    file.read(offset, static_cast<std::size_t>(n), buffer);
  });
  return watch.seconds();
}

// The same, and each piece is copied to memory that the system gives for the first time.
double read_to_new_memory(const fs::path& path, std::int64_t n_bytes) {
  forget(path);
  const Stopwatch watch;
  const DirectFile file(path);
  HostMemory memory(static_cast<std::size_t>(n_bytes));
  each_piece(n_bytes, [&](std::int64_t offset, std::int64_t n, Piece& buffer) {
    buffer.set_size(DirectFile::room_for(static_cast<std::size_t>(n)));
    const std::span<const std::byte> bytes = file.read(offset, static_cast<std::size_t>(n), buffer);
    std::memcpy(memory.data() + offset, bytes.data(), bytes.size());
  });
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

// Random bytes for so many tokens, in blocks of so many bytes.
void fill(HeadCache& head, std::int64_t n_tokens, std::size_t block_bytes,
          std::minstd_rand& random) {
  const auto place = head.extend(n_tokens);
  if (!place) throw Error(ErrorCode::kOutOfMemory, "the caches do not fit this machine");
  for (std::int64_t i = 0; i < place->n_blocks; ++i) {
    std::byte* block = head.writable_block(*place, i);
    for (std::size_t at = 0; at + sizeof(std::uint32_t) <= block_bytes;
         at += sizeof(std::uint32_t)) {
      const auto word = static_cast<std::uint32_t>(random());
      std::memcpy(block + at, &word, sizeof(word));
    }
  }
}

void fill(SequenceCache& cache, const KvSpeedCase& c) {
  std::minstd_rand random(2);
  const std::int64_t n_closed = n_closed_tokens(c.shape, c.n_tokens);
  for (const LayerId layer : cache.layout().layer_ids()) {
    for (const KvHeadId kv_head : cache.layout().kv_head_ids()) {
      fill(cache.head(layer, kv_head), n_closed, c.shape.bytes(), random);
      HeadCache* const open = cache.open(layer, kv_head);
      if (open == nullptr) continue;
      open->advance_to({n_closed});
      fill(*open, c.n_tokens - n_closed, open_block_shape(c.shape).bytes(), random);
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
  constexpr double kNever = 1e9;
  KvSpeed speed{.plain_write = kNever,
                .direct_write = kNever,
                .save = kNever,
                .plain_read = kNever,
                .direct_read = kNever,
                .read_to_new_memory = kNever,
                .restore = kNever};
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
      speed.plain_write = std::min(speed.plain_write, write_on_one_thread(plain, n_bytes));
      speed.direct_write = std::min(speed.direct_write, write_on_threads(plain, n_bytes));
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
    const auto n_bytes = static_cast<std::int64_t>(fs::file_size(plain));
    speed.plain_read = std::min(speed.plain_read, read_on_one_thread(plain));
    speed.direct_read = std::min(speed.direct_read, read_on_threads(plain, n_bytes));
    speed.read_to_new_memory =
        std::min(speed.read_to_new_memory, read_to_new_memory(plain, n_bytes));
    forget(header.master);
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
