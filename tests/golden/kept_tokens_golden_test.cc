// Which tokens of the stored models' texts stay under methods that choose by attention, and which
// of them the next query sees through StreamingLLM's window: equal to what kvpress left in its
// caches when it was run (make_kvpress_goldens.py), and where query heads choose by themselves to
// what SnapKV's published code takes (make_snapkv_goldens.py), for chunks of any length.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "model/heads/cache_method.h"
#include "model/model_folder.h"
#include "tests/golden/golden_models.h"
#include "tests/property/chosen_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/tiny_models.h"
#include "tools/flags/cache_method_words.h"

namespace longhaul::test {
namespace {

KeptTokens kept_in(const JsonField& field) {
  KeptTokens kept;
  for (std::size_t layer = 0; layer < field.size(); ++layer) {
    auto& of_layer = kept.emplace_back();
    for (std::size_t head = 0; head < field.at(layer).size(); ++head) {
      auto& tokens = of_layer.emplace_back();
      const JsonField list = field.at(layer).at(head);
      for (std::size_t i = 0; i < list.size(); ++i)
        tokens.push_back(list.at(i).as_integer(0, 1 << 20));
    }
  }
  return kept;
}

// Without what blocks hold besides: tokens that a window hides from the next query.
KeptTokens seen_by_next_query(KeptTokens held, const HeadTable& heads, std::int64_t n_tokens) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const KeyWindow window = heads.window(layer, kv_head);
      if (window.is_unlimited()) continue;
      auto& tokens = held.at(static_cast<std::size_t>(layer.value))
                         .at(static_cast<std::size_t>(kv_head.value));
      std::erase_if(tokens, [&](std::int64_t token) {
        return token >= window.sink && token < window.first_recent(n_tokens);
      });
    }
  }
  return held;
}

void expect_kept_as_in(const std::string& name, std::size_t n_cases) {
  const std::string path = source_path(name);
  const Json json = parse_json(read_file(path, 1 << 20), path);
  const JsonField file(json, path);
  const std::int64_t n_tokens = file.at("n_tokens").as_integer(1, 1 << 20);
  const JsonField cases = file.at("cases");
  ASSERT_GE(cases.size(), n_cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string& method = cases.at(i).at("method").as_string();
    const GoldenModel golden = read_golden_model(cases.at(i).at("model").as_string());
    SCOPED_TRACE(golden.name + " " + method);
    const ModelFolder folder(golden.folder);
    const ModelSpec& spec = folder.config().spec;
    const HeadTable heads =
        method_heads(spec, HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads),
                     {.all = parse_cache_method(method), .full = std::nullopt});
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(folder)),
                   .heads = heads,
                   .block_size = 16,
                   .n_threads = 1});
    const auto document = std::span(golden.tokens).first(static_cast<std::size_t>(n_tokens));
    const std::int64_t chunk_len = i % 2 == 0 ? n_tokens : 7;
    const AfterPrefill end =
        heads.chooses_in_answers() ? AfterPrefill::kPromptEnd : AfterPrefill::kDocumentEnd;
    for (const StepCommand& command :
         read_document(SequenceId{1}, document, equal_chunks(n_tokens, chunk_len), end)) {
      done(worker.step(command));
    }
    const KeptTokens held = held_by(worker, SequenceId{1}, spec, n_choosers(heads));
    EXPECT_EQ(seen_by_next_query(held, heads, n_tokens), kept_in(cases.at(i).at("kept")));
  }
}

TEST(KeptTokensGolden, AreThoseThatKvpressKeeps) {
  expect_kept_as_in("tests/golden/kept_tokens.json", 60);
}

TEST(KeptTokensGolden, OfEachQueryHeadAreThoseThatSnapKvKeeps) {
  expect_kept_as_in("tests/golden/kept_apart.json", 10);
}

}  // namespace
}  // namespace longhaul::test
