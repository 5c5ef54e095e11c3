#include "tools/job/workload_estimate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/file.h"
#include "base/file_wait.h"

namespace longhaul {
namespace {

constexpr std::size_t kSampleBytes = std::size_t{64} << 10;

std::int64_t with_margin(double n_tokens) {
  return static_cast<std::int64_t>(std::ceil(n_tokens * 1.1)) + 16;
}

std::int64_t count_tokens(const Tokenizer& tokenizer, std::string_view text) {
  return static_cast<std::int64_t>(
      tokenizer.encode(std::string(text), {.add_special_tokens = true}).size());
}

// Estimated from its begin, middle and end; all of a short one.
std::int64_t estimate_tokens(const Tokenizer& tokenizer, std::string_view text) {
  if (text.size() <= 3 * kSampleBytes) return count_tokens(tokenizer, text);
  double densest = 0;
  for (const std::size_t at : {std::size_t{0}, text.size() / 2, text.size() - kSampleBytes}) {
    // Samples begin and end between characters.
    std::size_t begin = at;
    std::size_t end = at + kSampleBytes;
    const auto in_character = [&](std::size_t i) {
      return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
    };
    while (in_character(begin)) ++begin;
    while (in_character(end)) --end;
    const auto n = static_cast<double>(count_tokens(tokenizer, text.substr(begin, end - begin)));
    densest = std::max(densest, n / static_cast<double>(end - begin));
  }
  return static_cast<std::int64_t>(densest * static_cast<double>(text.size()));
}

std::int64_t estimate_tokens_of_file(const Tokenizer& tokenizer,
                                     const std::filesystem::path& document) {
  const FileWait wait(FileUse::kReadingBeforeWork, document);
  return estimate_tokens(tokenizer, MappedFile(document).text());
}

std::int64_t longest_document(const Tokenizer& tokenizer, const std::vector<RequestGroup>& groups) {
  const auto longest =
      std::max_element(groups.begin(), groups.end(),
                       [](const auto& a, const auto& b) { return a.n_bytes < b.n_bytes; });
  if (longest == groups.end() || longest->documents.empty()) return 0;
  double n_tokens = 0;
  for (const DocumentRef& document : longest->documents) {
    n_tokens +=
        static_cast<double>(document.text ? estimate_tokens(tokenizer, *document.text)
                                          : estimate_tokens_of_file(tokenizer, document.path));
  }
  return with_margin(n_tokens);
}

// Without its documents; "" for one that the template refuses, which will fail.
std::string conversation_text(const ChatPrompt& chat, const PreparationConfig& preparation) {
  if (preparation.chat == nullptr) return "";
  try {
    return chat_text(chat, "", *preparation.chat).bytes();
  } catch (const Error&) {
    return "";
  }
}

std::int64_t longest_tail(const Tokenizer& tokenizer, const PreparationConfig& preparation,
                          const std::vector<RequestGroup>& groups,
                          const std::vector<Request>& requests) {
  std::string longest_text;
  std::int64_t n_ids = 0;
  std::int64_t n_new = 0;
  for (const RequestGroup& group : groups) {
    for (const std::size_t index : group.requests) {
      const Request& request = requests[index];
      n_new = std::max(n_new, max_tokens_of(request, preparation.defaults));
      for (const Prompt& prompt : request.prompts) {
        if (const auto* text = std::get_if<std::string>(&prompt)) {
          if (text->size() > longest_text.size()) longest_text = *text;
        } else if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
          std::string conversation = conversation_text(*chat, preparation);
          if (conversation.size() > longest_text.size()) longest_text = std::move(conversation);
        } else {
          n_ids = std::max(n_ids, static_cast<std::int64_t>(std::get<1>(prompt).size()));
        }
      }
    }
  }
  const std::int64_t n_text = estimate_tokens(tokenizer, longest_text);
  return std::max(n_ids, with_margin(static_cast<double>(n_text))) + n_new;
}

}  // namespace

Workload estimate_workload(const RunSession& session, const JobConfig& job,
                           const std::vector<RequestGroup>& groups,
                           const std::vector<Request>& requests, std::int64_t n_ranks) {
  std::int64_t n_answers = 0;
  // Sequences beside the answers': a prompt of several of them, and what conversations share behind
  // documents that are cut.
  bool shares_prompts = false;
  bool shares_beginnings = false;
  for (const RequestGroup& group : groups) {
    const bool has_conversations = requests[group.requests.front()].chat() != nullptr;
    shares_beginnings |= session.preparation.cuts_documents && has_conversations &&
                         !group.documents.empty() && group.requests.size() > 1;
    for (const std::size_t index : group.requests) {
      const Request& request = requests[index];
      n_answers += static_cast<std::int64_t>(request.prompts.size()) * request.best_of;
      shares_prompts |= request.best_of > 1;
    }
  }
  const int n_shared = (shares_prompts ? 1 : 0) + (shares_beginnings ? 1 : 0);
  const std::int64_t ctx_size = session.preparation.ctx_size;
  Workload workload = formats_of(job, session.weights->weight_dtype());
  workload.document_tokens = std::min(longest_document(session.tokenizer, groups), ctx_size);
  workload.tail_tokens =
      std::min(longest_tail(session.tokenizer, session.preparation, groups, requests), ctx_size);
  workload.n_sequences = std::clamp<std::int64_t>(n_answers, 1, job.n_parallel) + n_shared;
  workload.chunk_len = usual_chunk_len(job, n_ranks);
  return workload;
}

}  // namespace longhaul
