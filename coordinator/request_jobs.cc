#include "coordinator/request_jobs.h"

#include <algorithm>
#include <utility>

namespace longhaul {

std::size_t count_answers(const PreparedRequest& request) {
  return request.prompts.size() * static_cast<std::size_t>(request.n_answers);
}

const PreparedPrompt& prompt_of(const PreparedRequest& request, std::size_t answer) {
  return request.prompts.at(answer / static_cast<std::size_t>(request.n_answers));
}

std::vector<JobGroup> groups_of(std::vector<PreparedDocument> documents) {
  std::vector<JobGroup> groups;
  for (PreparedDocument& document : documents) {
    JobGroup& group =
        groups.emplace_back(JobGroup{.document = std::move(document.ids), .jobs = {}});
    for (std::vector<std::int32_t>& part : document.parts)
      group.parts.push_back({.document = std::move(part), .jobs = {}});
  }
  return groups;
}

void add_jobs(const PreparedRequest& request, RequestId first, std::vector<AllowedTokens> allowed,
              std::vector<JobGroup>& groups) {
  const auto n_answers = static_cast<std::size_t>(request.n_answers);
  std::size_t i = 0;
  for (const PreparedPrompt& prompt : request.prompts) {
    const bool shares = n_answers > 1 && prompt.ids.size() > 1 && request.max_tokens > 0 &&
                        request.score_logprobs < 0;
    JobGroup& group = groups.at(prompt.document);
    JobGroup& home = prompt.part ? group.parts.at(*prompt.part) : group;
    JobGroup part;
    if (shares) part.document.assign(prompt.ids.begin(), prompt.ids.end() - 1);
    for (const std::size_t end = i + n_answers; i < end; ++i) {
      Job job{.request = RequestId{first.value + static_cast<std::int64_t>(i)},
              .prompt = shares ? std::vector{prompt.ids.back()} : prompt.ids,
              .sampling = request.sampling,
              .max_tokens = request.max_tokens - prompt.n_answered,
              .score_logprobs = request.score_logprobs,
              .allowed = std::move(allowed.at(i)),
              .rules = prompt.rules,
              .may_guess = !prompt.answer.may_restrict(),
              .expected = prompt.expected};
      job.sampling.seed += i;
      (shares ? part : home).jobs.push_back(std::move(job));
    }
    if (shares) home.parts.push_back(std::move(part));
  }
}

bool can_go_on_later(const PreparedRequest& request) {
  if (count_answers(request) != 1 || request.max_tokens == 0 || request.score_logprobs >= 0)
    return false;
  const LogitRulesRef& rules = request.prompts.front().rules;
  return rules == nullptr || (rules->frequency_penalty == 0 && rules->presence_penalty == 0);
}

void go_on_behind(const std::vector<PickedToken>& picked, PreparedRequest& request) {
  PreparedPrompt& prompt = request.prompts.front();
  for (const PickedToken& token : picked) prompt.ids.push_back(token.token);
  prompt.n_answered = static_cast<std::int64_t>(picked.size());
  if (prompt.rules == nullptr || prompt.rules->repetition_penalty == 1.0) return;
  // It counts a token once, in the prompt or in the answer.
  LogitRules rules = *prompt.rules;
  for (const PickedToken& token : picked) rules.prompt_tokens.insert(token.token);
  prompt.rules = std::make_shared<const LogitRules>(std::move(rules));
}

std::vector<const Answer*> kept_answers(const PreparedRequest& request,
                                        const std::vector<Answer>& answers) {
  std::vector<const Answer*> kept;
  for (auto first = answers.begin(); first != answers.end(); first += request.n_answers) {
    std::vector<const Answer*> of_prompt;
    for (auto at = first; at != first + request.n_answers; ++at) of_prompt.push_back(&*at);
    if (request.n_kept < request.n_answers) {
      std::stable_sort(of_prompt.begin(), of_prompt.end(), [](const Answer* a, const Answer* b) {
        return a->mean_logprob() > b->mean_logprob();
      });
    }
    kept.insert(kept.end(), of_prompt.begin(), of_prompt.begin() + request.n_kept);
  }
  return kept;
}

}  // namespace longhaul
