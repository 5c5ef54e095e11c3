#include "worker/snapshot/save_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/wire/bytes.h"
#include "model/heads/kept_blocks.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/frozen_cache.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// What the first rank finds out and all ranks go by.
struct Preparation {
  bool is_wanted = false;
  std::int64_t n_earlier = 0;   // tokens that earlier files hold
  std::int64_t generation = 0;  // of the files to write
};

std::optional<std::int64_t> n_slots_of(const SequenceCache& cache, LayerId layer,
                                       KvHeadId kv_head) {
  const MergeState* const state = cache.merge_state(layer);
  if (state == nullptr) return std::nullopt;
  return state->n_slots.at(static_cast<std::size_t>(kv_head.value));
}

// Whether not all query heads see all of its slots.
bool chose_apart(const HeadCache& head) {
  return std::ranges::any_of(head.blocks(),
                             [](const KvBlockRef& block) { return block.seen_by != nullptr; });
}

// The block of the sequence's newest tokens, where it is open here; else of no tokens.
KvBlockRef open_block(const SequenceCache& cache, LayerId layer, KvHeadId kv_head) {
  const HeadCache* const open = cache.open(layer, kv_head);
  if (open == nullptr || open->blocks().empty()) return {};
  const KvBlockRef newest = open->blocks().back();
  const bool is_closed = newest.first_position < cache.head(layer, kv_head).next_position().value;
  return is_closed ? KvBlockRef{} : newest;
}

// Positions whose rows are not written: of a head with a window those that nobody sees any more, of
// others those that earlier files hold; but a head of which tokens were chosen is written whole.
std::vector<HeadPiece> pieces_of(const SaveSequenceArgs& args, bool is_cut,
                                 std::int64_t n_earlier) {
  const CacheLayout& layout = args.cache.layout();
  const std::int64_t n_tokens = args.cache.n_tokens();
  std::vector<HeadPiece> pieces;
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId kv_head : layout.kv_head_ids()) {
      const HeadCache& head = args.cache.head(layer, kv_head);
      const KeyWindow window = layout.window(layer, kv_head);
      const Extent hidden = hidden_positions(window, n_tokens);
      HeadPiece piece{.layer = layer,
                      .kv_head = kv_head,
                      .kind = kind_of(layout.policy(layer, kv_head)),
                      .window = window,
                      .blocks = head.blocks(),
                      .without = window.is_unlimited()
                                     ? Extent{0, n_closed_tokens(layout.shape(), n_earlier)}
                                     : whole_groups(layout.shape(), hidden),
                      .is_chosen = is_cut && is_cut_after_document(layout.policy(layer, kv_head)),
                      .attention = args.cache.attention_sums(layer, kv_head),
                      .local_attention = args.cache.local_attention_sums(layer, kv_head),
                      .recipe = args.cache.recipe(layer, kv_head),
                      .n_slots = n_slots_of(args.cache, layer, kv_head),
                      .gone = args.cache.gone_sums(layer, kv_head),
                      .open = open_block(args.cache, layer, kv_head)};
      if ((head.is_compacted() || piece.recipe) && !piece.is_chosen) {
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("layer {}, KV head {}: a method has chosen tokens of a prompt; only "
                        "documents are saved",
                        layer.value, kv_head.value));
      }
      if (piece.is_chosen || !piece.attention.empty()) piece.positions = head.positions();
      if (piece.is_chosen && chose_apart(head)) piece.seen_by = head.seen_by();
      // A head that sees none but a query's own token has no rows, and is named all the same.
      const bool keeps_nothing = hidden.begin <= 0 && hidden.end >= n_tokens;
      const bool has_more = !piece.attention.empty() || piece.gone.n > 0 || piece.open.n_tokens > 0;
      if (keeps_nothing || has_more || !piece.runs(piece.blocks).empty())
        pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

PartRest rest_of(const SaveSequenceArgs& args) {
  PartRest rest{.last_hidden = args.last_hidden};
  if (!args.writes_queries) return rest;
  for (const LayerId layer : args.cache.layout().layer_ids()) {
    const ObservedQueries::Rows* rows = args.cache.observed().of(layer);
    if (rows != nullptr && !rows->positions.empty())
      rest.queries.push_back({.layer = layer, .positions = rows->positions, .q = rows->q});
    const MergeState* const state = args.cache.merge_state(layer);
    if (state != nullptr) {
      // Files do not know the model's window: all that came from one goes into the next.
      const auto& merging = args.spec.token_merging;
      const std::int64_t n_last = merging ? merging->window - 1 : state->last.rows().n();
      rest.merging.push_back({.layer = layer,
                              .layout = state->last.layout(),
                              .tokens = state->last.on_host(n_last),
                              .n_slots = state->n_slots});
    }
  }
  return rest;
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

// Files of this name that hold a beginning of the tokens, and are as long as they should be.
std::optional<SavedHeader> earlier_files(const SavedSequence& saved) {
  std::error_code ignored;
  if (!fs::exists(saved.master_path(), ignored)) return std::nullopt;
  try {
    SavedHeader header = read_saved_header(saved.master_path());
    const auto n_tokens = static_cast<std::size_t>(header.n_tokens);
    if (header.version != kCacheFileVersion || n_tokens > saved.tokens.size() ||
        header.tokens_sha256 != sha256_of_tokens(saved.tokens.first(n_tokens)) ||
        header.k_type != saved.shape.k_type || header.v_type != saved.shape.v_type ||
        (saved.shape.quantises_groups() && header.block_size != saved.shape.block_size))
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

// Goes on from what is there where that is worth it: not when the chain of files grows too long.
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
  // Of a document that methods have cut since, less is kept than is there; slots change.
  if (next.generation % kMostGenerations == 0 || saved.is_cut || before->is_cut || saved.has_slots)
    return next;
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
  if (auto taken = lock_saved(saved.folder, saved.name)) {
    lock.emplace(std::move(*taken));
  } else {
    // Checkpoints come again and again, and the other one's serves this run, too.
    const LogLevel level = goes_on ? LogLevel::kInfo : LogLevel::kWarning;
    if (log_enabled(level, Subsystem::kSnapshot)) {
      log_line(level, Subsystem::kSnapshot,
               saved.master_path().string() + ": left to the process that is writing it");
    }
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

// Collective. Stages without heads that choose do not know that others have cut theirs.
bool is_cut_anywhere(Communicator& comm, const SequenceCache& cache) {
  std::array<std::int64_t, 1> is_cut = {cache.is_cut() ? 1 : 0};
  comm.all_reduce_max(is_cut);
  return is_cut.front() == 1;
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

// Written by one thread, which is joined before others look.
struct SaveUnderWay::State {
  SaveSequence command;
  Communicator& comm;
  SavedSequence saved;
  std::optional<AppendFile> lock;
  Preparation preparation;
  std::vector<WrittenFile> earlier_parts;  // on the first rank
  std::optional<FrozenCache> frozen;
  std::thread writer;
  WrittenFile part;
  std::future<void> synced;    // the part, valid where it was written
  std::exception_ptr failure;  // of writing

  explicit State(const SaveSequenceArgs& args)
      : command(args.command),
        comm(args.comm),
        saved{.folder = command.folder,
              .name = command.name,
              .spec = args.spec,
              .shape = args.cache.layout().shape(),
              .stream = args.stream,
              .tokens = command.tokens,
              .facts = command.facts,
              .has_slots = args.cache.layout().heads().merges_tokens()} {}

  void write(std::span<const HeadPiece> pieces, const PartRest& rest) noexcept {
    try {
      part = write_part_file(saved, comm.rank(), pieces, rest);
      synced = std::async(std::launch::async, [this] { sync_part_file(saved, comm.rank()); });
    } catch (...) {
      failure = std::current_exception();
    }
  }
  void join() {
    if (writer.joinable()) writer.join();
  }

  // Collective. All parts become the document's, or none: then what was written is removed.
  std::vector<WrittenFile> make_document() {
    std::vector<WrittenFile> parts;
    const bool is_first = comm.rank() == 0;
    try {
      agree_on(comm, [&] {
        if (failure) std::rethrow_exception(failure);
      });
      parts = gather(comm, part);
      // The master is made while the parts go to the disk; it gets its name when all are there.
      agree_on(comm, [&] {
        if (is_first) write_master_file(saved, parts);
        synced.get();
      });
    } catch (...) {
      std::error_code ignored;
      fs::remove(saved.part_path(comm.rank()), ignored);
      if (is_first) drop_master_file(saved, parts);
      throw;
    }
    agree_on(comm, [&] {
      if (is_first) publish_master_file(saved, parts);
    });
    return parts;
  }
};

SaveUnderWay::SaveUnderWay(const SaveSequenceArgs& args) : state_(std::make_unique<State>(args)) {
  State& s = *state_;
  const bool is_first = s.comm.rank() == 0;
  s.saved.is_cut = is_cut_anywhere(s.comm, args.cache);
  agree_on(s.comm, [&] {
    check_file_name(s.command.name);
    require(!s.command.tokens.empty() &&
                static_cast<std::int64_t>(s.command.tokens.size()) == args.cache.n_tokens(),
            fmt::format("saving sequence {} of {} tokens: {} were given", s.command.sequence.value,
                        args.cache.n_tokens(), s.command.tokens.size()));
    if (is_first) s.preparation = prepare(s.saved, s.command.goes_on, s.lock, s.earlier_parts);
  });
  s.preparation = agree_on_preparation(s.comm, s.preparation);
  if (!s.preparation.is_wanted) return;
  s.saved.generation = s.preparation.generation;
  s.saved.earlier_parts = s.earlier_parts;
  std::vector<HeadPiece> pieces;
  PartRest rest;
  agree_on(s.comm, [&] {
    rest = rest_of(args);
    pieces = pieces_of(args, s.saved.is_cut, s.preparation.n_earlier);
    const bool may_wait = s.command.goes_on && s.saved.stream.device() == Device::kCpu &&
                          FrozenCache::copied_bytes(args.cache, pieces) <= kMostCopiedBytes;
    if (may_wait) s.frozen.emplace(args.cache, pieces, rest);
  });
  if (s.frozen) {
    const auto write = [&s] { s.write(s.frozen->pieces(), s.frozen->rest()); };
    try {
      s.writer = std::thread(write);
    } catch (const std::system_error&) {  // no thread is left: not beside the next step, but now
      write();
    }
  } else {
    s.write(pieces, rest);
  }
}

SaveUnderWay::~SaveUnderWay() { state_->join(); }

void SaveUnderWay::finish() {
  State& s = *state_;
  const bool is_first = s.comm.rank() == 0;
  s.join();
  s.frozen.reset();
  if (s.preparation.is_wanted) {
    std::vector<WrittenFile> parts = s.make_document();
    parts.insert(parts.end(), s.earlier_parts.begin(), s.earlier_parts.end());
    if (is_first) remove_parts_but(s.saved.folder, s.saved.name, parts);
  }
  std::error_code ignored;
  if (s.lock) fs::remove(s.lock->path(), ignored);
}

void save_sequence(const SaveSequenceArgs& args) { SaveUnderWay(args).finish(); }

}  // namespace longhaul
