#include "tools/eval/needle_flags.h"

#include <CLI/CLI.hpp>

#include "tools/flags/count_flag.h"

namespace longhaul {

void add_needle_grid_flags(CLI::App& app, NeedleFlags& f, const std::string& group) {
  app.add_option("--lengths", f.lengths,
                 "Tokens of the documents, records included; K is 1024, M is 1024 K")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("--depths", f.depths, "Where records stand, in percent of the text before them")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(group);
  app.add_option("--documents", f.n_documents, "Questions for each length and depth")
      ->check(kSmallCount)
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", f.seed, "Random seed of names, values, and where the haystack begins")
      ->check(kSeed)
      ->capture_default_str()
      ->group(group);
}

void add_needle_text_flags(CLI::App& app, NeedleFlags& f, const std::string& group) {
  app.add_option("--haystack", f.texts.haystacks,
                 "Text file to hide records in, repeated if it is short; may be given again "
                 "(default: made-up prose)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--max-tokens", f.max_answer_tokens, "Maximum tokens per answer")
      ->transform(with_letters())
      ->check(kSmallCount)
      ->capture_default_str()
      ->group(group);
}

}  // namespace longhaul
