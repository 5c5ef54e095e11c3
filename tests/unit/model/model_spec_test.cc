#include "model/model_spec.h"

#include <functional>
#include <limits>

#include "tests/unit/model/expect_error.h"

namespace longhaul {
namespace {

using test::message_of;
using testing::HasSubstr;

ModelSpec small_spec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 16;
  spec.d_model = 8;
  spec.d_ff = 12;
  spec.n_layers = 2;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 4;
  spec.max_seq_len = 64;
  spec.attention_window = {ModelSpec::kNoWindow, 5};
  return spec;
}

TEST(ModelSpec, SensibleDimensionsPass) {
  EXPECT_NO_THROW(small_spec().validate());
  EXPECT_EQ(small_spec().gqa_group(), 2);
}

TEST(ModelSpec, NamesTheFirstDimensionThatMakesNoSense) {
  struct Case {
    const char* named;
    std::function<void(ModelSpec&)> spoil;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Case cases[] = {
      {"vocab_size", [](ModelSpec& s) { s.vocab_size = 0; }},
      {"d_model", [](ModelSpec& s) { s.d_model = -8; }},
      {"d_ff", [](ModelSpec& s) { s.d_ff = 0; }},
      {"n_layers", [](ModelSpec& s) { s.n_layers = 0; }},
      {"n_heads", [](ModelSpec& s) { s.n_heads = 0; }},
      {"n_kv_heads", [](ModelSpec& s) { s.n_kv_heads = 0; }},
      {"n_kv_heads 3", [](ModelSpec& s) { s.n_kv_heads = 3; }},
      {"head_dim 5 is odd", [](ModelSpec& s) { s.head_dim = 5; }},
      {"max_seq_len", [](ModelSpec& s) { s.max_seq_len = 0; }},
      {"norm_eps", [](ModelSpec& s) { s.norm_eps = 0; }},
      {"norm_eps", [nan](ModelSpec& s) { s.norm_eps = nan; }},
      {"rope_theta", [](ModelSpec& s) { s.rope_theta = 1; }},
      {"rope_theta", [nan](ModelSpec& s) { s.rope_theta = nan; }},
      {"attention_window has 1", [](ModelSpec& s) { s.attention_window.pop_back(); }},
      {"attention_window[1]", [](ModelSpec& s) { s.attention_window[1] = 0; }},
  };
  for (const Case& c : cases) {
    ModelSpec spec = small_spec();
    c.spoil(spec);
    EXPECT_THAT(message_of(ErrorCode::kInvalidArgument, [&] { spec.validate(); }),
                HasSubstr(c.named));
  }
}

// Bytes of weights overflowed, and a plan said that it fits.
TEST(ModelSpec, RefusesDimensionsWhoseProductsNothingCanHold) {
  const auto message = [](const std::function<void(ModelSpec&)>& grow) {
    ModelSpec spec = small_spec();
    grow(spec);
    return message_of(ErrorCode::kInvalidArgument, [&] { spec.validate(); });
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 24;
  EXPECT_THAT(message([](ModelSpec& s) { s.d_model = s.d_ff = s.vocab_size = kLarge; }),
              HasSubstr("are too large"));
  EXPECT_THAT(message([](ModelSpec& s) { s.n_heads = kLarge; }), HasSubstr("16777216 heads"));
  EXPECT_THAT(message([](ModelSpec& s) { s.head_dim = std::int64_t{1} << 62; }),
              HasSubstr("are too large"));
}

TEST(ModelSpec, ChecksTheFieldsThatItsRopeScalingUses) {
  using Kind = RopeScaling::Kind;
  const auto message = [](const RopeScaling& scaling) {
    ModelSpec spec = small_spec();
    spec.rope_scaling = scaling;
    return message_of(ErrorCode::kInvalidArgument, [&] { spec.validate(); });
  };
  EXPECT_THAT(message({.kind = Kind::kLinear, .factor = 0.5}), HasSubstr("factor is 0.5"));
  EXPECT_THAT(message({.kind = Kind::kLlama3, .factor = 8}), HasSubstr("original_max_position"));
  EXPECT_THAT(message({.kind = Kind::kLlama3,
                       .factor = 8,
                       .low_freq_factor = 4,
                       .high_freq_factor = 4,
                       .original_max_position = 8}),
              HasSubstr("high_freq_factor"));
  EXPECT_THAT(message({.kind = Kind::kYarn, .factor = 4}), HasSubstr("original_max_position"));
  EXPECT_THAT(
      message({.kind = Kind::kYarn, .factor = 4, .original_max_position = 8, .beta_fast = -1}),
      HasSubstr("beta_fast"));
  EXPECT_THAT(
      message(
          {.kind = Kind::kYarn, .factor = 4, .original_max_position = 8, .attention_factor = 0.0}),
      HasSubstr("attention_factor"));
}

}  // namespace
}  // namespace longhaul
