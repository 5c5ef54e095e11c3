#include "coordinator/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

TEST(Sampling, IsGreedyUnlessTheModelSamples) {
  EXPECT_EQ(describe(sampling_defaults({}, {})), "greedy");
  EXPECT_EQ(sampling_defaults({}, {}).max_tokens, 256);
  GenerationConfig generation;
  generation.temperature = 0.6;  // ignored: do_sample is false
  EXPECT_EQ(sampling_defaults({}, generation).params.temperature, 0);
  generation.do_sample = true;
  generation.max_new_tokens = 12;
  const SamplingDefaults defaults = sampling_defaults({}, generation);
  EXPECT_EQ(defaults.params.temperature, 0.6);
  EXPECT_EQ(defaults.params.top_k, 50);
  EXPECT_EQ(defaults.max_tokens, 12);
}

TEST(Sampling, FlagsBeatTheModelAndRequestsBeatFlags) {
  GenerationConfig generation;
  generation.do_sample = true;
  const SamplingDefaults defaults = sampling_defaults(
      {.temperature = 0.3, .top_k = 7, .top_p = 0.9, .min_p = {}, .seed = 5, .max_tokens = 9},
      generation);
  Request request;
  request.custom_id = "a";
  request.top_k = 0;
  request.max_tokens = 1;
  const SamplingParams params = sampling_of(request, defaults);
  EXPECT_EQ(params.temperature, 0.3);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(max_tokens_of(request, defaults), 1);
}

TEST(Sampling, StopStringsOfTheRunAreForRequestsThatNameNone) {
  SamplingFlags flags;
  flags.stop = {"END", "\n"};
  const SamplingDefaults defaults = sampling_defaults(flags, {});
  Request request;
  EXPECT_THAT(stop_of(request, defaults), testing::ElementsAre("END", "\n"));
  request.stop = {"."};
  EXPECT_THAT(stop_of(request, defaults), testing::ElementsAre("."));
  request.stop.emplace();
  EXPECT_THAT(stop_of(request, defaults), testing::IsEmpty()) << "an empty list names none";
  flags.stop = {""};
  EXPECT_THROW(sampling_defaults(flags, {}), Error);
}

TEST(Sampling, PenaltiesOfRequestsBeatThoseOfFlagsAndModel) {
  GenerationConfig generation;
  generation.repetition_penalty = 1.05;
  EXPECT_EQ(sampling_defaults({}, generation).rules, LogitRules{});  // it does not sample
  generation.do_sample = true;
  SamplingFlags flags;
  flags.presence_penalty = 0.5;
  flags.seed = 5;
  const SamplingDefaults defaults = sampling_defaults(flags, generation);
  EXPECT_EQ(describe(defaults),
            "temperature 1, top_k 50, top_p 1, min_p 0, seed 5, repetition_penalty 1.05, "
            "presence_penalty 0.5");
  Request request;
  request.repetition_penalty = 1.0;
  request.frequency_penalty = -0.25;
  request.logit_bias = {{7, -100}};
  const LogitRules rules = logit_rules_of(request, defaults);
  EXPECT_EQ(rules,
            (LogitRules{.bias = {{7, -100}}, .frequency_penalty = -0.25, .presence_penalty = 0.5}));
  EXPECT_EQ(to_text(to_json({}, rules)),
            R"({"temperature":0,"top_k":0,"top_p":1,"min_p":0,"seed":0,)"
            R"("frequency_penalty":-0.25,"presence_penalty":0.5,"logit_bias":{"7":-100}})");
  flags.presence_penalty = 3;
  EXPECT_THROW(sampling_defaults(flags, {}), Error);
}

TEST(Sampling, SeedsDifferByRequestAndStayTheSame) {
  const SamplingDefaults defaults = sampling_defaults({}, {});
  Request a;
  a.custom_id = "a";
  Request b;
  b.custom_id = "b";
  EXPECT_EQ(sampling_of(a, defaults).seed, sampling_of(a, defaults).seed);
  EXPECT_NE(sampling_of(a, defaults).seed, sampling_of(b, defaults).seed);
  EXPECT_LT(sampling_of(a, defaults).seed, std::uint64_t{1} << 53);
  b.seed = 3;
  EXPECT_EQ(sampling_of(b, defaults).seed, 3U);
}

TEST(Sampling, RefusesWhatMakesNoSense) {
  SamplingFlags flags;
  flags.top_p = 1.5;
  EXPECT_THROW(sampling_defaults(flags, {}), Error);
  flags = {};
  flags.temperature = -1;
  EXPECT_THROW(sampling_defaults(flags, {}), Error);
}

}  // namespace
}  // namespace longhaul
