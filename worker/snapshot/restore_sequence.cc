#include "worker/snapshot/restore_sequence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "worker/snapshot/fill_from_chunks.h"
#include "worker/snapshot/head_loader.h"
#include "worker/snapshot/head_to_fill.h"
#include "worker/snapshot/method_state.h"
#include "worker/snapshot/open_rows.h"
#include "worker/snapshot/save_sequence.h"
#include "worker/snapshot/saved_header.h"
#include "worker/snapshot/saved_index.h"

namespace longhaul {
namespace {

void check_fits(const RestoreSequenceArgs& args, const SavedHeader& header) {
  const RestoreSequence& command = args.command;
  const KvBlockShape& shape = args.cache.layout().shape();
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, const auto& saved, const auto& now) {
    if (saved != now) differences.push_back(fmt::format("{} {} (this run: {})", what, saved, now));
  };
  compare("content", header.content_id, command.content_id);
  const bool is_beginning = command.n_tokens < header.n_tokens;
  if (!is_beginning || !keeps_beginnings(header) ||
      longest_beginning(header, command.n_tokens) != command.n_tokens)
    compare("tokens", header.n_tokens, command.n_tokens);
  compare("layers", header.n_layers, args.spec.n_layers);
  compare("KV heads", header.n_kv_heads, args.spec.n_kv_heads);
  compare("head_dim", header.head_dim, args.spec.head_dim);
  compare("rope_theta", header.rope_theta, args.spec.rope_theta);
  // Groups are not made of saved rows, and blocks of them are neither cut nor joined.
  if (!command.converts || shape.quantises_groups()) {
    compare("keys of type", name_of(header.k_type), name_of(shape.k_type));
    compare("values of type", name_of(header.v_type), name_of(shape.v_type));
  }
  if (shape.quantises_groups()) compare("blocks of", header.block_size, shape.block_size);
  if (differences.empty()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} holds other caches than this run's: {}", header.master.string(),
                          fmt::join(differences, ", ")));
}

template <typename Use>
void each_head(const RestoreSequenceArgs& args, const Use& use) {
  const CacheLayout& layout = args.cache.layout();
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId kv_head : layout.kv_head_ids()) use(layer, kv_head);
  }
}

HeadToFillArgs head_to_fill(const RestoreSequenceArgs& args, const SavedHeader& header,
                            const std::vector<SavedRole>& roles, LayerId layer, KvHeadId kv_head) {
  return {.cache = args.cache,
          .layer = layer,
          .kv_head = kv_head,
          .n_tokens = args.command.n_tokens,
          .stream = args.stream,
          .is_home = [=, &args](std::int64_t b) { return args.is_home(layer, kv_head, b); },
          .chosen = chosen_tokens(header, roles, layer, kv_head),
          .n_slots = n_saved_slots(header, roles, layer, kv_head)};
}

// Whether this rank checks the whole of a file: they take turns.
bool checks(const Communicator& comm, std::size_t file) {
  return static_cast<int>(file % static_cast<std::size_t>(comm.size())) == comm.rank();
}

// In one pass over the files, each chunk checked before its rows are taken.
void load_chunks(const RestoreSequenceArgs& args, const SavedHeader& header) {
  std::deque<HeadToFill> heads;
  std::map<std::pair<LayerId, KvHeadId>, std::span<const BlockToFill>> blocks;
  const std::vector<SavedRole> roles = read_saved_roles(header);
  each_head(args, [&](LayerId layer, KvHeadId kv_head) {
    const HeadToFill& head = heads.emplace_back(head_to_fill(args, header, roles, layer, kv_head));
    if (!head.blocks().empty()) blocks[{layer, kv_head}] = head.blocks();
  });
  fill_from_chunks({.header = header,
                    .index = read_saved_index(header),
                    .shape = args.cache.layout().shape(),
                    .blocks = blocks,
                    .checks = [&](std::size_t file) { return checks(args.comm, file); }});
}

// Head by head, of files that are whole.
void load_heads(const RestoreSequenceArgs& args, const SavedHeader& header) {
  HeadLoader loader(header);
  const std::vector<SavedRole> roles = read_saved_roles(header);
  each_head(args, [&](LayerId layer, KvHeadId kv_head) {
    HeadToFill head(head_to_fill(args, header, roles, layer, kv_head));
    if (head.blocks().empty()) return;
    loader.fill(layer, kv_head, head.shape(), head.blocks());
    head.finish();
  });
}

// What lies in open blocks, of files that are whole.
void load_newest(const RestoreSequenceArgs& args, const SavedHeader& header) {
  if (!args.cache.layout().has_open_blocks()) return;
  HeadLoader loader(header);
  const std::vector<SavedRole> roles = read_saved_roles(header);
  each_head(args, [&](LayerId layer, KvHeadId kv_head) {
    load_open_rows(loader, head_to_fill(args, header, roles, layer, kv_head));
  });
}

void set_classes(const RestoreSequenceArgs& args, const SavedHeader& header) {
  if (args.token_classes == nullptr) return;
  const std::vector<std::int32_t> tokens = read_saved_tokens(header);
  const auto n = static_cast<std::size_t>(args.command.n_tokens);
  args.cache.classes().set({0}, *args.token_classes, std::span(tokens).first(n));
}

// Rows that are converted go the slower way, and so do those for a GPU, which are on the host a
// head at a time, and those of old files.
bool goes_by_chunks(const RestoreSequenceArgs& args, const SavedHeader& header) {
  const KvBlockShape& shape = args.cache.layout().shape();
  return header.version >= kCacheFileVersion && header.k_type == shape.k_type &&
         header.v_type == shape.v_type && args.stream.device() == Device::kCpu;
}

}  // namespace

std::vector<float> restore_sequence(const RestoreSequenceArgs& args) {
  Communicator& comm = args.comm;
  const RestoreSequence& command = args.command;
  std::optional<SavedHeader> header;
  agree_on(comm, [&] {
    check_file_name(command.name);
    const auto master = std::filesystem::path(command.folder) / (command.name + ".h5");
    if (!std::filesystem::exists(master))  // nobody's mistake: it was found before
      throw Error(ErrorCode::kIo, fmt::format("{} is gone", master.string()));
    header = read_saved_header(master);
    check_fits(args, *header);
  });
  const bool by_chunks = goes_by_chunks(args, *header);
  agree_on(comm, [&] {
    if (by_chunks) return load_chunks(args, *header);
    for (std::size_t i = 0; i < header->parts.size(); ++i) {
      if (checks(comm, i)) check_part(*header, header->parts[i]);
    }
  });
  std::vector<float> last_hidden;
  agree_on(comm, [&] {
    if (!by_chunks) load_heads(args, *header);
    load_newest(args, *header);
    set_classes(args, *header);
    // That of the saved document's last token is not that of an earlier one.
    if (header->n_tokens != command.n_tokens) return;
    HeadLoader loader(*header);
    last_hidden = loader.last_hidden();
    load_method_state(loader, *header, args.is_home, args.cache);
  });
  return last_hidden;
}

}  // namespace longhaul
