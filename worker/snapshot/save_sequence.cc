#include "worker/snapshot/save_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/wire/bytes.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

void check_name(const std::string& name) {
  constexpr std::size_t kLongest = 100;
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '-' ||
           c == '_';
  });
  require(is_plain && !name.empty() && name.size() <= kLongest,
          fmt::format("'{}' cannot be the name of a cache file: at most {} letters, digits, - and "
                      "_ are accepted",
                      name, kLongest));
}

std::vector<HeadPiece> pieces_of(const SaveSequenceArgs& args) {
  const CacheLayout& layout = args.cache.layout();
  std::vector<HeadPiece> pieces;
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId kv_head : layout.kv_head_ids()) {
      if (args.cache.head(layer, kv_head).is_compacted()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("layer {}, KV head {}: caches of which a method kept some tokens "
                                "cannot be saved yet",
                                layer.value, kv_head.value));
      }
      const HeadPiece piece{.layer = layer,
                            .kv_head = kv_head,
                            .kind = kind_of(layout.policy(layer, kv_head)),
                            .window = layout.window(layer, kv_head),
                            .blocks = args.cache.head(layer, kv_head).blocks()};
      if (n_tokens_in(piece.blocks) > 0) pieces.push_back(piece);
    }
  }
  return pieces;
}

std::vector<WrittenFile> gather(Communicator& comm, const WrittenFile& mine) {
  ByteWriter out;
  out.text(mine.name);
  out.number(mine.n_bytes);
  out.text(mine.sha256);
  std::vector<WrittenFile> all;
  for (const auto& bytes : comm.all_gather_varying(out.take())) {
    ByteReader in(bytes, "a rank's cache file");
    WrittenFile file;
    file.name = in.text();
    file.n_bytes = in.number<std::int64_t>();
    file.sha256 = in.text();
    in.finish();
    all.push_back(std::move(file));
  }
  return all;
}

// The first rank's preparation: the folder is there, nobody else writes this name, and nothing of
// an earlier attempt is left. False when there is nothing to do.
bool prepare(const SavedSequence& saved, std::optional<AppendFile>& lock) {
  std::error_code error;
  fs::create_directories(saved.folder, error);
  if (error) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot create folder {}: {}", saved.folder.string(), error.message()));
  }
  try {
    lock.emplace(saved.folder / (saved.name + ".lock"));
  } catch (const Error& busy) {
    if (busy.code() != ErrorCode::kFailedPrecondition) throw;
    LONGHAUL_LOG(kWarning, kSnapshot, "{}: left to the process that is writing it",
                 saved.master_path().string());
    return false;
  }
  if (is_saved(saved)) return false;
  remove_saved(saved);
  return true;
}

}  // namespace

void save_sequence(const SaveSequenceArgs& args) {
  const SaveSequence& command = args.command;
  Communicator& comm = args.comm;
  const bool is_first = comm.rank() == 0;
  const SavedSequence saved{.folder = command.folder,
                            .name = command.name,
                            .spec = args.spec,
                            .shape = args.cache.layout().shape(),
                            .stream = args.stream,
                            .tokens = command.tokens,
                            .facts = command.facts};
  std::optional<AppendFile> lock;
  std::int64_t is_wanted = 0;
  agree_on(comm, [&] {
    check_name(command.name);
    require(!command.tokens.empty() &&
                static_cast<std::int64_t>(command.tokens.size()) == args.cache.n_tokens(),
            fmt::format("saving sequence {} of {} tokens: {} were given", command.sequence.value,
                        args.cache.n_tokens(), command.tokens.size()));
    if (is_first) is_wanted = prepare(saved, lock) ? 1 : 0;
  });
  comm.all_reduce_max(std::span(&is_wanted, 1));
  if (is_wanted == 1) {
    const std::int64_t part = comm.rank();
    WrittenFile mine;
    try {
      agree_on(comm, [&] { mine = write_part_file(saved, part, pieces_of(args)); });
    } catch (...) {
      std::error_code ignored;
      fs::remove(saved.part_path(part), ignored);
      throw;
    }
    const std::vector<WrittenFile> parts = gather(comm, mine);
    // If it fails it removes all parts.
    agree_on(comm, [&] {
      if (is_first) write_master_file(saved, parts);
    });
  }
  std::error_code ignored;
  if (lock) fs::remove(lock->path(), ignored);
}

}  // namespace longhaul
