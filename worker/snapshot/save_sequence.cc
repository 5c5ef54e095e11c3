#include "worker/snapshot/save_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/wire/bytes.h"
#include "model/heads/kept_blocks.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Positions whose rows are not written: of a head with a window those that nobody sees any more, of
// others those that earlier files hold.
std::vector<HeadPiece> pieces_of(const SaveSequenceArgs& args, std::int64_t n_earlier) {
  const CacheLayout& layout = args.cache.layout();
  const std::int64_t n_tokens = args.cache.n_tokens();
  std::vector<HeadPiece> pieces;
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId kv_head : layout.kv_head_ids()) {
      if (args.cache.head(layer, kv_head).is_compacted()) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("layer {}, KV head {}: caches of which a method kept some tokens "
                                "cannot be saved yet",
                                layer.value, kv_head.value));
      }
      const KeyWindow window = layout.window(layer, kv_head);
      const Extent hidden = hidden_positions(window, n_tokens);
      const HeadPiece piece{.layer = layer,
                            .kv_head = kv_head,
                            .kind = kind_of(layout.policy(layer, kv_head)),
                            .window = window,
                            .blocks = args.cache.head(layer, kv_head).blocks(),
                            .without = window.is_unlimited() ? Extent{0, n_earlier} : hidden};
      // A head that sees none but a query's own token has no rows, and is named all the same.
      const bool keeps_nothing = hidden.begin <= 0 && hidden.end >= n_tokens;
      if (keeps_nothing || !block_runs(piece.blocks, piece.without).empty())
        pieces.push_back(piece);
    }
  }
  return pieces;
}

std::vector<WrittenFile> gather(Communicator& comm, const WrittenFile& mine) {
  ByteWriter out;
  out.text(mine.name);
  out.number(mine.n_bytes);
  out.text(mine.sha256_between);
  std::vector<WrittenFile> all;
  for (const auto& bytes : comm.all_gather_varying(out.take())) {
    ByteReader in(bytes, "a rank's cache file");
    WrittenFile file;
    file.name = in.text();
    file.n_bytes = in.number<std::int64_t>();
    file.sha256_between = in.text();
    in.finish();
    all.push_back(std::move(file));
  }
  return all;
}

// What the first rank finds out and all ranks go by.
struct Preparation {
  bool is_wanted = false;
  std::int64_t n_earlier = 0;   // tokens that earlier files hold
  std::int64_t generation = 0;  // of the files to write
};

// Files of this name that hold a beginning of the tokens, and are as long as they should be.
std::optional<SavedHeader> earlier_files(const SavedSequence& saved) {
  std::error_code ignored;
  if (!fs::exists(saved.master_path(), ignored)) return std::nullopt;
  try {
    SavedHeader header = read_saved_header(saved.master_path());
    const auto n_tokens = static_cast<std::size_t>(header.n_tokens);
    if (header.version != kCacheFileVersion || n_tokens > saved.tokens.size() ||
        header.tokens_sha256 != sha256_of_tokens(saved.tokens.first(n_tokens)) ||
        header.k_type != saved.shape.k_type || header.v_type != saved.shape.v_type)
      return std::nullopt;
    for (const WrittenFile& part : header.parts) {
      if (fs::file_size(saved.folder / part.name, ignored) !=
          static_cast<std::uintmax_t>(part.n_bytes))
        return std::nullopt;
    }
    return header;
  } catch (const Error& error) {
    LONGHAUL_LOG(kWarning, kSnapshot, "{}; it is replaced", error.what());
    return std::nullopt;
  }
}

// Goes on from what is there where that is worth it: not when the chain of files grows too long,
// nor when most of it would be there already.
Preparation go_on(const SavedSequence& saved, std::vector<WrittenFile>& earlier_parts) {
  constexpr std::int64_t kMostGenerations = 16;
  std::optional<SavedHeader> before = earlier_files(saved);
  if (!before) {
    remove_saved(saved.folder, saved.name);
    return {.is_wanted = true};
  }
  remove_parts_but(saved.folder, saved.name, before->parts);
  if (before->n_tokens == static_cast<std::int64_t>(saved.tokens.size())) return {};
  Preparation next{.is_wanted = true, .generation = before->generation + 1};
  if (next.generation % kMostGenerations == 0) return next;
  next.n_earlier = before->n_tokens;
  earlier_parts = std::move(before->parts);
  return next;
}

// The first rank's preparation: the folder is there, nobody else writes this name, and nothing of
// an earlier attempt is left.
Preparation prepare(const SavedSequence& saved, bool goes_on, std::optional<AppendFile>& lock,
                    std::vector<WrittenFile>& earlier_parts) {
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
    return {};
  }
  if (goes_on) return go_on(saved, earlier_parts);
  if (is_saved(saved)) return {};
  remove_saved(saved.folder, saved.name);
  return {.is_wanted = true};
}

// Collective. The first rank's preparation for all.
Preparation agree_on_preparation(Communicator& comm, const Preparation& firsts) {
  std::array<std::int64_t, 3> numbers{};
  if (comm.rank() == 0) numbers = {firsts.is_wanted ? 1 : 0, firsts.n_earlier, firsts.generation};
  comm.all_reduce_max(numbers);
  return {.is_wanted = numbers[0] == 1, .n_earlier = numbers[1], .generation = numbers[2]};
}

}  // namespace

void check_file_name(const std::string& name) {
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

void save_sequence(const SaveSequenceArgs& args) {
  const SaveSequence& command = args.command;
  Communicator& comm = args.comm;
  const bool is_first = comm.rank() == 0;
  SavedSequence saved{.folder = command.folder,
                      .name = command.name,
                      .spec = args.spec,
                      .shape = args.cache.layout().shape(),
                      .stream = args.stream,
                      .tokens = command.tokens,
                      .facts = command.facts};
  std::optional<AppendFile> lock;
  Preparation preparation;
  std::vector<WrittenFile> earlier_parts;  // on the first rank
  agree_on(comm, [&] {
    check_file_name(command.name);
    require(!command.tokens.empty() &&
                static_cast<std::int64_t>(command.tokens.size()) == args.cache.n_tokens(),
            fmt::format("saving sequence {} of {} tokens: {} were given", command.sequence.value,
                        args.cache.n_tokens(), command.tokens.size()));
    if (is_first) preparation = prepare(saved, command.goes_on, lock, earlier_parts);
  });
  preparation = agree_on_preparation(comm, preparation);
  if (preparation.is_wanted) {
    saved.generation = preparation.generation;
    saved.earlier_parts = earlier_parts;
    const std::int64_t part = comm.rank();
    WrittenFile mine;
    try {
      agree_on(comm, [&] {
        mine =
            write_part_file(saved, part, pieces_of(args, preparation.n_earlier), args.last_hidden);
      });
    } catch (...) {
      std::error_code ignored;
      fs::remove(saved.part_path(part), ignored);
      throw;
    }
    std::vector<WrittenFile> parts = gather(comm, mine);
    // If it fails it removes these parts.
    agree_on(comm, [&] {
      if (is_first) write_master_file(saved, parts);
    });
    parts.insert(parts.end(), earlier_parts.begin(), earlier_parts.end());
    if (is_first) remove_parts_but(saved.folder, saved.name, parts);
  }
  std::error_code ignored;
  if (lock) fs::remove(lock->path(), ignored);
}

}  // namespace longhaul
