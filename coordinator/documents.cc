#include "coordinator/documents.h"

#include <fmt/format.h>

#include <map>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "coordinator/chat_body.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxGroupWithoutDocuments = 256;

std::filesystem::path resolve(const std::filesystem::path& path,
                              const std::filesystem::path& folder) {
  return (folder / path).lexically_normal();  // an absolute path stays as it is
}

struct Content {
  std::size_t n_bytes = 0;
  std::string sha256;
  std::string error;  // why it cannot be read
};

// Every document is read once, however many requests name it.
class Contents {
 public:
  explicit Contents(const TextLimits& limits) : limits_(limits) {}

  const Content& of(const DocumentRef& document, const std::filesystem::path& folder) {
    if (document.text) {
      inline_ = look_at(document, "the text");
      return inline_;
    }
    DocumentRef resolved = document;
    resolved.path = resolve(document.path, folder);
    const auto [at, is_new] = known_.try_emplace(resolved.path.string());
    if (is_new) at->second = look_at(resolved, resolved.path.string());
    return at->second;
  }

  std::unordered_map<std::string, std::string> hashes() const {
    std::unordered_map<std::string, std::string> hashes;
    for (const auto& [path, content] : known_) hashes.emplace(path, content.sha256);
    return hashes;
  }
  // Those since the last call.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  // As files do that the system writes while they are read, such as those in /proc.
  static bool says_nothing_is_in(const DocumentRef& document) {
    std::error_code ignored;
    return !document.text && std::filesystem::file_size(document.path, ignored) == 0;
  }

  Content look_at(const DocumentRef& document, const std::string& name) {
    Content content;
    try {
      const std::string text = read_document(document, limits_);
      content.n_bytes = text.size();
      content.sha256 = sha256_of(text);
      const auto wrong = why_no_text(text);
      if (wrong && !limits_.lossy) {
        content.error = fmt::format(
            "{} is no text but looks like {}. --lossy-text takes it as it "
            "is, with U+FFFD for what is no UTF-8",
            name, *wrong);
      }
      if (text.empty()) {
        warnings_.push_back(fmt::format("{} is empty", name));
      } else if (says_nothing_is_in(document)) {
        warnings_.push_back(
            fmt::format("{} has {} bytes, though its size is said to be 0: it is no stored file, "
                        "and may be another text when it is read again",
                        name, text.size()));
      }
    } catch (const Error& error) {
      switch (error.code()) {
        case ErrorCode::kIo:  // of the machine, not of this document
        case ErrorCode::kTimeout:
        case ErrorCode::kCancelled:
          throw;
        default:
          content.error = error.what();
      }
    }
    return content;
  }

  const TextLimits& limits_;
  std::unordered_map<std::string, Content> known_;
  Content inline_;  // of the text that was asked for last
  std::vector<std::string> warnings_;
};

// What requests with the same documents have in common: their texts, whatever the files are called;
// completes the documents' paths and sums.
std::vector<std::string> key_of(const Request& request, std::vector<DocumentRef>& documents,
                                const CheckedDocuments& checked,
                                const std::filesystem::path& folder) {
  std::vector<std::string> key;
  for (DocumentRef& document : documents) {
    if (document.text) {
      key.push_back(sha256_of(*document.text));
      continue;
    }
    document.path = resolve(document.path, folder);
    const std::string path = document.path.string();
    const auto known = checked.sha256_of_file.find(path);
    if (known != checked.sha256_of_file.end()) document.sha256 = known->second;
    key.push_back(document.sha256.value_or(path));
  }
  if (request.chat() != nullptr && !key.empty()) key.push_back(before_documents(*request.chat()));
  return key;
}

}  // namespace

CheckedDocuments check_documents(const std::vector<Request>& requests,
                                 const std::filesystem::path& folder, const TextLimits& limits) {
  CheckedDocuments checked;
  Contents contents(limits);
  for (const Request& request : requests) {
    Sha256 digest;
    std::size_t n_bytes = 0;
    for (std::size_t i = 0; i < request.documents.size(); ++i) {
      const DocumentRef& document = request.documents[i];
      const Content& content = contents.of(document, folder);
      for (const std::string& warning : contents.take_warnings()) {
        checked.warnings.push_back(
            {request.line, fmt::format("body.documents[{}]: {}", i, warning), request.custom_id});
      }
      const auto report = [&](const std::string& reason) {
        checked.problems.push_back(
            {request.line, fmt::format("body.documents[{}]: {}", i, reason), request.custom_id});
      };
      if (!content.error.empty()) {
        report(content.error);
      } else if (document.sha256 && *document.sha256 != content.sha256) {
        report(fmt::format("{} has SHA-256 {}, the request expects {}: it is another one",
                           document.text ? "the text" : document.path.string(), content.sha256,
                           *document.sha256));
      }
      digest.add(content.sha256);
      n_bytes += content.n_bytes;
    }
    checked.digests.push_back(request.documents.empty() ? "" : digest.finish());
    checked.n_bytes.push_back(n_bytes);
  }
  checked.sha256_of_file = contents.hashes();
  return checked;
}

std::vector<RequestGroup> group_by_documents(const std::vector<Request>& requests,
                                             const std::vector<std::size_t>& chosen,
                                             const CheckedDocuments& checked,
                                             const std::filesystem::path& folder) {
  std::vector<RequestGroup> groups;
  std::map<std::vector<std::string>, std::size_t> group_of;
  std::vector<bool> is_chosen(requests.size());
  for (const std::size_t index : chosen) {
    is_chosen[index] = true;
    std::vector<DocumentRef> documents = requests[index].documents;
    const std::vector<std::string> key = key_of(requests[index], documents, checked, folder);
    const auto at = group_of.find(key);
    const bool has_room =
        at != group_of.end() &&
        (!key.empty() || groups[at->second].requests.size() < kMaxGroupWithoutDocuments);
    if (!has_room) {
      group_of[key] = groups.size();
      groups.push_back({std::move(documents), checked.n_bytes[index], {}});
    }
    groups[group_of[key]].requests.push_back(index);
  }
  for (std::size_t index = 0; index < requests.size(); ++index) {
    if (is_chosen[index] || requests[index].documents.empty()) continue;
    std::vector<DocumentRef> documents = requests[index].documents;
    const auto at = group_of.find(key_of(requests[index], documents, checked, folder));
    if (at != group_of.end()) groups[at->second].ended.push_back(index);
  }
  return groups;
}

}  // namespace longhaul
