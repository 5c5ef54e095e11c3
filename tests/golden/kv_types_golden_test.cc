// What cached keys and values of fewer bits cost trained models: the Kullback-Leibler divergence of
// the next token's distribution from that of float32 caches, averaged over a text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/golden/engine.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

struct Difference {
  double mean_kl = 0;   // nats
  double same_top = 0;  // share of positions with the same most likely token
};

Difference difference(const Logits& want, const Logits& got) {
  Difference out;
  for (std::int64_t i = 0; i < want.n_tokens; ++i) {
    const std::vector<double> p = log_softmax(want.row(i));
    const std::vector<double> q = log_softmax(got.row(i));
    double kl = 0;
    for (std::size_t t = 0; t < p.size(); ++t) kl += std::exp(p[t]) * (p[t] - q[t]);
    out.mean_kl += kl / static_cast<double>(want.n_tokens);
    if (argmax(want.row(i)) == argmax(got.row(i)))
      out.same_top += 1.0 / static_cast<double>(want.n_tokens);
  }
  return out;
}

std::vector<std::int32_t> tokens_of(const fs::path& model) {
  const Tokenizer tokenizer = Tokenizer::from_file(ModelFolder(model).tokenizer_path());
  const std::string text =
      read_file(example_path("documents/harbour_log.txt"), 1 << 20).substr(0, 1200);
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  tokens.resize(std::min<std::size_t>(tokens.size(), 400));
  return tokens;
}

void tell(const fs::path& model, KvType type, const Difference& found, std::size_t n_tokens) {
  std::printf("%s, KV %s: mean KL %.3g nats, same top token at %.2f %% of %zu positions\n",
              model.filename().c_str(), std::string(name_of(type)).c_str(), found.mean_kl,
              100 * found.same_top, n_tokens);
}

// The bounds are walls, far from what is measured (docs/benchmarks/kv_types.md).
void expect_small_differences(const fs::path& model) {
  const std::vector<std::int32_t> tokens = tokens_of(model);
  const Logits want = Engine(model).append(tokens, 128);
  double before = 0;
  for (const auto& [type, most] : {std::pair{KvType::kBf16, 2e-3}, std::pair{KvType::kInt8, 1e-2},
                                   std::pair{KvType::kFp8, 1e-1}, std::pair{KvType::kInt4, 1.0}}) {
    const Difference found =
        difference(want, Engine(model, std::nullopt, type).append(tokens, 128));
    tell(model, type, found, tokens.size());
    EXPECT_LT(found.mean_kl, most) << name_of(type);
    EXPECT_GT(found.mean_kl, before) << "is it " << name_of(type) << " at all?";
    before = found.mean_kl;
  }
}

TEST(KvTypes, DivergeLittleInTheNeedleModel) { expect_small_differences(example_path("model")); }

// Types that quantise groups of tokens, on both sides and on one.
TEST(KvTypes, GroupsDivergeLittleInTheNeedleModel) {
  const fs::path model = example_path("model");
  const std::vector<std::int32_t> tokens = tokens_of(model);
  const Logits want = Engine(model).append(tokens, 128);
  for (const auto& [type, most] :
       {std::pair{KvType::kKivi4, 0.1}, std::pair{KvType::kKivi2, 4.0}}) {
    const Difference found =
        difference(want, Engine(model, std::nullopt, type).append(tokens, 128));
    tell(model, type, found, tokens.size());
    EXPECT_LT(found.mean_kl, most) << name_of(type);
    EXPECT_GT(found.mean_kl, 1e-4) << name_of(type);
  }
}

TEST(KvTypes, DivergeLittleInStories260K) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/stories260K");
  expect_small_differences(shared_path("models/stories260K"));
}

}  // namespace
}  // namespace longhaul::test
