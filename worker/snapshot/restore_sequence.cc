#include "worker/snapshot/restore_sequence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "worker/snapshot/head_loader.h"
#include "worker/snapshot/save_sequence.h"
#include "worker/snapshot/saved_header.h"

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
  compare("tokens", header.n_tokens, command.n_tokens);
  compare("layers", header.n_layers, args.spec.n_layers);
  compare("KV heads", header.n_kv_heads, args.spec.n_kv_heads);
  compare("head_dim", header.head_dim, args.spec.head_dim);
  compare("rope_theta", header.rope_theta, args.spec.rope_theta);
  if (!command.converts) {
    compare("keys of type", name_of(header.k_type), name_of(shape.k_type));
    compare("values of type", name_of(header.v_type), name_of(shape.v_type));
  }
  if (differences.empty()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} holds other caches than this run's: {}", header.master.string(),
                          fmt::join(differences, ", ")));
}

// Whether some later query sees one of the block's tokens, or the next token goes to it.
bool keeps_block(const KeyWindow& window, Extent block, std::int64_t n_tokens) {
  const Extent hidden = hidden_positions(window, n_tokens);
  return block.end > n_tokens || hidden.empty() || block.begin < hidden.begin ||
         block.end > hidden.end;
}

// The cache's blocks of one head that are at home here, to be filled on the host; on a GPU they are
// copied there afterwards.
class HeadToFill {
 public:
  HeadToFill(const RestoreSequenceArgs& args, LayerId layer, KvHeadId kv_head)
      : stream_(args.stream), shape_(args.cache.layout().shape()) {
    const std::int64_t n_tokens = args.command.n_tokens;
    const KeyWindow window = args.cache.layout().window(layer, kv_head);
    HeadCache& head = args.cache.head(layer, kv_head);
    for (std::int64_t block = 0; block * shape_.block_size < n_tokens; ++block) {
      const Extent whole{block * shape_.block_size, (block + 1) * shape_.block_size};
      if (!keeps_block(window, whole, n_tokens) || !args.is_home(layer, kv_head, block)) continue;
      const Extent positions{whole.begin, std::min(whole.end, n_tokens)};
      const auto place = head.store(positions);
      if (!place) {
        throw Error(ErrorCode::kOutOfMemory,
                    fmt::format("no cache block is free for tokens from {} on of layer {}, KV head "
                                "{} of a saved document",
                                positions.begin, layer.value, kv_head.value));
      }
      blocks_.push_back({.positions = positions, .data = place->block});
    }
    head.advance_to({n_tokens});
    if (stream_.device() != Device::kCpu) move_to_host();
  }

  const KvBlockShape& shape() const { return shape_; }
  std::span<const BlockToFill> blocks() const { return blocks_; }

  void finish() {
    for (std::size_t i = 0; i < on_device_.size(); ++i) {
      copy_from_host(stream_, on_device_[i],
                     std::span(memory_).subspan(i * shape_.bytes(), shape_.bytes()));
    }
  }

 private:
  void move_to_host() {
    memory_.resize(blocks_.size() * shape_.bytes());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      on_device_.push_back(blocks_[i].data);
      blocks_[i].data = memory_.data() + i * shape_.bytes();
    }
  }

  StreamRef stream_;
  const KvBlockShape& shape_;
  std::vector<BlockToFill> blocks_;
  std::vector<std::byte*> on_device_;  // of the same blocks, on a GPU
  std::vector<std::byte> memory_;
};

std::vector<float> load(const RestoreSequenceArgs& args, const SavedHeader& header) {
  HeadLoader loader(header);
  const CacheLayout& layout = args.cache.layout();
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId kv_head : layout.kv_head_ids()) {
      HeadToFill head(args, layer, kv_head);
      if (head.blocks().empty()) continue;
      loader.fill(layer, kv_head, head.shape(), head.blocks());
      head.finish();
    }
  }
  return loader.last_hidden();
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
  agree_on(comm, [&] {
    for (std::size_t i = 0; i < header->parts.size(); ++i) {
      if (static_cast<int>(i) % comm.size() == comm.rank()) check_part(*header, header->parts[i]);
    }
  });
  std::vector<float> last_hidden;
  agree_on(comm, [&] { last_hidden = load(args, *header); });
  return last_hidden;
}

}  // namespace longhaul
