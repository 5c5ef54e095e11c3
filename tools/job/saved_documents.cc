#include "tools/job/saved_documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/json.h"
#include "base/log.h"
#include "coordinator/fingerprint.h"
#include "tools/job/checkpoints.h"
#include "tools/job/input_errors.h"

namespace longhaul {
namespace {

// What a file's settings say besides the cache types, which are compared by themselves.
Json without_types(const std::string& text, const std::string& source) {
  Json json = parse_json(text, source);
  if (auto* object = std::get_if<JsonObject>(&json.value())) {
    std::erase_if(*object, [](const auto& member) {
      return member.first == "cache_type_k" || member.first == "cache_type_v";
    });
  }
  return json;
}

// How many of the document's first tokens come from these caches; 0: none, they are of another
// text. Of caches of a longer text they are at most all but the last, whose hidden row no file has.
// `tells`: says so where they are of a longer text and begin nothing. A run's own checkpoints are
// nobody's business.
std::int64_t n_tokens_from(const SavedHeader& header, std::span<const std::int32_t> document,
                           bool tells) {
  const auto n = static_cast<std::size_t>(header.n_tokens);
  const auto n_first = std::min({n, document.size(), header.first_tokens.size()});
  if (n == 0 ||
      !std::equal(document.begin(), document.begin() + static_cast<std::ptrdiff_t>(n_first),
                  header.first_tokens.begin()))
    return 0;
  if (n <= document.size())
    return sha256_of_tokens(document.first(n)) == header.tokens_sha256 ? header.n_tokens : 0;
  const std::vector<std::int32_t> saved = read_saved_tokens(header);
  if (!std::equal(document.begin(), document.end(), saved.begin())) return 0;
  if (keeps_beginnings(header))
    return longest_beginning(header, static_cast<std::int64_t>(document.size()) - 1);
  if (!tells) return 0;
  LONGHAUL_LOG(kWarning, kSnapshot,
               "{} has a longer document that begins with these {} tokens; its heads with windows, "
               "or its method's choice, are of the end of it, so the document is read",
               header.master.string(), document.size());
  return 0;
}

struct SavedCandidate {
  SavedStart start;
  bool operator<(const SavedCandidate& other) const {
    return std::tuple(-start.n_tokens, start.converts) <
           std::tuple(-other.start.n_tokens, other.start.converts);
  }
};

}  // namespace

std::vector<std::string> differences_of(const SavedHeader& header, const WantedCaches& wanted) {
  if (header.settings.empty()) return {"it does not say what it was made with"};
  std::vector<std::string> found =
      differences(without_types(header.settings, header.master.string()),
                  without_types(wanted.identity, "this run"));
  if (header.rope_theta != wanted.rope_theta) {
    found.push_back(
        fmt::format("rope_theta: was {}, now {}", header.rope_theta, wanted.rope_theta));
  }
  const bool in_groups = quantises_groups(wanted.k_type) || quantises_groups(wanted.v_type);
  if (in_groups && header.block_size != wanted.block_size) {
    found.push_back(fmt::format("block_size: was {}, now {} (blocks of {} stay whole)",
                                header.block_size, wanted.block_size,
                                grouped_types(wanted.k_type, wanted.v_type)));
  }
  if (wanted.converts && !in_groups) return found;
  const auto compare = [&](std::string_view name, KvType before, KvType now) {
    if (before != now) {
      found.push_back(fmt::format(
          "{}: was {}, now {} ({})", name, name_of(before), name_of(now),
          in_groups ? "saved rows do not become groups of tokens" : "--kv-convert converts"));
    }
  };
  compare("cache_type_k", header.k_type, wanted.k_type);
  compare("cache_type_v", header.v_type, wanted.v_type);
  return found;
}

namespace {

std::vector<std::filesystem::path> masters_in(const SavedFolder& folder) {
  try {
    return read_input([&] { return saved_masters(folder.path); });
  } catch (const Error& error) {
    if (folder.must_work) throw;
    LONGHAUL_LOG(kWarning, kSnapshot, "left alone: {}", error.what());
    return {};
  }
}

}  // namespace

std::optional<SavedHeader> SavedDocuments::header_of(const std::filesystem::path& master,
                                                     bool must_work) {
  std::error_code ignored;
  const auto written = std::filesystem::last_write_time(master, ignored);
  const std::lock_guard lock(mutex_);
  if (const auto known = known_.find(master);
      known != known_.end() && known->second.written == written)
    return known->second.header;
  Known now{.written = written, .header = std::nullopt};
  try {
    now.header = read_input([&] { return read_saved_header(master); });
  } catch (const Error& error) {
    if (must_work) throw;
    LONGHAUL_LOG(kWarning, kSnapshot, "left alone: {}", error.what());
  }
  return known_.insert_or_assign(master, std::move(now)).first->second.header;
}

std::vector<SavedStart> SavedDocuments::starts_of(std::span<const std::int32_t> document) {
  std::vector<SavedCandidate> candidates;
  std::string refused;
  for (const SavedFolder& folder : folders_) {
    const FileWait wait(FileUse::kReadingAtWork, folder.path);
    for (const auto& master : masters_in(folder)) {
      const auto header = header_of(master, folder.must_work);
      const std::int64_t n_tokens =
          header ? n_tokens_from(*header, document, !folder.has_checkpoints) : 0;
      if (n_tokens == 0) continue;
      const std::vector<std::string> different = differences_of(*header, wanted_);
      if (!different.empty()) {
        if (folder.must_work) {
          refused += fmt::format("\n{} ({} tokens):\n  {}", master.string(), header->n_tokens,
                                 fmt::join(different, "\n  "));
        }
        continue;
      }
      const bool is_whole = header->n_tokens == static_cast<std::int64_t>(document.size());
      if (wanted_.cuts_documents && header->is_cut != is_whole) continue;
      candidates.push_back(
          {{.folder = folder.path.string(),
            .name = header->name(),
            .content_id = header->content_id,
            .n_tokens = n_tokens,
            .converts = header->k_type != wanted_.k_type || header->v_type != wanted_.v_type,
            .must_work = folder.must_work,
            .n_computed = folder.has_checkpoints
                              ? std::max(n_tokens, tokens_read_before(folder.path, header->name()))
                              : 0}});
    }
  }
  if (candidates.empty() && !refused.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the document's saved caches were made by another run than this one:" + refused);
  }
  std::stable_sort(candidates.begin(), candidates.end());
  std::vector<SavedStart> starts;
  for (SavedCandidate& candidate : candidates) starts.push_back(std::move(candidate.start));
  return starts;
}

}  // namespace longhaul
