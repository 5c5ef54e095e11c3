#include "worker/attention/page_choice.h"

#include <algorithm>
#include <map>

#include "kernels/page_bound.h"
#include "model/heads/choice_bytes.h"

namespace longhaul {
namespace {

// Higher bounds first, of equal ones the earlier page.
template <typename Candidate>
bool wins(const Candidate& a, const Candidate& b) {
  return a.bound != b.bound ? a.bound > b.bound : a.page < b.page;
}

template <typename Candidate>
void keep_best(std::vector<Candidate>& candidates, std::int64_t n_most) {
  const auto n = static_cast<std::size_t>(n_most);
  if (candidates.size() <= n) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(n),
                   candidates.end(), wins<Candidate>);
  candidates.resize(n);
}

}  // namespace

PageChoice::PageChoice(const CacheLayout& layout, StreamRef stream)
    : layout_(layout), stream_(stream), position_{layout.shape().block_size} {}

bool PageChoice::chooses(LayerId layer, KvHeadId kv_head) const {
  return std::holds_alternative<ReadTopPages>(layout_.policy(layer, kv_head).choose);
}

void PageChoice::begin(LayerId layer) {
  static_assert(sizeof(Candidate) == kCandidatePageBytes);
  static_assert(sizeof(Question) + sizeof(std::vector<KvBlockRef>) <= kPageQuestionBytes);
  static_assert(2 * (sizeof(PageBounds::Page) + sizeof(KvBlockRef)) + sizeof(std::int64_t) ==
                kReadPageBytes);
  layer_ = layer;
  groups_.clear();
  questions_.clear();
  bounds_.clear();
  refs_.clear();
}

void PageChoice::add(const QueryRows& queries, KvHeadId kv_head, std::int64_t row,
                     SequenceCache& cache) {
  const auto& choose = std::get<ReadTopPages>(layout_.policy(layer_, kv_head).choose);
  const std::span<const KvBlockRef> blocks = cache.head(layer_, kv_head).blocks();
  PageBounds& bounds = cache.page_bounds(layer_, kv_head);
  bounds.update(stream_, layout_.shape(), choose.page_tokens, blocks);
  const Extent heads = queries.heads_of(kv_head);
  const auto n_bounds = bounds.tiles().size() * static_cast<std::size_t>(kBoundPages);
  const auto q = queries.q[row].slice(0, heads);
  groups_.push_back({.q = {q.data(), static_cast<std::size_t>(q.size())},
                     .tiles = bounds.tiles(),
                     .first_bound = bounds_.size()});
  const std::int64_t n_heads = heads.size() * layout_.n_kv_heads();
  for (std::int64_t i = 0; i < heads.size(); ++i) {
    questions_.push_back(
        {.number = row * n_heads + kv_head.value * heads.size() + i,
         .queries = {.kv_heads = queries.kv_heads,
                     .positions = position_,
                     .q = queries.q.slice(0, {row, row + 1}),
                     .state = queries.state.tokens({row, row + 1})},
         .heads = {heads.begin + i, heads.begin + i + 1},
         .choose = choose,
         .last_page = queries.positions[static_cast<std::size_t>(row)] / choose.page_tokens,
         .pages = bounds.pages(),
         .first_bound = bounds_.size(),
         .blocks = blocks});
    bounds_.resize(bounds_.size() + n_bounds);
  }
}

void PageChoice::run(const GatherBytes* gather, AttentionWork& work) {
  find_bounds();
  find_best();
  if (gather != nullptr) join(*gather);
  for (Question& question : questions_) {
    take_chosen(question);
    attend(question, work);
  }
}

void PageChoice::find_bounds() {
  std::vector<PageBoundItem> items;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const std::size_t end = i + 1 < groups_.size() ? groups_[i + 1].first_bound : bounds_.size();
    items.push_back(
        {.q = group.q,
         .head_dim = layout_.shape().head_dim,
         .tiles = group.tiles,
         .bounds = std::span(bounds_).subspan(group.first_bound, end - group.first_bound)});
  }
  bound_products(stream_, items);
}

// The best pages that are here, but for the sequence's last one, which is read whatever its bound.
void PageChoice::find_best() {
  const auto place_of_last = [](const Question& question) -> std::int64_t {
    const auto& pages = question.pages;  // none comes after the last one
    const bool is_here = !pages.empty() && pages.back().number == question.last_page;
    return is_here ? static_cast<std::int64_t>(pages.size()) - 1 : -1;
  };
  const auto n_best = [&](const Question& question) {
    const std::size_t n_here = question.pages.size() - (place_of_last(question) >= 0 ? 1 : 0);
    return std::min(n_here, static_cast<std::size_t>(question.choose.n_pages() - 1));
  };
  std::size_t n_all = 0;
  for (const Question& question : questions_) n_all += n_best(question);
  best_.resize(n_all);
  std::vector<BestPagesItem> items;
  std::size_t first = 0;
  for (const Question& question : questions_) {
    items.push_back(
        {.bounds = std::span(bounds_).subspan(question.first_bound, question.pages.size()),
         .besides = place_of_last(question),
         .best = std::span(best_).subspan(first, n_best(question))});
    first += n_best(question);
  }
  best_pages(items);
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    for (const std::int32_t page : items[i].best) {
      const auto at = static_cast<std::size_t>(page);
      questions_[i].best.push_back({questions_[i].number, questions_[i].pages[at].number,
                                    static_cast<double>(items[i].bounds[at])});
    }
  }
}

// Others' best pages join those of this rank, and the best of all stay.
void PageChoice::join(const GatherBytes& gather) {
  std::vector<Candidate> mine;
  std::map<std::int64_t, Question*> by_number;
  for (Question& question : questions_) {
    by_number[question.number] = &question;
    mine.insert(mine.end(), question.best.begin(), question.best.end());
    question.best.clear();
  }
  for (const auto& bytes : gather(bytes_of(std::span<const Candidate>(mine)))) {
    for (const Candidate& candidate : values_in<Candidate>(bytes)) {
      const auto question = by_number.find(candidate.question);
      if (question != by_number.end()) question->second->best.push_back(candidate);
    }
  }
  for (Question& question : questions_) keep_best(question.best, question.choose.n_pages() - 1);
}

void PageChoice::take_chosen(Question& question) const {
  std::vector<std::int64_t> numbers{question.last_page};
  for (const Candidate& candidate : question.best) numbers.push_back(candidate.page);
  std::sort(numbers.begin(), numbers.end());
  auto page = question.pages.begin();
  for (const std::int64_t number : numbers) {
    page = std::lower_bound(
        page, question.pages.end(), number,
        [](const PageBounds::Page& here, std::int64_t wanted) { return here.number < wanted; });
    if (page == question.pages.end()) return;
    if (page->number == number) question.chosen.push_back(*page);
  }
}

// Attention is told such positions that the query sees a page's slots of a block and no others: the
// page's tokens are its last ones, those before them are out of its window.
//   block of 8, pages of 2, page in slots 4 and 5 (of 0..5): query at 8, window of 2 tokens,
//   block from position 3 on: slots 0..5 stand at 3..8, and 7 and 8 are seen
void PageChoice::attend(const Question& question, AttentionWork& work) {
  if (question.chosen.empty()) return;
  const std::int64_t page_tokens = question.choose.page_tokens;
  std::vector<KvBlockRef>& refs = refs_.emplace_back();
  for (const PageBounds::Page& page : question.chosen) {
    refs.push_back({.data = question.blocks[page.block].data,
                    .first_position = position_[0] - page_tokens + 1 - page.first_slot,
                    .n_tokens = page.first_slot + page.n_tokens});
  }
  work.add_seen(question.queries, question.heads, refs, {.sink = 0, .recent = page_tokens});
}

std::vector<std::int64_t> PageChoice::chosen(std::size_t i) const {
  std::vector<std::int64_t> numbers;
  for (const PageBounds::Page& page : questions_.at(i).chosen) numbers.push_back(page.number);
  return numbers;
}

}  // namespace longhaul
