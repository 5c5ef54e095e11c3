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

// Runs local work on all ranks; if it fails on one, all throw its error.
template <typename Work>
void together(Communicator* comm, Work&& work) {
  if (comm == nullptr) {
    work();
  } else {
    agree_on(*comm, work);
  }
}

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

SavedRole role_of(const ModelSpec& spec, std::int64_t layer, const AttentionMask& mask) {
  const auto window = spec.attention_window.empty()
                          ? ModelSpec::kNoWindow
                          : spec.attention_window[static_cast<std::size_t>(layer)];
  if (window != ModelSpec::kNoWindow) return SavedRole::kWindow;
  return mask.recent == ModelSpec::kNoWindow ? SavedRole::kRetrieval : SavedRole::kStreaming;
}

std::vector<HeadPiece> pieces_of(const SaveSequenceArgs& args) {
  const CacheLayout& layout = args.cache.layout();
  std::vector<HeadPiece> pieces;
  for (std::int64_t layer = layout.layers().begin; layer < layout.layers().end; ++layer) {
    for (std::int64_t head = 0; head < layout.n_kv_heads(); ++head) {
      const AttentionMask mask = layout.policy(layer, head).mask();
      const HeadPiece piece{.layer = layer,
                            .kv_head = head,
                            .role = role_of(args.spec, layer, mask),
                            .mask = mask,
                            .blocks = args.cache.head(layer, head).blocks()};
      if (n_tokens_in(piece.blocks) > 0) pieces.push_back(piece);
    }
  }
  return pieces;
}

std::vector<WrittenFile> gather(Communicator* comm, const WrittenFile& mine) {
  if (comm == nullptr) return {mine};
  ByteWriter out;
  out.text(mine.name);
  out.number(mine.n_bytes);
  out.text(mine.sha256);
  std::vector<WrittenFile> all;
  for (const auto& bytes : comm->all_gather_varying(out.take())) {
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
  Communicator* comm = args.comm;
  const bool is_first = comm == nullptr || comm->rank() == 0;
  const SavedSequence saved{.folder = command.folder,
                            .name = command.name,
                            .spec = args.spec,
                            .shape = args.cache.layout().shape(),
                            .stream = args.stream,
                            .tokens = command.tokens,
                            .facts = command.facts};
  std::optional<AppendFile> lock;
  std::int64_t is_wanted = 0;
  together(comm, [&] {
    check_name(command.name);
    require(!command.tokens.empty() &&
                static_cast<std::int64_t>(command.tokens.size()) == args.cache.n_tokens(),
            fmt::format("saving sequence {} of {} tokens: {} were given", command.sequence.value,
                        args.cache.n_tokens(), command.tokens.size()));
    if (is_first) is_wanted = prepare(saved, lock) ? 1 : 0;
  });
  if (comm != nullptr) comm->all_reduce_max(std::span(&is_wanted, 1));
  if (is_wanted == 1) {
    const std::int64_t part = comm == nullptr ? 0 : comm->rank();
    WrittenFile mine;
    try {
      together(comm, [&] { mine = write_part_file(saved, part, pieces_of(args)); });
    } catch (...) {
      std::error_code ignored;
      fs::remove(saved.part_path(part), ignored);
      throw;
    }
    const std::vector<WrittenFile> parts = gather(comm, mine);
    // If it fails it removes all parts.
    together(comm, [&] {
      if (is_first) write_master_file(saved, parts);
    });
  }
  std::error_code ignored;
  if (lock) fs::remove(lock->path(), ignored);
}

}  // namespace longhaul
