#include "worker/attention/page_choice.h"

#include <algorithm>
#include <map>

#include "kernels/page_bound.h"

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

PageChoice::PageChoice(const CacheLayout& layout)
    : layout_(layout), position_{layout.shape().block_size} {}

bool PageChoice::chooses(LayerId layer, KvHeadId kv_head) const {
  return std::holds_alternative<ReadTopPages>(layout_.policy(layer, kv_head).choose);
}

void PageChoice::begin(LayerId layer) {
  layer_ = layer;
  questions_.clear();
  refs_.clear();
}

void PageChoice::add(const QueryRows& queries, KvHeadId kv_head, std::int64_t row,
                     SequenceCache& cache) {
  const auto& choose = std::get<ReadTopPages>(layout_.policy(layer_, kv_head).choose);
  const std::span<const KvBlockRef> blocks = cache.head(layer_, kv_head).blocks();
  PageBounds& bounds = cache.page_bounds(layer_, kv_head);
  bounds.update(layout_.shape(), choose.page_tokens, blocks);
  const Extent heads = queries.heads_of(kv_head);
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
         .bounds = &bounds,
         .blocks = blocks});
  }
}

void PageChoice::run(const GatherBytes* gather, AttentionWork& work) {
  find_bounds();
  for (Question& question : questions_) find_best(question);
  if (gather != nullptr) join(*gather);
  for (Question& question : questions_) {
    take_chosen(question);
    attend(question, work);
  }
}

void PageChoice::find_bounds() {
  std::vector<PageBoundItem> items;
  for (Question& question : questions_) {
    const auto tiles = question.bounds->tiles();
    question.products.resize(tiles.size() * static_cast<std::size_t>(kBoundPages));
    const auto q = question.queries.q[0][question.heads.begin];
    items.push_back({.q = {q.data(), static_cast<std::size_t>(layout_.shape().head_dim)},
                     .tiles = tiles,
                     .bounds = question.products});
  }
  bound_products(items);
}

// The best pages that are here, but for the sequence's last one, which is read whatever its bound.
void PageChoice::find_best(Question& question) const {
  const std::span<const PageBounds::Page> pages = question.bounds->pages();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].number == question.last_page) continue;
    question.best.push_back(
        {question.number, pages[i].number, static_cast<double>(question.products[i])});
  }
  keep_best(question.best, question.choose.n_pages() - 1);
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
  for (const PageBounds::Page& page : question.bounds->pages()) {
    if (std::binary_search(numbers.begin(), numbers.end(), page.number))
      question.chosen.push_back(page);
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
