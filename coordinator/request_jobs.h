// The jobs of one request's answers, and which of the answers are given back. Pure.
#pragma once
#include <vector>

#include "coordinator/answer.h"
#include "coordinator/preparation.h"
#include "coordinator/scheduler.h"

namespace longhaul {

std::size_t count_answers(const PreparedRequest& request);
// The prompt that an answer is to.
const PreparedPrompt& prompt_of(const PreparedRequest& request, std::size_t answer);

// A group for each of these documents with its parts, without jobs yet.
std::vector<JobGroup> groups_of(std::vector<PreparedDocument> documents);
// Adds a job for each answer to these: answer i is RequestId{first.value + i} and may begin with
// what `allowed[i]` says. Several answers to one prompt are a part of their own, so that
// the prompt is read once; not where its tokens are scored, which each answer's job does.
void add_jobs(const PreparedRequest& request, RequestId first, std::vector<AllowedTokens> allowed,
              std::vector<JobGroup>& groups);

// Whether the answer can go on in another run behind what was picked of it: it is the only one, its
// prompt is not scored, and no penalty counts how often its tokens were picked.
bool can_go_on_later(const PreparedRequest& request);
// The prompt of such a request ends with what was picked of its answer.
void go_on_behind(const std::vector<PickedToken>& picked, PreparedRequest& request);

// In the order in which they are given back. Of more answers than are wanted, those with the
// highest log-probability per token, best first, as OpenAI's best_of says; else as they were made.
std::vector<const Answer*> kept_answers(const PreparedRequest& request,
                                        const std::vector<Answer>& answers);

}  // namespace longhaul
