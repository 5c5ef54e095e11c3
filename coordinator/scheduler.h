// Decides what the workers do next. A pure state machine: no clock, no I/O, no link. Requests come
// as groups that share a document; commands go out, results come in, events say what happened.
//
// A document is prefilled once, in chunks; every request on it is a fork that prefills its own
// prompt and then joins the one decode batch. Example with chunk_len 4, a document of 6 tokens and
// two questions:
//
//   open D | prefill D 4 | prefill D 2 | fork D->A | fork D->B | prefill A | prefill B |
//   decode A B | decode A B | ... A ends: drop A | decode B | ... B ends: drop B, D
//
// A document that begins as saved caches is restored from them in place of being opened, and what
// they lack is prefilled.
//
// Answers to one prompt are a group in the group: its document is the prompt but for its last
// token, forked from the document and prefilled once, and every answer is a fork of that.
//
// Short prompts go before everything, because they fill the batch; chunks of documents and long
// prompts take turns with decode steps, so a long document delays nobody's answer for long. Chunks
// need no results of earlier ones, so as many as the caller takes may be under way: they fill the
// stages of a pipeline.
//
// An answer that quotes takes fewer steps: what followed its last tokens where they stood before
// goes along as guesses (coordinator/prompt_lookup.h). Where nothing was found, the owner may have
// a draft model guess (coordinator/draft_model.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cluster/wire/step.h"
#include "coordinator/draft_model.h"
#include "coordinator/guess_length.h"
#include "coordinator/kv_budget.h"
#include "coordinator/prompt_lookup.h"
#include "coordinator/save_caches.h"

namespace longhaul {

using RequestId = Id<struct RequestTag>;

// One request as ids.
struct Job {
  RequestId request;
  std::vector<std::int32_t> prompt;  // what follows the document; not empty
  SamplingParams sampling;
  std::int64_t max_tokens = 0;       // 0: the prompt is only read (and scored)
  std::int64_t score_logprobs = -1;  // as PrefillChunk::score_logprobs
  AllowedTokens allowed = nullptr;   // of the first token
  LogitRulesRef rules = nullptr;     // with the tokens of document and prompt where they count
  bool may_guess = true;  // that its answer goes on as something before; not where some tokens
                          // alone are ever allowed
  std::vector<std::int32_t> expected = {};  // how it most probably begins: the first guesses
};
struct JobGroup {
  std::vector<std::int32_t> document;  // the shared prefix; empty: none
  std::vector<Job> jobs;
  // Of jobs that share more than this: their documents come after this one, and are not empty.
  std::vector<JobGroup> parts = {};    // there are jobs or parts
  std::deque<SavedStart> starts = {};  // of the document, the best first; parts have none
  bool has_jobs() const {
    return !jobs.empty() || std::any_of(parts.begin(), parts.end(),
                                        [](const JobGroup& part) { return part.has_jobs(); });
  }
};

// --- Events ---

struct PromptScored {  // a chunk's scores; several may come for one prompt
  RequestId request;
  std::vector<PickedToken> tokens;
};
struct PromptRead {  // of a request with max_tokens 0; the owner now calls finish
  RequestId request;
};
// The owner calls finish when it wants no more, allow where there is a form. Several may come of
// one step: what follows one that the owner finished after is nobody's.
struct TokenAdded {
  RequestId request;
  PickedToken token;
};
struct RequestFailed {  // the scheduler has forgotten it already
  RequestId request;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};
// Of a document that came from saved caches, whole or its beginning.
struct DocumentRestored {
  SavedStart start;
  std::int64_t n_document = 0;  // tokens
  double seconds = 0.0;
  bool is_checkpoint = false;  // of this run's folder
};
// Saved caches that turned out to be unusable; others are tried, or the document is read.
struct StartRefused {
  SavedStart start;
  std::string message;
};
// One more chunk of a document was read. Of runs with checkpoints.
struct ChunkRead {
  std::string document;     // as its checkpoint's files are named
  std::int64_t n_read = 0;  // tokens, so far
  double seconds = 0.0;     // that the chunk took
};
struct Checkpointed {
  std::string document;
  std::int64_t n_tokens = 0;  // that are saved
  std::int64_t n_document = 0;
  double seconds = 0.0;         // that nothing else was done
  double beside_seconds = 0.0;  // that steps took beside which files were written
};
// Nothing of what was saved before is lost. The owner now calls stop_checkpoints, or lets them go
// on.
struct CheckpointFailed {
  std::string message;
};
using SchedulerEvent =
    std::variant<PromptScored, PromptRead, TokenAdded, RequestFailed, DocumentRestored,
                 StartRefused, ChunkRead, Checkpointed, CheckpointFailed>;

struct SchedulerConfig {
  std::int64_t chunk_len = 2048;   // tokens of one prefill step
  std::int64_t max_sequences = 8;  // requests in flight, and so the largest decode batch
  KvBudget budget;
  LookupConfig lookup = {};  // of heads that can take tokens back (HeadTable::can_take_back)
  // Tokens of a text that a draft model reads, which guesses where lookup finds nothing; 0: there
  // is none.
  std::int64_t draft_context = 0;
  // Documents' caches are saved when they are read, before requests on them start: so a request
  // that is done says that its document was saved.
  std::optional<SaveCaches> save = {};
  // Where documents are saved as far as they are read, when the owner asks for it.
  std::optional<SaveCaches> checkpoint = {};
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config) : config_(config) {}

  // Returns a RequestFailed for each request that can never fit the budget.
  std::vector<SchedulerEvent> add(JobGroup group);
  // True while more requests could be put to work than are known: the time to add a group.
  bool wants_more() const;
  bool idle() const {
    return groups_.empty() && drops_.empty() && outstanding_.empty() && checkpoints_.empty();
  }
  std::size_t n_outstanding() const { return outstanding_.size(); }
  // Requests that are being worked on: not those that wait for room in the batch.
  std::size_t n_running() const { return running_.size(); }
  // Chunks of documents whose results are to come.
  std::int64_t n_chunks_under_way() const;
  // The documents that are not read whole yet: [tokens read, tokens).
  std::vector<Extent> unread_documents() const;

  // The next command, to be sent at once, or nullopt when results must come first. Commands may be
  // sent ahead of results: no two outstanding ones name the same sequence, but for a fork's parent
  // and for chunks of one text, in order.
  std::optional<StepCommand> next();
  // Documents of which more was read than was saved are saved next, each once, after the chunks
  // that are under way.
  void request_checkpoints();
  // Of those, and of what is being saved, the next command alone: for a run that is to stop.
  // nullopt when there is none.
  std::optional<StepCommand> next_checkpoint();
  void stop_checkpoints();
  // Documents, as their checkpoints are named, that nobody needs any more since the last call: all
  // of their requests ended.
  std::vector<std::string> take_done_documents();
  // The result of the oldest outstanding command. Throws kInternal when it does not fit the command
  // or when sequences could not be dropped, and the error of caches that could not be saved.
  std::vector<SchedulerEvent> consume(StepResult result);
  // What a draft model may guess for the decode batch that next() gave, which is not sent yet.
  // Valid until the next call of anything.
  std::vector<DraftWish> draft_wishes() const;
  // Puts guesses for these wishes into that batch.
  void add_guesses(std::span<const DraftWish> wishes,
                   std::vector<std::vector<std::int32_t>> guesses, DecodeBatch& batch);
  // What the request's next token may be, from now on; at first Job::allowed.
  void allow(RequestId request, AllowedTokens allowed);
  // The request is complete; its sequence is dropped.
  void finish(RequestId request);

 private:
  enum class Stage { kToCreate, kToPrefill, kToSave, kSaving, kReady };
  // A sequence of ours in the workers: a document's or a request's.
  struct Sequence {
    SequenceId id;
    Stage stage = Stage::kToCreate;
    std::int64_t n_outstanding = 0;  // commands that change it
    std::int64_t n_sent = 0;         // of its own tokens
    std::int64_t n_prefilled = 0;    // of these, those whose results came
    bool busy() const { return n_outstanding > 0; }
  };
  struct Group {
    std::vector<std::int32_t> document;
    std::deque<SavedStart> starts;
    std::string checkpoint_name;
    std::int64_t n_checkpointed = 0;  // tokens
    bool wants_checkpoint = false;
    bool is_lost = false;  // the document failed
    std::deque<Job> waiting;
    std::list<Group> parts;    // that wait
    std::int64_t parent = -1;  // the group that this one is a part of
    bool admitted = false;
    bool has_document = false;
    Sequence document_sequence;
    LookupDocumentRef lookup;    // when it is read, where answers are guessed
    std::int64_t n_running = 0;  // requests, and parts that were admitted
    std::int64_t n_document =
        0;  // tokens before the prompts, also when they are read and forgotten
    std::size_t document_bytes = 0;
    std::size_t headroom_bytes = 0;  // of its largest request or part
    std::size_t running_bytes = 0;   // of its running requests and admitted parts
    bool is_part() const { return parent >= 0; }
    bool has_waiting() const { return !waiting.empty() || !parts.empty(); }
    std::int64_t n_waiting() const;
    std::size_t bytes_for_requests(std::size_t more) const;
    std::size_t bytes() const { return document_bytes + bytes_for_requests(0); }
  };
  // What a draft model has to do with an answer.
  struct Draft {
    DraftText text;
    GuessLength length;
    std::int64_t n_wished = 0;  // for the newest batch
    bool has_guessed = false;   // what went with it
  };
  struct Running {
    Job job;
    std::int64_t group = 0;
    Sequence sequence;
    std::int32_t next_token = -1;
    std::int64_t n_picked = 0;
    std::optional<PromptLookup> lookup = {};  // where it may guess
    std::optional<Draft> draft = {};          // where there is a draft model besides
    std::int64_t n_guessed = 0;               // in the last step
    bool is_as_expected = true;               // what was picked so far (Job::expected)
    std::int64_t n_wrong = 0;                 // of them
    std::size_t bytes = 0;
  };
  struct Outstanding {
    enum class Kind {
      kCreate,
      kRestore,
      kPrefill,
      kSave,
      kCheckpoint,
      kFinishCheckpoint,
      kDecode,
      kDrop
    };
    Kind kind = Kind::kDrop;
    std::int64_t group = -1;          // of a document's command
    std::vector<RequestId> requests;  // of a request's command, or the rows
    std::int64_t n_tokens = 0;
  };

  // A checkpoint that was begun: its files are written while the next chunk, or step of answers, is
  // computed.
  struct Checkpoint {
    std::int64_t group = -1;
    std::string document;
    std::int64_t n_tokens = 0;
    std::int64_t n_document = 0;
    double seconds = 0.0;
    double beside_seconds = 0.0;
    bool is_begun = false;      // that result came
    bool is_covered = false;    // a chunk or a step of answers was sent since
    bool is_finishing = false;  // the command for that was sent
    bool has_failed = false;
    bool is_done = false;  // nobody needs the document any more
  };

  Group group_of(JobGroup jobs, std::int64_t n_before, std::size_t bytes_before,
                 std::vector<SchedulerEvent>& failures) const;
  void admit_groups();
  void admit_requests();
  void admit_jobs(std::int64_t number, Group& group);
  void admit_parts(std::int64_t number, Group& group);
  // Whether a group is `whole`, or a part of it.
  bool is_within(std::int64_t number, std::int64_t whole) const;
  std::size_t bytes_free() const;
  bool fits(const Group& group, std::size_t more) const;
  void follow_change(const Group& group, std::size_t bytes_before);
  std::size_t bytes_of(const Job& job, std::int64_t n_document) const;
  std::int64_t n_waiting() const;

  std::optional<StepCommand> create_command();
  StepCommand create_document(std::int64_t number, Group& group);
  std::optional<StepCommand> save_document_command();
  std::optional<StepCommand> short_prompt_command();
  std::optional<StepCommand> long_prefill_command();
  std::optional<StepCommand> long_prefill_or_decode_command();
  std::optional<StepCommand> decode_command();
  StepCommand prefill_request(RequestId request, Running& running);
  StepCommand prefill_document(std::int64_t number, Group& group);

  void consume_done(const Outstanding& step, StepDone& done, std::vector<SchedulerEvent>& events);
  void consume_prefill(const Outstanding& step, StepDone& done,
                       std::vector<SchedulerEvent>& events);
  void consume_restore(const Outstanding& step, const StepDone& done,
                       std::vector<SchedulerEvent>& events);
  std::optional<StepCommand> finish_checkpoint();
  std::optional<StepCommand> begin_checkpoint();
  bool is_saving() const;
  bool must_finish_checkpoint() const;
  void cover_checkpoint();
  void document_is_done(std::int64_t number);
  void note_beside(const Outstanding& step, const StepResult& result);
  void consume_finished_checkpoint(const StepResult& result, std::vector<SchedulerEvent>& events);
  bool try_another_start(const Outstanding& step, const StepFailed& failure,
                         std::vector<SchedulerEvent>& events);
  void document_is_read(Group& group) const;
  void index_document(Group& group) const;
  std::vector<std::int32_t> guesses_for(Running& running, std::int64_t most) const;
  void learn(Running& running, std::span<const std::int32_t> tokens) const;
  void begin_answer(Running& running, PickedToken first, std::vector<SchedulerEvent>& events);
  void consume_decode(const Outstanding& step, StepDone& done, std::vector<SchedulerEvent>& events);
  void consume_failure(const Outstanding& step, const StepFailed& failure,
                       std::vector<SchedulerEvent>& events);
  void fail_group(std::int64_t group, const StepFailed& failure,
                  std::vector<SchedulerEvent>& events);
  void fail_waiting(Group& group, const StepFailed& failure, std::vector<SchedulerEvent>& events);
  void forget(RequestId request);
  void forget_group_if_done(std::int64_t group);
  Sequence& sequence_of(const Outstanding& step);
  bool is_forgotten(const Outstanding& step) const;
  SequenceId new_sequence() { return SequenceId{n_sequences_++}; }

  SchedulerConfig config_;
  std::map<std::int64_t, Group> groups_;  // by order of arrival
  std::map<RequestId, Running> running_;
  std::deque<Outstanding> outstanding_;
  std::vector<SequenceId> drops_;  // to be sent
  std::vector<std::string> done_documents_;
  std::deque<Checkpoint> checkpoints_;  // whose results are to come; all but the last are finishing
  std::int64_t n_groups_ = 0;
  std::int64_t n_sequences_ = 0;
  bool decode_is_next_ = false;  // long prefill and decode take turns
};

}  // namespace longhaul
