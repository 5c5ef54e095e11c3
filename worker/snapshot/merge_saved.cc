#include "worker/snapshot/merge_saved.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "worker/snapshot/file_layout.h"
#include "worker/snapshot/head_loader.h"
#include "worker/snapshot/head_to_fill.h"
#include "worker/snapshot/method_state.h"
#include "worker/snapshot/open_rows.h"

namespace longhaul {
namespace {

void check_agrees(const SavedHeader& first, std::span<const std::int32_t> tokens,
                  const SavedHeader& other) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} and {} cannot be merged: {}", first.master.string(),
                            other.master.string(), what));
  };
  if (first.settings != other.settings)
    refuse("they were made with other settings (longhaul kv diff names them)");
  if (first.k_type != other.k_type || first.v_type != other.v_type)
    refuse("their cache types differ; longhaul kv convert makes them alike");
  if (first.block_shape().quantises_groups() && first.block_size != other.block_size)
    refuse("they quantise groups of tokens in blocks of other sizes");
  const auto n = static_cast<std::size_t>(other.n_tokens);
  if (n > tokens.size() || sha256_of_tokens(tokens.first(n)) != other.tokens_sha256)
    refuse("the second one's tokens are no beginning of the first one's");
}

// The parts of one source that are whole.
class Source {
 public:
  Source(const SavedHeader& header, const std::function<void(const std::string&)>& on_note)
      : header_(header) {
    for (const WrittenFile& part : header.parts) {
      try {
        check_part(header, part);
        parts_.push_back(part);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kCorruptData) throw;
        on_note(error.what());
      }
    }
    loader_ = std::make_unique<HeadLoader>(header, parts_);
  }
  const SavedHeader& header() const { return header_; }
  HeadLoader& loader() { return *loader_; }
  bool is_whole() const { return parts_.size() == header_.parts.size(); }

 private:
  const SavedHeader& header_;
  std::vector<WrittenFile> parts_;
  std::unique_ptr<HeadLoader> loader_;
};

// The first of these positions that `sorted` runs do not have.
Extent first_lacking_of(const std::vector<std::int64_t>& positions,
                        const std::vector<Extent>& sorted) {
  for (const std::int64_t position : positions) {
    const bool is_there = std::any_of(sorted.begin(), sorted.end(), [&](const Extent& run) {
      return run.begin <= position && position < run.end;
    });
    if (!is_there) return {position, position + 1};
  }
  return {};
}

// What methods go on with comes whole from one source.
void load_state(std::vector<Source>& sources, SequenceCache& cache) {
  const SavedHeader& first = sources.front().header();
  for (Source& source : sources) {
    const bool is_alike = source.header().n_tokens == first.n_tokens && source.is_whole();
    if (!is_alike) continue;
    const auto everywhere = [](LayerId, KvHeadId, std::int64_t) { return true; };
    return load_method_state(source.loader(), source.header(), everywhere, cache);
  }
  if (first.has_method_state) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: the queries and sums that its method goes on with are whole in none "
                    "of the files",
                    first.master.string()));
  }
  if (first.is_cut) cache.set_cut();
}

// The newest tokens, of the first source that has the head's; adds their positions to `found`.
void fill_newest(std::vector<Source>& sources, const HeadToFillArgs& args,
                 std::vector<Extent>& found) {
  if (!args.cache.layout().has_open_blocks()) return;
  for (Source& source : sources) {
    if (source.header().n_tokens < args.n_tokens) continue;
    const Extent newest = source.loader().open_rows(args.layer, args.kv_head).positions;
    if (newest.size() != source.header().n_tokens % source.header().block_size) continue;
    found.push_back(newest);
    return load_open_rows(source.loader(), args);
  }
}

// Fills one head from the last source to the first, whose rows so stand in the end.
void fill_head(std::vector<Source>& sources, const std::vector<SavedRole>& roles,
               SequenceCache& cache, LayerId layer, KvHeadId kv_head) {
  const SavedHeader& first = sources.front().header();
  const KeyWindow window = cache.layout().window(layer, kv_head);
  const auto chosen = chosen_tokens(first, roles, layer, kv_head);
  const HeadToFillArgs args{.cache = cache,
                            .layer = layer,
                            .kv_head = kv_head,
                            .n_tokens = first.n_tokens,
                            .is_home = [](std::int64_t) { return true; },
                            .chosen = chosen,
                            .n_slots = n_saved_slots(first, roles, layer, kv_head)};
  HeadToFill head(args);
  const bool changes = !window.is_unlimited() || args.n_slots;  // as the text grows
  std::vector<Extent> found;
  for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
    if (source->header().n_tokens < first.n_tokens && changes) continue;
    source->loader().fill(layer, kv_head, head.shape(), head.blocks());
    const std::vector<Extent> runs = source->loader().runs(layer, kv_head);
    found.insert(found.end(), runs.begin(), runs.end());
  }
  fill_newest(sources, args, found);
  std::sort(found.begin(), found.end());
  const Extent lacks =
      chosen ? first_lacking_of(chosen->positions, found)
             : first_lacking(found, window.sink, window.is_unlimited() ? kKeepsAll : window.recent,
                             args.n_slots.value_or(first.n_tokens));
  if (!lacks.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("layer {}, KV head {}: none of the files has all of the positions "
                            "[{}, {}) whole",
                            layer.value, kv_head.value, lacks.begin, lacks.end));
  }
}

}  // namespace

std::vector<float> merge_saved(const std::vector<SavedHeader>& headers, SequenceCache& cache,
                               const std::function<void(const std::string&)>& on_note) {
  const SavedHeader& first = headers.front();
  const std::vector<std::int32_t> tokens = read_saved_tokens(first);
  for (const SavedHeader& header : headers) check_agrees(first, tokens, header);
  std::vector<Source> sources;
  for (const SavedHeader& header : headers) sources.emplace_back(header, on_note);
  const std::vector<SavedRole> roles = read_saved_roles(first);
  for (const LayerId layer : cache.layout().layer_ids()) {
    for (const KvHeadId kv_head : cache.layout().kv_head_ids())
      fill_head(sources, roles, cache, layer, kv_head);
  }
  load_state(sources, cache);
  std::vector<float> last_hidden;
  for (Source& source : sources) {
    if (last_hidden.empty() && source.header().n_tokens == first.n_tokens)
      last_hidden = source.loader().last_hidden();
  }
  if (last_hidden.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("none of the files has the hidden row of token {}, the last one, whole",
                            first.n_tokens - 1));
  }
  return last_hidden;
}

}  // namespace longhaul
