#include "cluster/wire/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "base/error.h"
#include "cluster/wire/crc32c.h"
#include "tests/support/random.h"

namespace longhaul {
namespace {

AllowedTokens token_set(std::int64_t size, std::initializer_list<std::int64_t> ids) {
  auto set = std::make_shared<IdSet>(size);
  for (const std::int64_t id : ids) set->insert(id);
  return set;
}

AllowedTokens all_tokens(std::int64_t size) {
  auto set = std::make_shared<IdSet>(size);
  for (std::int64_t id = 0; id < size; ++id) set->insert(id);
  return set;
}

LogitRulesRef some_rules() {
  return std::make_shared<const LogitRules>(LogitRules{.bias = {{3, -100.0F}, {9, 1.5F}},
                                                       .repetition_penalty = 1.1,
                                                       .frequency_penalty = -0.5,
                                                       .presence_penalty = 2,
                                                       .prompt_tokens = *token_set(70, {3, 69})});
}

std::vector<StepCommand> some_commands() {
  SamplingParams sampling{.temperature = 0.7,
                          .top_k = 40,
                          .top_p = 0.9,
                          .min_p = 0.05,
                          .seed = 1ULL << 63,
                          .n_logprobs = 5};
  return {
      OpenSequence{{7}, sampling},
      ForkSequence{{7}, {8}, sampling, some_rules()},
      DropSequences{{{1}, {2}, {3}}},
      PrefillChunk{{7}, {1, 2, 3, 100000}, AfterPrefill::kSample, 20, token_set(200, {0, 199})},
      DecodeBatch{{{{7}, 5},
                   {{8}, 6, token_set(70, {3, 64})},
                   {{9}, 6, all_tokens(1000)},
                   {{10}, 6, nullptr, {7, 8, 9}, 2}}},
      Shutdown{},
      ReportRank{},
      SaveSequence{{7}, "caches", "0123abcd", {5, 6}, {{"model_id", "tiny"}, {"note", ""}}, true},
      MeasureRates{WorkClock::kThreadCpu, std::int64_t{1} << 29},
      RestoreSequence{{7}, "caches", "0123abcd", "0123abcdef", std::int64_t{1} << 40, true},
      FinishSave{}};
}

std::vector<StepResult> some_results() {
  StepDone done;
  done.picked = {{{7}, 42, -0.5F, {{42, -0.5F}, {3, -2.0F}}}};
  done.scored = {{{7}, 1, -1.5F, {}}, {{7}, 2, -2.5F, {{9, 0.0F}}}};
  done.kv_bytes_in_use = std::size_t{1} << 40;
  done.seconds = 1.25;
  done.reports = {{.rank = {3},
                   .phase_seconds = {{"attend", 0.5}, {"finish", 0.25}},
                   .ring_wait_seconds = 0.125,
                   .sent_bytes = {{"keys", std::int64_t{1} << 40}},
                   .weight_bytes = 1,
                   .kv_retrieval_bytes = 2,
                   .kv_streaming_bytes = 3,
                   .kv_retrieval_peak_bytes = 4,
                   .kv_streaming_peak_bytes = 5,
                   .kv_peak_bytes = 6,
                   .buffer_bytes = 7},
                  {.rank = {4}, .phase_seconds = {}, .sent_bytes = {}}};
  done.rates = {{.rank = {3}, .n_threads = 2, .rates = {1e9, 2e9, 4e9, 1e10}},
                {.rank = {4}, .rates = {}}};
  return {done, StepFailed{ErrorCode::kOutOfMemory, "no cache block is free", true}};
}

TEST(Codec, CommandsSurviveTheRoundTrip) {
  for (const StepCommand& command : some_commands()) {
    const auto bytes = encode(command);
    EXPECT_EQ(encode(decode_command(bytes)), bytes) << command.index();
  }
  const auto decoded = std::get<PrefillChunk>(decode_command(encode(some_commands()[3])));
  EXPECT_EQ(decoded.tokens.back(), 100000);
  EXPECT_EQ(decoded.after, AfterPrefill::kSample);
  for (const auto after :
       {AfterPrefill::kNothing, AfterPrefill::kSample, AfterPrefill::kDocumentEnd,
        AfterPrefill::kPromptEnd, AfterPrefill::kSharedEnd}) {
    const StepCommand chunk = PrefillChunk{{7}, {1}, after, -1};
    EXPECT_EQ(std::get<PrefillChunk>(decode_command(encode(chunk))).after, after);
  }
  const auto save = std::get<SaveSequence>(decode_command(encode(some_commands()[7])));
  EXPECT_EQ(save.name, "0123abcd");
  EXPECT_EQ(save.facts.at(0).value, "tiny");
  EXPECT_TRUE(save.goes_on);
  const auto restore = std::get<RestoreSequence>(decode_command(encode(some_commands()[9])));
  EXPECT_EQ(restore.content_id, "0123abcdef");
  EXPECT_EQ(restore.n_tokens, std::int64_t{1} << 40);
  EXPECT_TRUE(restore.converts);
  const auto measure = std::get<MeasureRates>(decode_command(encode(some_commands()[8])));
  EXPECT_EQ(measure.clock, WorkClock::kThreadCpu);
  EXPECT_EQ(measure.cpu_read_bytes, std::int64_t{1} << 29);
}

TEST(Codec, ResultsSurviveTheRoundTrip) {
  for (const StepResult& result : some_results()) {
    const auto bytes = encode(result);
    EXPECT_EQ(encode(decode_result(bytes)), bytes) << result.index();
  }
  const auto done = std::get<StepDone>(decode_result(encode(some_results()[0])));
  EXPECT_EQ(done.rates.at(0).rank.value, 3);
  EXPECT_EQ(done.rates.at(0).n_threads, 2);
  EXPECT_EQ(done.rates.at(0).rates.read_bytes, 1e10);
  EXPECT_TRUE(std::get<StepFailed>(decode_result(encode(some_results()[1]))).ends_job);
  EXPECT_EQ(std::get<StepFailed>(decode_result(encode(some_results()[1]))).message,
            "no cache block is free");
}

TEST(Codec, RefusesTruncatedAndLengthenedMessages) {
  for (const StepCommand& command : some_commands()) {
    auto bytes = encode(command);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_THROW(decode_command(std::span(bytes).first(n)), Error)
          << command.index() << " cut to " << n;
    }
    bytes.push_back(std::byte{0});
    EXPECT_THROW(decode_command(bytes), Error);
  }
  for (const StepResult& result : some_results()) {
    const auto bytes = encode(result);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      EXPECT_THROW(decode_result(std::span(bytes).first(n)), Error);
  }
}

TEST(Codec, RefusesAnUnknownActionAfterPrefill) {
  auto bytes = encode(StepCommand(PrefillChunk{{7}, {1}, AfterPrefill::kSharedEnd, -1}));
  bytes[bytes.size() - sizeof(std::int64_t) - 2] = std::byte{5};
  EXPECT_THROW(decode_command(bytes), Error);
}

TEST(Codec, KindsOfBatchesTravel) {
  for (const DecodeKind kind :
       {DecodeKind::kAnswer, DecodeKind::kDraft, DecodeKind::kDraftFurther}) {
    const StepCommand command = DecodeBatch{.rows = {{{1}, 2}}, .kind = kind};
    EXPECT_EQ(std::get<DecodeBatch>(decode_command(encode(command))).kind, kind);
  }
  auto bytes = encode(StepCommand(DecodeBatch{.rows = {{{1}, 2}}}));
  bytes[1] = std::byte{3};
  EXPECT_THROW(decode_command(bytes), Error);
}

TEST(Codec, AllowedTokensTravelInTheShorterWay) {
  const auto size_of = [](const AllowedTokens& tokens) {
    const StepCommand command = DecodeBatch{{{{1}, 2, tokens}}};
    const auto bytes = encode(command);
    const AllowedTokens back = std::get<DecodeBatch>(decode_command(bytes)).rows.at(0).allowed;
    EXPECT_EQ(back == nullptr, tokens == nullptr);
    EXPECT_TRUE(tokens == nullptr || back == nullptr || *back == *tokens);
    return bytes.size();
  };
  const std::size_t without = size_of(nullptr);
  EXPECT_EQ(size_of(token_set(150'000, {7, 149'999})), without + 2 * 8 + 2 * 4);
  EXPECT_EQ(size_of(all_tokens(150'001)), without + 2 * 8 + 2344 * 8);
}

TEST(Codec, RefusesAllowedTokensThatMakeNoSense) {
  const auto refuses = [](std::size_t at_from_end, std::uint8_t value) {
    auto bytes = encode(StepCommand(DecodeBatch{{{{1}, 2, token_set(1000, {5})}}}));
    constexpr std::size_t kBehind = 2 * 8;  // the number of guesses, and how many were wrong
    bytes[bytes.size() - kBehind - at_from_end] = static_cast<std::byte>(value);
    EXPECT_THROW(decode_command(bytes), Error) << at_from_end;
  };
  refuses(3, 0xFF);   // a token outside the vocabulary
  refuses(12, 0);     // no token
  refuses(13, 0x7F);  // an absurd vocabulary
  refuses(21, 9);     // an unknown form
}

TEST(Codec, RulesForLogitsTravelWhole) {
  for (const LogitRulesRef& rules :
       {LogitRulesRef(), std::make_shared<const LogitRules>(), some_rules()}) {
    const auto bytes = encode(StepCommand(OpenSequence{{1}, {}, rules}));
    const auto back = std::get<OpenSequence>(decode_command(bytes)).rules;
    ASSERT_EQ(back == nullptr, rules == nullptr);
    EXPECT_TRUE(rules == nullptr || *back == *rules);
  }
}

TEST(Codec, AbsurdCountsAllocateNothing) {
  auto bytes = encode(StepCommand(DropSequences{{{1}}}));
  const std::uint64_t count = ~std::uint64_t{0} / 8;
  std::memcpy(bytes.data() + 1, &count, sizeof count);
  EXPECT_THROW(decode_command(bytes), Error);
}

TEST(Codec, RandomDamageNeverCrashes) {
  const auto seed = test::base_seed();
  SCOPED_TRACE(seed);
  test::Random random(seed);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = random.chance(0.5)
                     ? encode(some_commands()[static_cast<std::size_t>(random.integer(0, 7))])
                     : encode(some_results()[static_cast<std::size_t>(random.integer(0, 1))]);
    for (auto n = random.integer(1, 4); n > 0; --n) {
      bytes[static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(bytes.size()) - 1))] =
          static_cast<std::byte>(random.integer(0, 255));
    }
    try {
      decode_command(bytes);
    } catch (const Error&) {
    }
    try {
      decode_result(bytes);
    } catch (const Error&) {
    }
  }
}

TEST(Frame, IsCheckedInEveryField) {
  const auto payload = encode(some_commands()[3]);
  const auto frame = encode_frame(MessageType::kCommand, 9, payload);
  std::array<std::byte, kFrameHeaderBytes> head{};
  std::memcpy(head.data(), frame.data(), head.size());
  const FrameHeader header = decode_frame_header(head, kMaxPayloadBytes);
  EXPECT_EQ(header.sequence, 9U);
  EXPECT_EQ(header.payload_bytes, payload.size());
  check_payload(header, payload);
  EXPECT_THROW(decode_frame_header(head, payload.size() - 1), Error);
  for (const std::size_t field : {0U, 4U, 6U}) {  // magic, version, type
    auto damaged = head;
    damaged[field] ^= std::byte{0x40};
    EXPECT_THROW(decode_frame_header(damaged, kMaxPayloadBytes), Error) << field;
  }
  auto damaged = payload;
  damaged.back() ^= std::byte{1};
  EXPECT_THROW(check_payload(header, damaged), Error);
}

TEST(Crc32c, GivesThePublishedValue) {
  const std::string_view text = "123456789";  // check value of CRC-32C in RFC 3720's catalogue
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xe3069283U);
}

TEST(PhaseReport, ReadsWell) {
  EXPECT_EQ(to_text(PhaseReport{Activity::kWaiting, 812, 12, 1, 2, 41000}),
            "step 812, layer 12, hop 1: waiting for rank 2 since 41 s");
  EXPECT_EQ(to_text(PhaseReport{Activity::kIdle, -1, -1, -1, -1, 900}), "idle since 0 s");
  const PhaseReport phase{Activity::kComputing, 1, 2, 3, 4, 5};
  EXPECT_EQ(decode_phase(encode(phase)), phase);
  RankReport report{.rank = {3},
                    .phase_seconds = {{"attend", 1.5}},
                    .ring_wait_seconds = 0.5,
                    .sent_bytes = {{"keys", 7}}};
  report.kv_peak_bytes = 99;
  const Heartbeat heartbeat = decode_heartbeat(encode(Heartbeat{phase, report}));
  EXPECT_EQ(heartbeat.phase, phase);
  ASSERT_TRUE(heartbeat.report);
  EXPECT_EQ(heartbeat.report->phase_seconds.front().value, 1.5);
  EXPECT_EQ(heartbeat.report->sent_bytes.front().name, "keys");
  EXPECT_EQ(heartbeat.report->kv_peak_bytes, 99);
  EXPECT_FALSE(decode_heartbeat(encode(Heartbeat{phase})).report);
  const std::vector<std::byte> bytes = encode(Heartbeat{phase, report});
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(static_cast<void>(decode_heartbeat(std::span(bytes).first(n))), Error) << n;
  PhaseBoard board;
  board.set_step(3);
  board.set_layer({2});
  board.enter(Activity::kWaiting, {1});
  const PhaseReport read = board.read();
  EXPECT_EQ(read.step, 3);
  EXPECT_EQ(read.layer, LayerId{2});
  EXPECT_EQ(read.hop, -1);
  EXPECT_EQ(read.peer, Rank{1});
}

}  // namespace
}  // namespace longhaul
