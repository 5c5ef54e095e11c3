#include "tests/unit/snapshot/dealt_caches.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "kernels/kv_append.h"
#include "kernels/kv_close.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

// A float whose bits are arbitrary but for NaN; exact in bf16 when its lower half is cleared.
// Something sensible for a quantised cache.
float random_value(Random& random, KvType type) {
  if (is_quantised(type)) return static_cast<float>(random.uniform(-3, 5));
  while (true) {
    auto bits = static_cast<std::uint32_t>(random.engine()());
    if (type == KvType::kBf16) bits &= 0xffff0000U;
    const auto value = std::bit_cast<float>(bits);
    // Kernels may flush denormals; infinities and signed zeros must survive.
    if (value == value && (value == 0 || std::abs(value) >= 1.2e-38F)) return value;
  }
}

template <typename T>
void write_array(const fs::path& path, const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

}  // namespace

DealtCaches::DealtCaches(const DealtSpec& spec, Random& random) : spec_(spec), pool_(spec.shape) {
  model_.model_type = "llama";
  model_.n_layers = spec.n_layers;
  model_.n_kv_heads = spec.n_kv_heads;
  model_.head_dim = spec.shape.head_dim;
  tokens_ = random_tokens(random, spec.n_tokens, /*vocab_size=*/100'000);
  facts_ = {{"model_id", "made up"}, {"content_id", fmt::format("{:016x}", random.engine()())}};
  const std::int64_t block_size = spec.shape.block_size;
  for (std::int64_t i = 0; i < spec.n_layers * spec.n_kv_heads; ++i) {
    Head head;
    head.layer = {i / spec.n_kv_heads};
    head.kv_head = {i % spec.n_kv_heads};
    const bool streams = (head.layer.value + head.kv_head.value) % 2 == 1;
    head.kind = streams ? HeadKind::kStreaming : HeadKind::kRetrieval;
    if (streams) head.window = {.sink = spec.sink, .recent = spec.recent};
    head.blocks.resize(static_cast<std::size_t>(spec.n_ranks));
    head.open.resize(static_cast<std::size_t>(spec.n_ranks));
    const auto home = random.integer(0, spec.n_ranks - 1);
    for (std::int64_t first = 0; first < spec.n_tokens; first += block_size) {
      const std::int64_t end = std::min(first + block_size, spec.n_tokens);
      if (streams && first >= spec.sink && end <= spec.n_tokens - spec.recent) continue;
      const auto rank =
          static_cast<std::size_t>(streams ? home : random.integer(0, spec.n_ranks - 1));
      const bool is_open = spec.shape.quantises_groups() && end - first < block_size;
      BlockPool& pool = is_open ? *pool_.open() : pool_;
      const KvBlockRef block{
          .data = pool.data(*pool.take()), .first_position = first, .n_tokens = end - first};
      if (is_open) {
        head.open[rank] = block;
      } else {
        head.blocks[rank].push_back(block);
      }
    }
    fill(head, random);
    heads_.push_back(std::move(head));
  }
}

void DealtCaches::fill(const Head& head, Random& random) {
  for (const auto& [shape, block] : shaped_blocks(head)) fill(shape, block, random);
}

void DealtCaches::fill(const KvBlockShape& shape, const KvBlockRef& block, Random& random) {
  const std::int64_t head_dim = shape.head_dim;
  std::vector<float> k;
  std::vector<float> v;
  for (std::int64_t i = 0; i < block.n_tokens * head_dim; ++i) {
    k.push_back(random_value(random, shape.k_type));
    v.push_back(random_value(random, shape.v_type));
  }
  auto* data = const_cast<std::byte*>(block.data);
  const KvAppendItem item{.k = TensorView<const float, 2>(k.data(), {block.n_tokens, head_dim}),
                          .v = TensorView<const float, 2>(v.data(), {block.n_tokens, head_dim}),
                          .blocks = {&data, 1}};
  kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
}

std::vector<std::pair<KvBlockShape, KvBlockRef>> DealtCaches::shaped_blocks(
    const Head& head) const {
  std::vector<std::pair<KvBlockShape, KvBlockRef>> shaped;
  for (const KvBlockRef& block : all_blocks(head)) shaped.emplace_back(spec_.shape, block);
  for (const KvBlockRef& block : head.open)
    if (block.n_tokens > 0) shaped.emplace_back(open_block_shape(spec_.shape), block);
  return shaped;
}

std::vector<KvBlockRef> DealtCaches::all_blocks(const Head& head) const {
  std::vector<KvBlockRef> all;
  for (const auto& blocks : head.blocks) all.insert(all.end(), blocks.begin(), blocks.end());
  std::sort(all.begin(), all.end(), [](const KvBlockRef& a, const KvBlockRef& b) {
    return a.first_position < b.first_position;
  });
  return all;
}

std::vector<HeadPiece> DealtCaches::pieces(int rank) const {
  std::vector<HeadPiece> pieces;
  for (const Head& head : heads_) {
    const auto& blocks = head.blocks[static_cast<std::size_t>(rank)];
    const KvBlockRef& open = head.open[static_cast<std::size_t>(rank)];
    if (blocks.empty() && open.n_tokens == 0) continue;
    pieces.push_back({.layer = head.layer,
                      .kv_head = head.kv_head,
                      .kind = head.kind,
                      .window = head.window,
                      .blocks = blocks,
                      .open = open});
  }
  return pieces;
}

SavedSequence DealtCaches::saved_in(const fs::path& folder) const {
  return {.folder = folder,
          .name = "doc-0123",
          .spec = model_,
          .shape = spec_.shape,
          .tokens = tokens_,
          .facts = facts_};
}

void DealtCaches::save(const SavedSequence& saved) const {
  std::vector<WrittenFile> parts;
  for (int rank = 0; rank < spec_.n_ranks; ++rank)
    parts.push_back(write_part_file(saved, rank, pieces(rank)));
  write_master_file(saved, parts);
  publish_master_file(saved, parts);
}

void DealtCaches::write_expectation(const fs::path& folder) const {
  fs::create_directories(folder);
  write_array(folder / "tokens", tokens_);
  const std::int64_t head_dim = spec_.shape.head_dim;
  for (const Head& head : heads_) {
    std::vector<std::int64_t> positions;
    std::vector<float> k;
    std::vector<float> v;
    for (const auto& [shape, block] : shaped_blocks(head)) {
      std::vector<float> rows(static_cast<std::size_t>(block.n_tokens * head_dim));
      const TensorView<float, 2> view(rows.data(), {block.n_tokens, head_dim});
      kv_read_k(shape, block.data, 0, view);
      k.insert(k.end(), rows.begin(), rows.end());
      kv_read_v(shape, block.data, 0, view);
      v.insert(v.end(), rows.begin(), rows.end());
      for (std::int64_t i = 0; i < block.n_tokens; ++i)
        positions.push_back(block.first_position + i);
    }
    const std::string stem =
        fmt::format("{}-{}-{}-", head.layer.value, head.kv_head.value, role_name(head.kind));
    write_array(folder / (stem + "positions"), positions);
    write_array(folder / (stem + "k"), k);
    write_array(folder / (stem + "v"), v);
  }
}

bool has_h5py() { return !std::string_view(LONGHAUL_H5PY_PYTHON).empty(); }

std::string run_check(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  const fs::path said = folder.path() / "said";
  std::string command =
      fmt::format("'{}' '{}'", LONGHAUL_H5PY_PYTHON,
                  source_path("tests/unit/snapshot/check_cache_files.py").string());
  for (const std::string& argument : arguments) command += fmt::format(" '{}'", argument);
  const int status = std::system(fmt::format("{} >'{}' 2>&1", command, said.string()).c_str());
  const std::string text = read_file(said, 1 << 20);
  return status == 0 ? "" : fmt::format("status {}: {}", status, text);
}

testing::AssertionResult holds(const fs::path& master, const DealtCaches& caches) {
  const TemporaryFolder folder;
  caches.write_expectation(folder.path());
  const std::string complaint = run_check({"same", master.string(), folder.path().string()});
  if (complaint.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << complaint;
}

}  // namespace longhaul::test
