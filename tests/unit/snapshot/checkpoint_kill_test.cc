// A writer that is killed while it replaces an older checkpoint by a newer one: the older or the
// newer is there, whole, and never a mixture.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "tests/support/paths.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using test::done;

constexpr std::int64_t kOlder = 2000;
constexpr std::int64_t kNewer = 3000;

// One document, read by one rank that saves it twice.
class Writer {
 public:
  explicit Writer(KvType type) {
    test::Random random(test::base_seed());
    ModelSpec spec = test::tiny_spec();
    spec.head_dim = 32;
    tokens_ = test::random_tokens(random, kNewer, 97);
    HeadRoles roles = HeadRoles::all_retrieval(3, 3);
    roles.sink = 4;
    roles.recent = 20;
    roles.roles[1] = roles.roles[5] = HeadRole::kStreaming;
    worker_ = std::make_unique<Worker>(WorkerConfig{.weights = test::tiny_weights(spec),
                                                    .heads = duo_attention_heads(spec, roles),
                                                    .k_type = type,
                                                    .v_type = type,
                                                    .block_size = 32,
                                                    .n_threads = 1});
    done(worker_->step(OpenSequence{{1}, {}}));
    read_until(kOlder);
  }
  void read_until(std::int64_t n) {
    const auto begin = tokens_.begin();
    test::prefill(*worker_, {1}, {begin + n_read_, begin + n}, 500);
    n_read_ = n;
  }
  void save(const fs::path& folder) {
    done(worker_->step(SaveSequence{{1},
                                    folder.string(),
                                    "doc",
                                    {tokens_.begin(), tokens_.begin() + n_read_},
                                    {{"content_id", std::to_string(n_read_)}},
                                    /*goes_on=*/true}));
    done(worker_->step(FinishSave{}));
  }

 private:
  std::vector<std::int32_t> tokens_;
  std::unique_ptr<Worker> worker_;
  std::int64_t n_read_ = 0;
};

// All rows of all heads, after every checksum was right.
std::vector<SavedRows> rows_in(const fs::path& folder) {
  const SavedHeader header = read_saved_header(folder / "doc.h5");
  for (const WrittenFile& part : header.parts) check_part(header, part);
  std::vector<SavedRows> rows;
  for (const LayerId layer : IdRange<LayerId>(header.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(header.n_kv_heads))
      rows.push_back(read_saved_head(header, layer, kv_head));
  }
  return rows;
}

bool equal(const std::vector<SavedRows>& a, const std::vector<SavedRows>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.role == y.role && std::equal(x.rows.begin(), x.rows.end(), y.rows.begin(),
                                          y.rows.end(), [](const auto& r, const auto& s) {
                                            return r.position == s.position && r.k == s.k &&
                                                   r.v == s.v;
                                          });
  });
}

// Of rows of tokens, and of groups of tokens with the newest apart.
class CheckpointKill : public testing::TestWithParam<KvType> {};

TEST_P(CheckpointKill, TheOlderOrTheNewerIsThereAndNeverAMixture) {
  const test::TemporaryFolder folder;
  const fs::path older = folder.path() / "older";
  const fs::path newer = folder.path() / "newer";
  const fs::path tried = folder.path() / "tried";
  Writer writer(GetParam());
  writer.save(older);
  writer.read_until(kNewer);
  fs::copy(older, newer);
  const auto begun = Clock::now();
  writer.save(newer);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun);
  const std::vector<SavedRows> of_older = rows_in(older);
  const std::vector<SavedRows> of_newer = rows_in(newer);
  test::Random random(test::base_seed());
  int n_older = 0;
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(tried);
    fs::copy(older, tried);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      writer.save(tried);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(random.integer(0, took.count() * 5 / 4)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::int64_t n_tokens = read_saved_header(tried / "doc.h5").n_tokens;
    ASSERT_TRUE(n_tokens == kOlder || n_tokens == kNewer) << n_tokens;
    EXPECT_TRUE(equal(rows_in(tried), n_tokens == kOlder ? of_older : of_newer));
    n_older += n_tokens == kOlder ? 1 : 0;
    // The next writer makes the newer of what is there, whatever the killed one left.
    if (round % 5 == 0) {
      writer.save(tried);
      EXPECT_TRUE(equal(rows_in(tried), of_newer));
    }
  }
  EXPECT_GT(n_older, 0) << "every kill came too late";
  RecordProperty("older", n_older);
}

INSTANTIATE_TEST_SUITE_P(Of, CheckpointKill, testing::Values(KvType::kF32, KvType::kKivi4),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace longhaul
