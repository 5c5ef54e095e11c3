#include "tools/kv_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "cluster/comm/communicator.h"
#include "coordinator/save_caches.h"
#include "kernels/kv_block_check.h"
#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/merge_saved.h"
#include "worker/snapshot/restore_sequence.h"
#include "worker/snapshot/save_sequence.h"

namespace longhaul {
namespace {

// As much of the model as files of caches know.
ModelSpec spec_of(const SavedHeader& header) {
  ModelSpec spec;
  spec.model_type = header.model_type;
  spec.n_layers = header.n_layers;
  spec.n_kv_heads = header.n_kv_heads;
  spec.head_dim = header.head_dim;
  spec.rope_theta = header.rope_theta;
  return spec;
}

HeadPolicy policy_of(const SavedRole& role) {
  // Whatever chose: it is done.
  if (role.is_chosen()) return {.keep = KeepBudget{.when = KeepWhen::kAfterDocument}};
  if (role.has_slots()) return {.write = Write::kMergeIntoOpenSlot};
  if (role.recent < 0) return {};
  if (role.name == role_name(HeadKind::kModelWindow)) return {.see = SeeModelWindow{role.recent}};
  return {.see = SeeSinkRecent{.sink = role.sink, .recent = role.recent}};
}

HeadTable heads_of(const SavedHeader& header) {
  HeadTable heads(header.n_layers, header.n_kv_heads);
  const std::vector<SavedRole> roles = read_saved_roles(header);
  std::size_t i = 0;
  for (const LayerId layer : IdRange<LayerId>(header.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(header.n_kv_heads))
      heads.set(layer, kv_head, policy_of(roles.at(i++)));
  }
  return heads;
}

// The settings of a run with these cache types.
std::string settings_with(const SavedHeader& header, const KvBlockShape& shape) {
  if (header.settings.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} does not say what it was made with", header.master.string()));
  }
  Json settings = parse_json(header.settings, header.master.string());
  if (auto* object = std::get_if<JsonObject>(&settings.value())) {
    for (auto& [name, value] : *object) {
      if (name == "cache_type_k") value = Json(std::string(name_of(shape.k_type)));
      if (name == "cache_type_v") value = Json(std::string(name_of(shape.v_type)));
    }
  }
  return to_text(settings);
}

// How a document of these settings is saved in `folder`, under the name of what is in it.
SaveSequence command_of(const SavedHeader& header, const std::filesystem::path& folder,
                        const std::string& settings) {
  const SaveCaches save{.folder = folder.string(),
                        .identity = settings,
                        .facts = {{"model_id", header.model_id},
                                  {"model_sha256", header.model_sha256},
                                  {"tokenizer_sha256", header.tokenizer_sha256},
                                  {"settings", settings}}};
  return save_command(save, SequenceId{0}, read_saved_tokens(header));
}

// Nothing where there is none, or one that cannot be read: saving says what becomes of that.
std::optional<SavedHeader> header_there(const std::filesystem::path& master) {
  std::error_code ignored;
  if (!std::filesystem::exists(master, ignored)) return std::nullopt;
  try {
    return read_saved_header(master);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What is there would be left as it is. Its name depends on the types, but not on the blocks.
void refuse_other_blocks(const SavedHeader& header, const std::filesystem::path& folder,
                         const KvBlockShape& shape) {
  const std::string name = command_of(header, folder, settings_with(header, shape)).name;
  const std::filesystem::path there = folder / (name + ".h5");
  const auto found = header_there(there);
  if (!found) return;
  const auto describe = [](std::int64_t block_size, KvType k, KvType v) {
    return fmt::format("blocks of {} with keys {} and values {}", block_size, name_of(k),
                       name_of(v));
  };
  const std::string has = describe(found->block_size, found->k_type, found->v_type);
  const std::string asked = describe(shape.block_size, shape.k_type, shape.v_type);
  require(has == asked,
          fmt::format("{} is there already, in {}, and {} were asked for: give another folder "
                      "with --to, or remove it first",
                      there.string(), has, asked));
}

using Fill = std::function<std::vector<float>(SequenceCache&, const ModelSpec&, Communicator&)>;

// Writes what `fill` puts into an empty cache, and the last hidden row that it gives, as the
// document of `header`.
std::filesystem::path write_again(const SavedHeader& header, const std::filesystem::path& folder,
                                  const KvBlockShape& shape, const Fill& fill) {
  check_kv_block_shape("saved caches", shape);
  const std::string settings = settings_with(header, shape);
  const ModelSpec spec = spec_of(header);
  const CacheLayout layout(heads_of(header), {0, header.n_layers}, shape);
  const auto comm = make_communicator({});
  BlockPool pool(shape);
  SequenceCache cache(layout, pool);
  const std::vector<float> last_hidden = fill(cache, spec, *comm);
  const SaveSequence command = command_of(header, folder, settings);
  save_sequence({.command = command,
                 .cache = cache,
                 .last_hidden = last_hidden,
                 .spec = spec,
                 .comm = *comm});
  return folder / (command.name + ".h5");
}

}  // namespace

std::filesystem::path convert_saved(const SavedHeader& header, const std::filesystem::path& folder,
                                    const KvConversion& conversion) {
  const KvBlockShape shape{.block_size = conversion.block_size.value_or(header.block_size),
                           .head_dim = header.head_dim,
                           .k_type = conversion.k_type.value_or(header.k_type),
                           .v_type = conversion.v_type.value_or(header.v_type)};
  refuse_other_blocks(header, folder, shape);
  return write_again(
      header, folder, shape, [&](SequenceCache& cache, const ModelSpec& spec, Communicator& comm) {
        return restore_sequence({.command = {.sequence = SequenceId{0},
                                             .folder = header.folder().string(),
                                             .name = header.name(),
                                             .content_id = header.content_id,
                                             .n_tokens = header.n_tokens,
                                             .converts = true},
                                 .cache = cache,
                                 .spec = spec,
                                 .comm = comm,
                                 .is_home = [](LayerId, KvHeadId, std::int64_t) { return true; }});
      });
}

std::filesystem::path merge_saved_files(std::vector<SavedHeader> headers,
                                        const std::filesystem::path& folder,
                                        const std::function<void(const std::string&)>& on_note) {
  require(!headers.empty(), "kv merge: no files");
  std::stable_sort(headers.begin(), headers.end(), [](const SavedHeader& a, const SavedHeader& b) {
    return a.n_tokens > b.n_tokens;
  });
  const SavedHeader& longest = headers.front();
  const KvBlockShape shape{.block_size = longest.block_size,
                           .head_dim = longest.head_dim,
                           .k_type = longest.k_type,
                           .v_type = longest.v_type};
  return write_again(longest, folder, shape,
                     [&](SequenceCache& cache, const ModelSpec&, Communicator&) {
                       return merge_saved(headers, cache, on_note);
                     });
}

}  // namespace longhaul
