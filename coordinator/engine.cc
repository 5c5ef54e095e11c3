#include "coordinator/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr double kTellUnfinished_s = 60;
constexpr auto kLookAtStop = std::chrono::milliseconds(200);

std::string code_name(ErrorCode code) {
  std::string name(name_of(code));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::string describe(const DocumentRestored& restored) {
  const std::int64_t n_left = restored.n_document - restored.start.n_tokens;
  std::string text = fmt::format(
      "document of {} tokens: {} from {} ({:.1f} s), {}", restored.n_document,
      n_left == 0 ? "all" : std::to_string(restored.start.n_tokens), restored.start.path(),
      restored.seconds, n_left == 0 ? "none to read" : fmt::format("{} to read", n_left));
  if (restored.start.n_computed > 0) {
    text +=
        fmt::format(", {} of them for the second time",
                    std::max<std::int64_t>(0, restored.start.n_computed - restored.start.n_tokens));
  }
  return text;
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
      forms_(tokenizer),
      checkpoint_clock_(config.checkpoint_every) {
  if (config.draft) draft_.emplace(config.draft->config, *config.draft->link);
}

bool Engine::run() {
  bool stopping = false;
  while (true) {
    if (!stopping && callbacks_.stop_requested()) {
      stopping = true;
      scheduler_.request_checkpoints();
    }
    if (stopping) {
      while (auto checkpoint = scheduler_.next_checkpoint()) send(std::move(*checkpoint));
    } else {
      take_groups();
      while (scheduler_.n_outstanding() < config_.n_ahead && send_commands()) {
      }
    }
    if (scheduler_.n_outstanding() > 0) {
      receive_result();
      continue;
    }
    if (stopping) {
      tell_unfinished();
      return active_.empty() && feed_->exhausted() && !leaves_rest_;
    }
    if (scheduler_.idle() && (feed_->exhausted() || leaves_rest_)) return !leaves_rest_;
    if (!scheduler_.idle())
      throw Error(ErrorCode::kInternal, "engine: requests are left, and none can start");
  }
}

void Engine::take_groups() {
  while (!leaves_rest_ && scheduler_.wants_more() && !feed_->exhausted() &&
         scheduler_.unread_documents().size() < config_.max_unread) {
    // Nothing else to do: wait, but not so long that a stop would go unheard.
    const bool may_wait = scheduler_.idle();
    auto group = may_wait ? feed_->take(deadline_in(kLookAtStop)) : feed_->try_take();
    if (!group) return;
    if (config_.may_begin && !config_.may_begin(document_lengths(*group))) {
      leaves_rest_ = true;
      return;
    }
    add_group(std::move(*group));
    progress_->set_unread(scheduler_.unread_documents(), config_.lane);
  }
}

void Engine::add_group(PreparedGroup group) {
  progress_->group_prepared(document_lengths(group), config_.lane);
  for (const FailedRequest& failure : group.failures) fail(failure);
  if (group.requests.empty()) return;
  std::vector<JobGroup> groups = groups_of(std::move(group.documents));
  for (PreparedRequest& request : group.requests) add_request(std::move(request), groups);
  for (JobGroup& jobs : groups) {
    if (!jobs.has_jobs()) continue;
    if (config_.find_starts && !jobs.document.empty()) find_starts(jobs);
    for (SchedulerEvent& failure : scheduler_.add(std::move(jobs))) handle(std::move(failure));
  }
}

void Engine::find_starts(JobGroup& group) const {
  const std::vector<SavedStart> starts = config_.find_starts(group.document);
  group.starts.assign(starts.begin(), starts.end());
  const bool is_there = std::any_of(starts.begin(), starts.end(), [&](const SavedStart& start) {
    return start.folder == config_.expected_in;
  });
  if (!config_.expected_in.empty() && !is_there) {
    note(fmt::format("document of {} tokens: nothing of it is in {}", group.document.size(),
                     config_.expected_in));
  }
}

void Engine::add_request(PreparedRequest request, std::vector<JobGroup>& groups) {
  std::vector<Answer> answers;
  std::vector<AllowedTokens> allowed;
  try {
    for (std::size_t i = 0; i < count_answers(request); ++i) {
      const AnswerSpec& spec = prompt_of(request, i).answer;
      Answer& answer = answers.emplace_back(*tokenizer_, spec);
      if (spec.form) answer.follow(forms_.guide(*spec.form, spec.form_ends));
      take_up_again(request, answer);
      allowed.push_back(answer.allowed());
    }
  } catch (const Error& error) {
    fail({request.index, code_name(error.code()), error.what()});
    return;
  }
  add_jobs(request, RequestId{n_jobs_}, std::move(allowed), groups);
  for (std::size_t i = 0; i < answers.size(); ++i)
    places_.emplace(RequestId{n_jobs_++}, Place{.request = request.index, .answer = i});
  for (PreparedPrompt& prompt : request.prompts) prompt.ids = {};  // the scheduler has them
  const std::size_t index = request.index;
  const std::size_t n_left = answers.size();
  active_.emplace(
      index,
      Active{.prepared = std::move(request), .answers = std::move(answers), .n_left = n_left});
}

// What an earlier run picked of the answer, if that is anything.
void Engine::take_up_again(PreparedRequest& request, Answer& answer) {
  if (!callbacks_.picked_before || !can_go_on_later(request)) return;
  const std::vector<PickedToken> picked = callbacks_.picked_before(request.index);
  if (picked.empty()) return;
  if (config_.remakes_answers) {
    for (const PickedToken& token : picked) request.prompts.front().expected.push_back(token.token);
    return;
  }
  for (const PickedToken& token : picked) answer.add(token);
  if (callbacks_.on_text) callbacks_.on_text(request.index, answer.take_new_text());
  go_on_behind(picked, request);
}

void Engine::tell_unfinished() {
  since_unfinished_ = {};
  if (!callbacks_.on_unfinished) return;
  std::vector<UnfinishedAnswer> unfinished;
  for (const auto& [index, active] : active_) {
    if (active.failed || !can_go_on_later(active.prepared)) continue;
    // What an earlier run told is not made shorter.
    const auto n_told = std::ssize(active.prepared.prompts.front().expected);
    if (active.answers.front().n_generated() > n_told)
      unfinished.push_back({index, active.answers.front().picked()});
  }
  if (!unfinished.empty()) callbacks_.on_unfinished(unfinished);
}

bool Engine::send_commands() {
  auto command = scheduler_.next();
  if (!command) return false;
  if (draft_) {
    if (auto* batch = std::get_if<DecodeBatch>(&*command)) guess_further(*batch);
    if (const auto* drop = std::get_if<DropSequences>(&*command)) draft_->forget(drop->sequences);
  }
  send(std::move(*command));
  return true;
}

// The batch waits for the draft model.
void Engine::guess_further(DecodeBatch& batch) {
  const std::vector<DraftWish> wishes = scheduler_.draft_wishes();
  if (wishes.empty()) return;
  const Stopwatch watch;
  auto guesses = draft_->guess(wishes, deadline_in(config_.step_timeout));
  std::int64_t n_guesses = 0;
  for (const auto& of_wish : guesses) n_guesses += std::ssize(of_wish);
  scheduler_.add_guesses(wishes, std::move(guesses), batch);
  progress_->drafted(n_guesses, watch.seconds(), config_.lane);
}

void Engine::send(StepCommand command) {
  progress_->sent(command, config_.lane);
  link_->send(std::move(command));
}

void Engine::receive_result() {
  StepResult result = link_->receive(deadline_in(config_.step_timeout));
  progress_->received(result, config_.lane);
  if (const auto* done = std::get_if<StepDone>(&result)) kv_bytes_ = done->kv_bytes_in_use;
  for (SchedulerEvent& event : scheduler_.consume(std::move(result))) handle(std::move(event));
  progress_->set_unread(scheduler_.unread_documents(), config_.lane);
  progress_->set_running(std::min(active_.size(), scheduler_.n_running()), config_.lane);
  if (callbacks_.on_progress) callbacks_.on_progress(*progress_);
  finish_checkpoints();
  if (since_unfinished_.seconds() > kTellUnfinished_s) tell_unfinished();
}

// Files of documents whose results are all on disk.
void Engine::finish_checkpoints() {
  for (const std::string& document : scheduler_.take_done_documents()) {
    if (config_.checkpoints.on_done) config_.checkpoints.on_done(document);
  }
}

bool Engine::handle_checkpoint(const SchedulerEvent& event) {
  if (const auto* read = std::get_if<ChunkRead>(&event)) {
    if (config_.checkpoints.on_read) config_.checkpoints.on_read(read->document, read->n_read);
    checkpoint_clock_.chunk_done(read->seconds, kv_bytes_, scheduler_.n_chunks_under_way());
    if (checkpoint_clock_.take_due()) scheduler_.request_checkpoints();
  } else if (const auto* saved = std::get_if<Checkpointed>(&event)) {
    checkpoint_clock_.checkpoint_done(saved->seconds, saved->beside_seconds);
    if (config_.checkpoints.on_saved) config_.checkpoints.on_saved(*saved);
  } else if (const auto* failed = std::get_if<CheckpointFailed>(&event)) {
    scheduler_.stop_checkpoints();
    warn("no more checkpoints are saved, the run goes on: " + failed->message);
  } else {
    return false;
  }
  return true;
}

void Engine::handle(SchedulerEvent event) {
  if (handle_checkpoint(event)) return;
  if (auto* scored = std::get_if<PromptScored>(&event)) {
    answer_of(scored->request).add_prompt_scores(std::move(scored->tokens));
  } else if (const auto* read = std::get_if<PromptRead>(&event)) {
    answer_of(read->request).complete_prompt_only();
    finish(read->request);
  } else if (const auto* added = std::get_if<TokenAdded>(&event)) {
    add_token(added->request, added->token);
  } else if (const auto* restored = std::get_if<DocumentRestored>(&event)) {
    note(describe(*restored));
    if (restored->is_checkpoint && config_.checkpoints.on_used)
      config_.checkpoints.on_used(restored->start.name);
  } else if (const auto* refused = std::get_if<StartRefused>(&event)) {
    warn(fmt::format("saved caches are not used: {}", refused->message));
  } else {
    const auto& failed = std::get<RequestFailed>(event);
    fail_job(failed.request, failed.code, failed.message);
    end_job(failed.request);
  }
}

void Engine::add_token(RequestId job, const PickedToken& token) {
  if (!places_.contains(job)) return;  // it ended with an earlier token of the same step
  Active& active = active_of(job);
  if (active.failed) return finish(job);
  if (!active.first_token_seconds) active.first_token_seconds = active.watch.seconds();
  Answer& answer = answer_of(job);
  try {
    const bool complete = answer.add(token);
    if (callbacks_.on_text && places_.at(job).answer == 0) {
      const std::string text = answer.take_new_text();
      if (!text.empty()) callbacks_.on_text(active.prepared.index, text);
    }
    if (!complete) {
      if (answer.may_restrict()) scheduler_.allow(job, answer.allowed());
      return;
    }
  } catch (const Error& error) {
    // Such as an id that the tokenizer does not have: this request's trouble alone.
    fail_job(job, error.code(), error.what());
  }
  finish(job);
}

void Engine::finish(RequestId job) {
  scheduler_.finish(job);
  end_job(job);
}

// The scheduler has forgotten it.
void Engine::end_job(RequestId job) {
  const auto at = active_.find(places_.at(job).request);
  places_.erase(job);
  Active& active = at->second;
  if (--active.n_left > 0) return;
  if (!active.failed) {
    std::int64_t n_generated = 0;
    for (const Answer& answer : active.answers) n_generated += answer.n_generated();
    progress_->request_ended(/*ok=*/true, n_generated);
    tell_answered(active);
    callbacks_.on_done(active.prepared, active.answers);
  }
  active_.erase(at);
}

void Engine::tell_answered(const Active& active) const {
  const double seconds = active.watch.seconds();
  progress_->request_answered(
      {.queued_seconds = watch_.seconds() - seconds,
       .first_token_seconds = active.first_token_seconds.value_or(seconds),
       .seconds = seconds,
       .n_prompt_tokens = active.prepared.n_prompt_tokens,
       .n_cached_tokens = active.prepared.n_cached_tokens,
       .finish_reason = std::string(active.answers.front().finish_reason())});
}

void Engine::note(const std::string& text) const {
  if (callbacks_.on_note) callbacks_.on_note(text);
}

void Engine::warn(const std::string& text) const {
  if (callbacks_.on_warning) callbacks_.on_warning(text);
}

void Engine::fail(const FailedRequest& failure) {
  progress_->request_ended(/*ok=*/false, 0);
  callbacks_.on_failed(failure);
}

// With one answer the whole request fails.
void Engine::fail_job(RequestId job, ErrorCode code, std::string_view message) {
  Active& active = active_of(job);
  if (active.failed) return;
  active.failed = true;
  fail({active.prepared.index, code_name(code), std::string(message)});
}

}  // namespace longhaul
