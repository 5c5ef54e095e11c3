#include "coordinator/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr auto kLookAtStop = std::chrono::milliseconds(200);

std::string code_name(ErrorCode code) {
  std::string name(name_of(code));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

}  // namespace

Engine::Engine(const EngineConfig& config, const Tokenizer& tokenizer, Link& link, GroupFeed& feed,
               Progress& progress, EngineCallbacks callbacks)
    : config_(config),
      tokenizer_(&tokenizer),
      link_(&link),
      feed_(&feed),
      progress_(&progress),
      callbacks_(std::move(callbacks)),
      scheduler_(config.scheduler),
      forms_(tokenizer) {}

bool Engine::run() {
  while (true) {
    const bool stopping = callbacks_.stop_requested();
    if (!stopping) {
      take_groups();
      while (scheduler_.n_outstanding() < config_.n_ahead && send_commands()) {
      }
    }
    if (scheduler_.n_outstanding() > 0) {
      receive_result();
      continue;
    }
    if (stopping) return active_.empty() && feed_->exhausted();
    if (scheduler_.idle() && feed_->exhausted()) return true;
  }
}

void Engine::take_groups() {
  while (scheduler_.wants_more() && !feed_->exhausted() &&
         scheduler_.unread_documents().size() < config_.max_unread) {
    // Nothing else to do: wait, but not so long that a stop would go unheard.
    const bool may_wait = scheduler_.idle();
    auto group = may_wait ? feed_->take(deadline_in(kLookAtStop)) : feed_->try_take();
    if (!group) return;
    add_group(std::move(*group));
  }
}

void Engine::add_group(PreparedGroup group) {
  progress_->group_prepared(group.document.size());
  for (const FailedRequest& failure : group.failures) fail(failure);
  if (group.requests.empty()) return;
  JobGroup jobs{std::move(group.document), {}};
  for (PreparedRequest& request : group.requests) add_request(std::move(request), jobs.jobs);
  if (jobs.jobs.empty()) return;
  for (SchedulerEvent& failure : scheduler_.add(std::move(jobs))) handle(std::move(failure));
}

void Engine::add_request(PreparedRequest request, std::vector<Job>& jobs) {
  Answer answer(*tokenizer_, request.answer);
  if (answer.may_restrict()) {
    try {
      if (request.answer.form)
        answer.follow(forms_.guide(*request.answer.form, request.answer.form_ends));
      request.job.allowed = answer.allowed();
    } catch (const Error& error) {
      fail({request.index, code_name(error.code()), error.what()});
      return;
    }
  }
  jobs.push_back(request.job);
  request.job.prompt.clear();  // the scheduler's copy is the one that is used
  const RequestId id = request.job.request;
  active_.emplace(id, Active{std::move(request), std::move(answer)});
}

bool Engine::send_commands() {
  auto command = scheduler_.next();
  if (!command) return false;
  progress_->sent(*command, config_.lane);
  link_->send(std::move(*command));
  return true;
}

void Engine::receive_result() {
  StepResult result = link_->receive(deadline_in(config_.step_timeout));
  progress_->received(result, config_.lane);
  for (SchedulerEvent& event : scheduler_.consume(std::move(result))) handle(std::move(event));
  progress_->set_unread(scheduler_.unread_documents(), config_.lane);
  if (callbacks_.on_progress) callbacks_.on_progress(*progress_);
}

void Engine::handle(SchedulerEvent event) {
  if (auto* scored = std::get_if<PromptScored>(&event)) {
    active_.at(scored->request).answer.add_prompt_scores(std::move(scored->tokens));
  } else if (const auto* read = std::get_if<PromptRead>(&event)) {
    active_.at(read->request).answer.complete_prompt_only();
    finish(read->request);
  } else if (const auto* added = std::get_if<TokenAdded>(&event)) {
    add_token(added->request, added->token);
  } else {
    const auto& failed = std::get<RequestFailed>(event);
    fail({static_cast<std::size_t>(failed.request.value), code_name(failed.code), failed.message});
    active_.erase(failed.request);
  }
}

void Engine::add_token(RequestId request, const PickedToken& token) {
  Active& active = active_.at(request);
  try {
    const bool complete = active.answer.add(token);
    if (callbacks_.on_text) {
      const std::string text = active.answer.take_new_text();
      if (!text.empty()) callbacks_.on_text(active.prepared.index, text);
    }
    if (!complete) {
      if (active.answer.may_restrict()) scheduler_.allow(request, active.answer.allowed());
      return;
    }
  } catch (const Error& error) {
    // Such as an id that the tokenizer does not have: this request's trouble alone.
    scheduler_.finish(request);
    fail({active.prepared.index, code_name(error.code()), error.what()});
    active_.erase(request);
    return;
  }
  finish(request);
}

void Engine::finish(RequestId request) {
  scheduler_.finish(request);
  const auto at = active_.find(request);
  progress_->request_ended(/*ok=*/true, at->second.answer.n_generated());
  callbacks_.on_done(at->second.prepared, at->second.answer);
  active_.erase(at);
}

void Engine::fail(const FailedRequest& failure) {
  progress_->request_ended(/*ok=*/false, 0);
  callbacks_.on_failed(failure);
}

}  // namespace longhaul
