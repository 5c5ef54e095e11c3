// Which pages queries read: against the definition in double precision, in every cache type, with
// all pages in one place and with some on another rank.
#include "worker/attention/page_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/kv_append.h"
#include "kernels/page_bound.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kHeadDim = 16;
constexpr std::int64_t kGroup = 2;
constexpr LayerId kLayer{0};
constexpr KvHeadId kHead{0};

ModelSpec one_head() {
  ModelSpec spec;
  spec.n_layers = 1;
  spec.n_heads = kGroup;
  spec.n_kv_heads = 1;
  spec.head_dim = kHeadDim;
  spec.attention_window = {ModelSpec::kNoWindow};
  return spec;
}

// What one rank has, and its list of questions.
struct Place {
  Place(const CacheLayout& layout, const ModelSpec& spec)
      : pool(layout.shape(), {}),
        cache(layout, pool),
        pages(layout, StreamRef::cpu()),
        work(spec, layout, StreamRef::cpu()) {}
  BlockPool pool;
  SequenceCache cache;
  PageChoice pages;
  AttentionWork work;
};

struct Text {
  Text(Random& random, const KvBlockShape& block_shape, std::int64_t n)
      : shape(block_shape), n_tokens(n), k({n, kHeadDim}) {
    std::ranges::copy(random.normals(n * kHeadDim), k.data());
  }
  // Tokens [first, end) into the cache, all in one block.
  void store(SequenceCache& cache, Extent tokens) const {
    const auto place = cache.head(kLayer, kHead).store(tokens);
    std::byte* block = place->block;
    const KvAppendItem item{.k = k.view().slice(0, tokens),
                            .v = k.view().slice(0, tokens),
                            .blocks = {&block, 1},
                            .first_slot = place->first_slot.value};
    kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
    cache.head(kLayer, kHead).advance_to({tokens.end});
  }
  KvBlockShape shape;
  std::int64_t n_tokens;
  Tensor<float, 2> k;
};

struct Queries {
  explicit Queries(Random& random, std::int64_t position)
      : positions{position},
        q({1, kGroup, kHeadDim}),
        o({1, kGroup, kHeadDim}),
        m({1, kGroup}),
        l({1, kGroup}) {
    std::ranges::copy(random.normals(kGroup * kHeadDim), q.data());
  }
  QueryRows rows() {
    return {.kv_heads = {0, 1},
            .positions = positions,
            .q = q.view(),
            .state = {o.view(), m.view(), l.view()}};
  }
  std::vector<std::int64_t> positions;
  Tensor<float, 3> q;
  Tensor<float, 3> o;
  Tensor<float, 2> m;
  Tensor<float, 2> l;
};

// The keys as the cache has them.
std::vector<std::vector<float>> keys_in(const KvBlockShape& shape, const SequenceCache& cache) {
  std::vector<std::vector<float>> keys;
  for (const KvBlockRef& block : cache.head(kLayer, kHead).blocks()) {
    for (std::int64_t slot = 0; slot < block.n_tokens; ++slot) {
      keys.emplace_back(kHeadDim);
      kv_read_k(shape, block.data, slot, {keys.back().data(), {1, kHeadDim}});
    }
  }
  return keys;
}

struct Bound {
  double bound;
  std::int64_t page;
};

// Bounds of all pages but the last by the definition, highest first; none is below a product with
// one of its keys.
std::vector<Bound> bounds_by_definition(std::span<const float> q,
                                        const std::vector<std::vector<float>>& keys,
                                        std::int64_t page_tokens) {
  std::vector<Bound> bounds;
  const auto n = static_cast<std::int64_t>(keys.size());
  for (std::int64_t first = 0; first / page_tokens < (n - 1) / page_tokens; first += page_tokens) {
    double bound = 0;
    double most = -std::numeric_limits<double>::infinity();
    std::vector<double> products(static_cast<std::size_t>(page_tokens));
    for (std::size_t d = 0; d < q.size(); ++d) {
      double largest = -std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < products.size(); ++i) {
        const double x = static_cast<double>(q[d]) *
                         static_cast<double>(keys[static_cast<std::size_t>(first) + i][d]);
        largest = std::max(largest, x);
        products[i] += x;
      }
      bound += largest;
    }
    for (const double product : products) most = std::max(most, product);
    EXPECT_GE(bound, most);
    bounds.push_back({bound, first / page_tokens});
  }
  std::stable_sort(bounds.begin(), bounds.end(),
                   [](const Bound& a, const Bound& b) { return a.bound > b.bound; });
  return bounds;
}

// The pages that are read; empty where rounding may decide.
std::vector<std::int64_t> chosen_by_definition(std::span<const float> q,
                                               const std::vector<std::vector<float>>& keys,
                                               const ReadTopPages& choose) {
  std::vector<Bound> bounds = bounds_by_definition(q, keys, choose.page_tokens);
  const auto n = static_cast<std::size_t>(choose.n_pages() - 1);
  if (n > 0 && n < bounds.size() && bounds[n - 1].bound - bounds[n].bound < 1e-4) return {};
  bounds.resize(std::min(bounds.size(), n));
  std::vector<std::int64_t> pages{(static_cast<std::int64_t>(keys.size()) - 1) /
                                  choose.page_tokens};
  for (const Bound& bound : bounds) pages.push_back(bound.page);
  std::sort(pages.begin(), pages.end());
  return pages;
}

std::vector<std::int64_t> joined(std::vector<std::int64_t> a, std::span<const std::int64_t> b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  return a;
}

// Of choices: how many were compared, and how many rounding may decide.
struct Choices {
  int n_compared = 0;
  int n_open = 0;
};

// One growing text, asked for its pages after every few tokens, and by a fork.
Choices expect_chosen_pages(std::uint64_t seed, KvType type) {
  Random random(seed);
  const std::int64_t block_size = 16 * random.integer(1, 4);
  const std::int64_t page_tokens = block_size >> random.integer(0, 3);
  const ReadTopPages choose{page_tokens, page_tokens * random.integer(1, 6)};
  const KvBlockShape shape{
      .block_size = block_size, .head_dim = kHeadDim, .k_type = type, .v_type = type};
  const ModelSpec spec = one_head();
  const HeadTable heads(1, 1, {.choose = choose});
  const CacheLayout layout(heads, {0, 1}, shape);
  Place alone(layout, spec);
  std::array<Place, 2> ranks{Place(layout, spec), Place(layout, spec)};
  const Text text(random, shape, random.integer(1, 400));
  std::vector<std::size_t> homes;
  Choices choices;
  for (std::int64_t token = 0; token < text.n_tokens;) {
    const std::int64_t end = std::min(
        {text.n_tokens, token + random.integer(1, 40), (token / block_size + 1) * block_size});
    if (token % block_size == 0) homes.push_back(random.chance(0.5) ? 1 : 0);
    text.store(alone.cache, {token, end});
    text.store(ranks[homes.back()].cache, {token, end});
    ranks[1 - homes.back()].cache.head(kLayer, kHead).advance_to({end});
    token = end;
    if (random.chance(0.5) && token < text.n_tokens) continue;

    Queries queries(random, token - 1);
    SequenceCache fork = alone.cache.fork();
    for (SequenceCache* cache : {&alone.cache, &fork}) {
      alone.pages.begin(kLayer);
      alone.pages.add(queries.rows(), kHead, 0, *cache);
      alone.pages.run(nullptr, alone.work);
    }
    const auto keys = keys_in(shape, alone.cache);
    std::vector<std::vector<std::byte>> sent;
    const GatherBytes note = [&](std::span<const std::byte> mine) {
      sent.emplace_back(mine.begin(), mine.end());
      return std::vector<std::vector<std::byte>>{};
    };
    const GatherBytes gather = [&](std::span<const std::byte>) { return sent; };
    for (const GatherBytes* how : {&note, &gather}) {
      for (Place& rank : ranks) {
        rank.pages.begin(kLayer);
        rank.pages.add(queries.rows(), kHead, 0, rank.cache);
        rank.pages.run(how, rank.work);
      }
    }
    for (std::size_t head = 0; head < kGroup; ++head) {
      const auto want = chosen_by_definition(
          {queries.q.data() + head * kHeadDim, static_cast<std::size_t>(kHeadDim)}, keys, choose);
      if (want.empty()) {
        ++choices.n_open;
        continue;
      }
      ++choices.n_compared;
      EXPECT_EQ(alone.pages.chosen(head), want);
      EXPECT_EQ(joined(ranks[0].pages.chosen(head), ranks[1].pages.chosen(head)), want);
    }
    if (testing::Test::HasFailure()) break;
  }
  return choices;
}

TEST(PageChoice, IsThatOfDoublePrecisionWhereverPagesLie) {
  for (const KvType type : kPlainKvTypes) {
    Choices of_type;
    for (int round = 0; round < 8 * intensity(); ++round) {
      const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
      SCOPED_TRACE(testing::Message() << name_of(type) << ", seed " << seed);
      const Choices choices = expect_chosen_pages(seed, type);
      if (HasFailure()) return;
      of_type.n_compared += choices.n_compared;
      of_type.n_open += choices.n_open;
    }
    EXPECT_LT(20 * of_type.n_open, of_type.n_compared) << name_of(type);
  }
}

TEST(PageChoice, TakesTheEarlierOfEqualPages) {
  const KvBlockShape shape{.block_size = 16, .head_dim = kHeadDim};
  const HeadTable heads(1, 1, {.choose = ReadTopPages{16, 48}});
  const CacheLayout layout(heads, {0, 1}, shape);
  Place place(layout, one_head());
  Random random(3);
  Text text(random, shape, 100);
  std::fill_n(text.k.data(), text.k.size(), 1.0F);
  for (std::int64_t first = 0; first < 100; first += 16)
    text.store(place.cache, {first, std::min<std::int64_t>(100, first + 16)});
  Queries queries(random, 99);
  place.pages.begin(kLayer);
  place.pages.add(queries.rows(), kHead, 0, place.cache);
  place.pages.run(nullptr, place.work);
  EXPECT_EQ(place.pages.chosen(0), (std::vector<std::int64_t>{0, 1, 6}));
}

}  // namespace
}  // namespace longhaul::test
