#include "tools/eval/needle_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/ids.h"

namespace longhaul {

std::vector<PlannedDocument> plan_documents(const NeedlePlanArgs& args) {
  require(!args.lengths.empty() && !args.depths.empty(), "a grid needs lengths and depths");
  require(args.n_documents >= 1, fmt::format("{} documents for each cell", args.n_documents));
  const auto n_depths = static_cast<std::int64_t>(args.depths.size());
  const std::int64_t n_together =
      args.records_per_document == 0 ? n_depths : std::min(args.records_per_document, n_depths);
  require(n_together >= 1, fmt::format("{} records in a document", args.records_per_document));
  // Depths i, i + n_groups, i + 2 n_groups, ... share a document: as far apart as can be.
  const std::int64_t n_groups = ceil_div(n_depths, n_together);

  std::vector<PlannedDocument> documents;
  for (const std::int64_t length : args.lengths) {
    for (std::int64_t number = 0; number < args.n_documents * n_groups; ++number) {
      PlannedDocument document{.length = length, .number = number, .needles = {}};
      for (std::int64_t i = number % n_groups; i < n_depths; i += n_groups) {
        document.needles.push_back({.depth = args.depths[static_cast<std::size_t>(i)]});
      }
      RandomDraws of_length(args.seed ^
                            (static_cast<std::uint64_t>(length) * 0xd6e8feb86659fd93ULL));
      RandomDraws draws(of_length.next() + static_cast<std::uint64_t>(number));
      const auto records = make_records(draws, document.needles.size(), args.n_digits, args.words);
      for (std::size_t i = 0; i < records.size(); ++i) document.needles[i].record = records[i];
      if (number > 0) document.hay_draw = draws.next();
      documents.push_back(std::move(document));
    }
  }
  return documents;
}

}  // namespace longhaul
