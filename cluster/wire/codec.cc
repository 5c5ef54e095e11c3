#include "cluster/wire/codec.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "cluster/wire/bytes.h"
#include "cluster/wire/crc32c.h"
#include "cluster/wire/logit_rules_codec.h"
#include "cluster/wire/report_codec.h"
#include "cluster/wire/token_set_codec.h"

namespace longhaul {
namespace {

constexpr std::uint32_t kMagic = 0x3157484c;  // "LHW1"
constexpr std::uint16_t kVersion = 9;

// The commands' numbers on the wire are their places in the variant; the assertions notice a change
// of order.
static_assert(std::is_same_v<std::variant_alternative_t<0, StepCommand>, OpenSequence>);
static_assert(std::is_same_v<std::variant_alternative_t<1, StepCommand>, ForkSequence>);
static_assert(std::is_same_v<std::variant_alternative_t<2, StepCommand>, DropSequences>);
static_assert(std::is_same_v<std::variant_alternative_t<3, StepCommand>, PrefillChunk>);
static_assert(std::is_same_v<std::variant_alternative_t<4, StepCommand>, DecodeBatch>);
static_assert(std::is_same_v<std::variant_alternative_t<5, StepCommand>, Shutdown>);
static_assert(std::is_same_v<std::variant_alternative_t<6, StepCommand>, ReportRank>);
static_assert(std::is_same_v<std::variant_alternative_t<7, StepCommand>, SaveSequence>);
static_assert(std::is_same_v<std::variant_alternative_t<8, StepCommand>, MeasureRates>);
static_assert(std::is_same_v<std::variant_alternative_t<9, StepCommand>, RestoreSequence>);
static_assert(std::is_same_v<std::variant_alternative_t<10, StepCommand>, FinishSave>);

void write(ByteWriter& out, const SamplingParams& sampling) {
  out.number(sampling.temperature);
  out.number(sampling.top_k);
  out.number(sampling.top_p);
  out.number(sampling.min_p);
  out.number(sampling.seed);
  out.number(sampling.first_position);
  out.number(sampling.n_logprobs);
}

SamplingParams read_sampling(ByteReader& in) {
  SamplingParams sampling;
  sampling.temperature = in.number<double>();
  sampling.top_k = in.number<std::int64_t>();
  sampling.top_p = in.number<double>();
  sampling.min_p = in.number<double>();
  sampling.seed = in.number<std::uint64_t>();
  sampling.first_position = in.number<std::int64_t>();
  sampling.n_logprobs = in.number<std::int64_t>();
  return sampling;
}

void write(ByteWriter& out, const OpenSequence& command) {
  out.number(command.sequence.value);
  write(out, command.sampling);
  write(out, command.rules);
}

void write(ByteWriter& out, const ForkSequence& command) {
  out.number(command.parent.value);
  out.number(command.child.value);
  write(out, command.sampling);
  write(out, command.rules);
}

void write(ByteWriter& out, const DropSequences& command) {
  out.number(static_cast<std::uint64_t>(command.sequences.size()));
  for (const SequenceId id : command.sequences) out.number(id.value);
}

void write(ByteWriter& out, const PrefillChunk& command) {
  out.number(command.sequence.value);
  out.list(std::span<const std::int32_t>(command.tokens));
  out.number(static_cast<std::uint8_t>(command.after));
  out.number(command.score_logprobs);
  write(out, command.allowed);
}

void write(ByteWriter& out, const DecodeBatch& command) {
  out.number(static_cast<std::uint8_t>(command.kind));
  out.number(static_cast<std::uint64_t>(command.rows.size()));
  for (const auto& row : command.rows) {
    out.number(row.sequence.value);
    out.number(row.token);
    write(out, row.allowed);
    out.list(std::span<const std::int32_t>(row.guesses));
    out.number(row.n_wrong);
  }
}

void write(ByteWriter& /*out*/, const Shutdown& /*command*/) {}

void write(ByteWriter& /*out*/, const ReportRank& /*command*/) {}

void write(ByteWriter& /*out*/, const FinishSave& /*command*/) {}

void write(ByteWriter& out, const SaveSequence& command) {
  out.number(command.sequence.value);
  out.text(command.folder);
  out.text(command.name);
  out.list(std::span<const std::int32_t>(command.tokens));
  out.number(static_cast<std::uint64_t>(command.facts.size()));
  for (const auto& [name, text] : command.facts) {
    out.text(name);
    out.text(text);
  }
  out.number(static_cast<std::uint8_t>(command.goes_on));
}

void write(ByteWriter& out, const RestoreSequence& command) {
  out.number(command.sequence.value);
  out.text(command.folder);
  out.text(command.name);
  out.text(command.content_id);
  out.number(command.n_tokens);
  out.number(static_cast<std::uint8_t>(command.converts));
}

void write(ByteWriter& out, const MeasureRates& command) {
  out.number(static_cast<std::uint8_t>(command.clock));
  out.number(command.cpu_read_bytes);
}

SequenceId read_sequence(ByteReader& in) { return {in.number<std::int64_t>()}; }

bool read_flag(ByteReader& in) {
  const auto value = in.number<std::uint8_t>();
  if (value > 1) in.fail("a flag is neither 0 nor 1");
  return value == 1;
}

PrefillChunk read_prefill(ByteReader& in) {
  PrefillChunk command;
  command.sequence = read_sequence(in);
  command.tokens = in.list<std::int32_t>();
  const auto after = in.number<std::uint8_t>();
  if (after > static_cast<std::uint8_t>(AfterPrefill::kSharedEnd))
    in.fail("unknown action after prefill");
  command.after = static_cast<AfterPrefill>(after);
  command.score_logprobs = in.number<std::int64_t>();
  command.allowed = read_allowed_tokens(in);
  return command;
}

DropSequences read_drop(ByteReader& in) {
  DropSequences command;
  command.sequences.resize(in.count(sizeof(std::int64_t)));
  for (SequenceId& id : command.sequences) id = read_sequence(in);
  return command;
}

DecodeBatch read_decode(ByteReader& in) {
  DecodeBatch command;
  const auto kind = in.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(DecodeKind::kDraftFurther)) in.fail("unknown kind of batch");
  command.kind = static_cast<DecodeKind>(kind);
  command.rows.resize(in.count(3 * sizeof(std::int64_t) + sizeof(std::int32_t) + 1));
  for (auto& row : command.rows) {
    row.sequence = read_sequence(in);
    row.token = in.number<std::int32_t>();
    row.allowed = read_allowed_tokens(in);
    row.guesses = in.list<std::int32_t>();
    row.n_wrong = in.number<std::int64_t>();
  }
  return command;
}

SaveSequence read_save(ByteReader& in) {
  SaveSequence command;
  command.sequence = read_sequence(in);
  command.folder = in.text();
  command.name = in.text();
  command.tokens = in.list<std::int32_t>();
  command.facts.resize(in.count(2 * sizeof(std::uint64_t)));
  for (auto& [name, text] : command.facts) {
    name = in.text();
    text = in.text();
  }
  command.goes_on = read_flag(in);
  return command;
}

RestoreSequence read_restore(ByteReader& in) {
  RestoreSequence command;
  command.sequence = read_sequence(in);
  command.folder = in.text();
  command.name = in.text();
  command.content_id = in.text();
  command.n_tokens = in.number<std::int64_t>();
  command.converts = read_flag(in);
  return command;
}

MeasureRates read_measure(ByteReader& in) {
  MeasureRates command;
  const auto clock = in.number<std::uint8_t>();
  if (clock > static_cast<std::uint8_t>(WorkClock::kProcessCpu)) in.fail("unknown clock");
  command.clock = static_cast<WorkClock>(clock);
  command.cpu_read_bytes = in.number<std::int64_t>();
  return command;
}

void write(ByteWriter& out, const std::vector<PickedToken>& tokens) {
  out.number(static_cast<std::uint64_t>(tokens.size()));
  for (const PickedToken& picked : tokens) {
    out.number(picked.sequence.value);
    out.number(picked.token);
    out.number(picked.logprob);
    out.number(static_cast<std::uint64_t>(picked.top.size()));
    for (const TokenLogprob& top : picked.top) {
      out.number(top.token);
      out.number(top.logprob);
    }
  }
}

std::vector<PickedToken> read_picked(ByteReader& in) {
  std::vector<PickedToken> tokens(in.count(24));
  for (PickedToken& picked : tokens) {
    picked.sequence = read_sequence(in);
    picked.token = in.number<std::int32_t>();
    picked.logprob = in.number<float>();
    picked.top.resize(in.count(8));
    for (TokenLogprob& top : picked.top) {
      top.token = in.number<std::int32_t>();
      top.logprob = in.number<float>();
    }
  }
  return tokens;
}

std::vector<RankReport> read_reports(ByteReader& in) {
  std::vector<RankReport> reports(in.count(72));
  for (RankReport& report : reports) report = read_report(in);
  return reports;
}

void write(ByteWriter& out, const std::vector<RankRates>& all) {
  out.number(static_cast<std::uint64_t>(all.size()));
  for (const auto& [rank, n_threads, rates] : all) {
    out.number(rank.value);
    out.number(n_threads);
    for (const double rate :
         {rates.float_flops, rates.pair_flops, rates.int8_ops, rates.read_bytes}) {
      out.number(rate);
    }
  }
}

std::vector<RankRates> read_rates(ByteReader& in) {
  std::vector<RankRates> all(in.count(2 * sizeof(std::int64_t) + 4 * sizeof(double)));
  for (auto& [rank, n_threads, rates] : all) {
    rank = {in.number<std::int64_t>()};
    n_threads = in.number<std::int64_t>();
    for (double* rate :
         {&rates.float_flops, &rates.pair_flops, &rates.int8_ops, &rates.read_bytes}) {
      *rate = in.number<double>();
    }
  }
  return all;
}

}  // namespace

std::vector<std::byte> encode_frame(MessageType type, std::uint64_t sequence,
                                    std::span<const std::byte> payload) {
  require(payload.size() <= kMaxPayloadBytes,
          fmt::format(
              "a message of {} bytes is larger than the {} that are allowed; use a shorter chunk",
              payload.size(), kMaxPayloadBytes));
  ByteWriter out;
  out.number(kMagic);
  out.number(kVersion);
  out.number(static_cast<std::uint16_t>(type));
  out.number(sequence);
  out.number(static_cast<std::uint32_t>(payload.size()));
  out.number(crc32c(payload));
  std::vector<std::byte> frame = out.take();
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

FrameHeader decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                std::size_t max_payload_bytes) {
  ByteReader in(bytes, "frame header");
  if (in.number<std::uint32_t>() != kMagic) in.fail("not a Longhaul message");
  if (const auto version = in.number<std::uint16_t>(); version != kVersion) {
    in.fail(fmt::format("version {}, this program speaks {}; all ranks must run the same build",
                        version, kVersion));
  }
  FrameHeader header;
  header.type = static_cast<MessageType>(in.number<std::uint16_t>());
  switch (header.type) {
    case MessageType::kHello:
    case MessageType::kChallenge:
    case MessageType::kProof:
    case MessageType::kWelcome:
    case MessageType::kCommand:
    case MessageType::kResult:
    case MessageType::kHeartbeat:
    case MessageType::kAbort:
    case MessageType::kAlive:
    case MessageType::kStop:
    case MessageType::kMayGo:
      break;
    default:
      in.fail(fmt::format("unknown message type {}", static_cast<int>(header.type)));
  }
  header.sequence = in.number<std::uint64_t>();
  header.payload_bytes = in.number<std::uint32_t>();
  header.checksum = in.number<std::uint32_t>();
  if (header.payload_bytes > max_payload_bytes) {
    in.fail(fmt::format("{} bytes announced, at most {} are accepted here", header.payload_bytes,
                        max_payload_bytes));
  }
  return header;
}

void check_payload(const FrameHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != header.payload_bytes || crc32c(payload) != header.checksum) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("message {}: the payload's checksum is wrong", header.sequence));
  }
}

std::vector<std::byte> encode(const StepCommand& command) {
  ByteWriter out;
  out.number(static_cast<std::uint8_t>(command.index()));
  std::visit([&](const auto& c) { write(out, c); }, command);
  return out.take();
}

StepCommand decode_command(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "step command");
  StepCommand command;
  switch (in.number<std::uint8_t>()) {
    case 0: {
      const SequenceId sequence = read_sequence(in);
      const SamplingParams sampling = read_sampling(in);
      command = OpenSequence{sequence, sampling, read_logit_rules(in)};
      break;
    }
    case 1: {
      const SequenceId parent = read_sequence(in);
      const SequenceId child = read_sequence(in);
      const SamplingParams sampling = read_sampling(in);
      command = ForkSequence{parent, child, sampling, read_logit_rules(in)};
      break;
    }
    case 2:
      command = read_drop(in);
      break;
    case 3:
      command = read_prefill(in);
      break;
    case 4:
      command = read_decode(in);
      break;
    case 5:
      command = Shutdown{};
      break;
    case 6:
      command = ReportRank{};
      break;
    case 7:
      command = read_save(in);
      break;
    case 8:
      command = read_measure(in);
      break;
    case 9:
      command = read_restore(in);
      break;
    case 10:
      command = FinishSave{};
      break;
    default:
      in.fail("unknown command");
  }
  in.finish();
  return command;
}

std::vector<std::byte> encode(const StepResult& result) {
  ByteWriter out;
  if (const auto* done = std::get_if<StepDone>(&result)) {
    out.number(std::uint8_t{0});
    write(out, done->picked);
    write(out, done->scored);
    out.number(static_cast<std::uint64_t>(done->kv_bytes_in_use));
    out.number(done->seconds);
    out.number(static_cast<std::uint64_t>(done->reports.size()));
    for (const RankReport& report : done->reports) write(out, report);
    write(out, done->rates);
  } else {
    const auto& failed = std::get<StepFailed>(result);
    out.number(std::uint8_t{1});
    out.number(static_cast<std::uint8_t>(failed.code));
    out.text(failed.message);
    out.number(static_cast<std::uint8_t>(failed.ends_job));
  }
  return out.take();
}

StepResult decode_result(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "step result");
  StepResult result;
  switch (in.number<std::uint8_t>()) {
    case 0: {
      StepDone done;
      done.picked = read_picked(in);
      done.scored = read_picked(in);
      done.kv_bytes_in_use = static_cast<std::size_t>(in.number<std::uint64_t>());
      done.seconds = in.number<double>();
      done.reports = read_reports(in);
      done.rates = read_rates(in);
      result = std::move(done);
      break;
    }
    case 1: {
      const auto code = in.number<std::uint8_t>();
      if (code > static_cast<std::uint8_t>(ErrorCode::kInternal)) in.fail("unknown error code");
      std::string message = in.text();
      result = StepFailed{static_cast<ErrorCode>(code), std::move(message), read_flag(in)};
      break;
    }
    default:
      in.fail("unknown result");
  }
  in.finish();
  return result;
}

}  // namespace longhaul
