// The coordinator's one loop: prepared groups go into the scheduler, its commands to the workers,
// their results into answers, complete answers to whoever keeps them. Decides nothing itself.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cluster/wire/link.h"
#include "coordinator/answer.h"
#include "coordinator/checkpoint_policy.h"
#include "coordinator/draft_model.h"
#include "coordinator/group_feed.h"
#include "coordinator/preparation.h"
#include "coordinator/progress.h"
#include "coordinator/request_jobs.h"
#include "coordinator/scheduler.h"

namespace longhaul {

// Who looks after the files of checkpoints. Called on the engine's thread, by several engines at
// the same time; documents are named as their files. May be empty.
struct CheckpointHooks {
  std::function<void(const Checkpointed&)> on_saved;
  std::function<void(const std::string& document, std::int64_t n_read)> on_read;  // after a chunk
  std::function<void(const std::string& document)> on_used;  // a document begins with its caches
  std::function<void(const std::string& document)> on_done;  // its requests ended
};

// A draft model, whose worker this engine alone commands.
struct EngineDraft {
  DraftConfig config;
  Link* link = nullptr;  // must outlive the engine
};

struct EngineConfig {
  SchedulerConfig scheduler;
  std::optional<EngineDraft> draft = {};  // with scheduler.draft_context
  CheckpointEvery checkpoint_every;       // where the scheduler has a place for them
  CheckpointHooks checkpoints = {};
  std::chrono::milliseconds step_timeout = std::chrono::hours(1);
  // Commands sent ahead of results, so that the workers have work while results are written: one
  // more than there are stages.
  std::size_t n_ahead = 2;
  // Whether an answer that an earlier run began is made again, with what was picked of it as
  // guesses, because tokens that are read have other bits than tokens that are answered; else it
  // goes on behind these.
  bool remakes_answers = false;
  // How many times the KV caches that the plan was made for the budget allows; 1: no plan.
  double kv_scale = 1.0;
  // Of several engines that share a feed: which lane of the Progress is this one's, and how many
  // documents it takes that it has not read yet (so that none waits here while another engine is
  // idle).
  std::size_t lane = 0;
  std::size_t max_unread = std::numeric_limits<std::size_t>::max();
  // Saved caches that a document begins with, the best first; may be empty. Throws for those that
  // the run was told to use and that differ from it. Called on the engine's thread; several engines
  // call it at the same time.
  std::function<std::vector<SavedStart>(std::span<const std::int32_t> document)> find_starts = {};
  // Where the user expects saved caches of every document; one that has none there is noted. Empty:
  // nowhere.
  std::string expected_in = {};
  // Whether documents of so many tokens each can still be read; false: they and all later ones are
  // left for another run. Asked of every group that comes; may be empty.
  std::function<bool(const std::vector<std::int64_t>& document_lengths)> may_begin = {};
};

// What was picked so far of a request's answer, which is not complete.
struct UnfinishedAnswer {
  std::size_t request = 0;
  std::vector<PickedToken> tokens;
};

// All called on the engine's thread.
struct EngineCallbacks {
  // With all answers that were made (coordinator/request_jobs.h says which of them count).
  std::function<void(const PreparedRequest&, const std::vector<Answer>&)> on_done;
  std::function<void(const FailedRequest&)> on_failed;
  // Of a request's first answer, while it grows. May be empty.
  std::function<void(std::size_t request, std::string_view text)> on_text;
  // What an earlier run picked of a request's answer, for this one to go on with. May be empty;
  // both are where nothing was chosen by the place where a prompt ended
  // (HeadTable::chooses_in_answers).
  std::function<std::vector<PickedToken>(std::size_t request)> picked_before;
  // At the end of a run that was stopped, and every minute: what there is of answers that can go on
  // in another run.
  std::function<void(const std::vector<UnfinishedAnswer>&)> on_unfinished;
  // What happened to documents, in words: where they come from. May be empty.
  std::function<void(const std::string& text)> on_note;
  // What went wrong without ending anything. May be empty.
  std::function<void(const std::string& text)> on_warning;
  std::function<void(const Progress&)> on_progress;  // after every step
  // True: finish the steps under way, save documents that are not read whole, then return.
  std::function<bool()> stop_requested;
};

class Engine {
 public:
  // Everything referred to must outlive it.
  Engine(const EngineConfig& config, const Tokenizer& tokenizer, Link& link, GroupFeed& feed,
         Progress& progress, EngineCallbacks callbacks);

  // Returns when all requests ended, or after a stop was requested, or when what is left may not
  // begin any more: true when nothing is left.
  // Throws kTimeout or kPeerFailed when the workers are lost; what is done by then is kept. Blocks.
  bool run();

 private:
  struct Active {
    PreparedRequest prepared;
    std::vector<Answer> answers;
    std::size_t n_left = 0;  // answers that are not complete
    bool failed = false;     // what is left of it only ends
    Stopwatch watch = {};    // since it was taken up
    std::optional<double> first_token_seconds = {};
  };
  struct Place {
    std::size_t request = 0;
    std::size_t answer = 0;  // of it
  };
  void take_groups();
  void add_group(PreparedGroup group);
  void find_starts(JobGroup& group) const;
  void add_request(PreparedRequest request, std::vector<JobGroup>& groups);
  void take_up_again(PreparedRequest& request, Answer& answer);
  void tell_unfinished();
  bool send_commands();
  void guess_further(DecodeBatch& batch);
  void send(StepCommand command);
  void receive_result();
  void handle(SchedulerEvent event);
  void add_token(RequestId job, const PickedToken& token);
  Active& active_of(RequestId job) { return active_.at(places_.at(job).request); }
  Answer& answer_of(RequestId job) { return active_of(job).answers.at(places_.at(job).answer); }
  void finish(RequestId job);
  void end_job(RequestId job);
  void tell_answered(const Active& active) const;
  void fail(const FailedRequest& failure);
  void fail_job(RequestId job, ErrorCode code, std::string_view message);
  void note(const std::string& text) const;
  void warn(const std::string& text) const;
  bool handle_checkpoint(const SchedulerEvent& event);
  void finish_checkpoints();

  EngineConfig config_;
  const Tokenizer* tokenizer_;
  Link* link_;
  GroupFeed* feed_;
  Progress* progress_;
  EngineCallbacks callbacks_;
  Scheduler scheduler_;
  std::optional<DraftModel> draft_;
  FormLibrary forms_;
  CheckpointClock checkpoint_clock_;
  std::size_t kv_bytes_ = 0;                        // on all ranks, after the newest step
  std::unordered_map<std::size_t, Active> active_;  // by the request's index
  // By what the scheduler calls a request: here, one answer of one.
  std::unordered_map<RequestId, Place> places_;
  std::int64_t n_jobs_ = 0;
  bool leaves_rest_ = false;    // nothing is begun any more
  Stopwatch watch_;             // since the run began
  Stopwatch since_unfinished_;  // were told
};

}  // namespace longhaul
