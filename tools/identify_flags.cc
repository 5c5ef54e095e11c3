#include "tools/identify_flags.h"

#include <CLI/CLI.hpp>

#include <vector>

#include "tools/flags/choice_flag.h"
#include "tools/flags/commands.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
#include "tools/flags/number_flag.h"

namespace longhaul {

namespace {

void add_training_flags(CLI::App& app, IdentifyFlags& f) {
  const std::string group = "Optimisation (DuoAttention's, as published)";
  GateOptimiserConfig& o = f.config.optimiser;
  app.add_option("--steps", o.n_steps, "Steps, a text each")
      ->check(kLongCount)
      ->capture_default_str()
      ->group(group);
  app.add_option("--learning-rate", o.learning_rate, "The highest; it rises to it and falls")
      ->check(number_between(1e-9, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--regularisation", o.regularisation, "Weight of the mean gate in the loss")
      ->check(number_between(0.0, 100.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--sink", f.config.window.sink, "First tokens that streaming heads see")
      ->transform(with_letters())
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31))
      ->capture_default_str()
      ->group(group);
  app.add_option("--recent", f.config.window.recent,
                 "Last tokens that they see, their own included")
      ->transform(with_letters())
      ->check(kLongCount)
      ->capture_default_str()
      ->group(group);
  app.add_option("--checkpoint-every", f.checkpoint_every,
                 "Write the state every so many steps; the same command goes on from it")
      ->check(kLongCount)
      ->capture_default_str()
      ->group(group);
}

void add_text_flags(CLI::App& app, IdentifyFlags& f) {
  const std::string group = "Texts ({key} and {value} are filled in; \\n is a new line)";
  PasskeyConfig& t = f.config.texts;
  const auto length = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)
        ->transform(with_letters())
        ->check(kLongCount)
        ->capture_default_str()
        ->group(group);
  };
  length("--min-length", t.shortest, "Tokens around the records of the shortest text");
  length("--max-length", t.longest, "Tokens of the longest text, records and questions included");
  app.add_option("--lengths", t.n_lengths, "How many lengths from one to the other")
      ->check(kLongCount)
      ->capture_default_str()
      ->group(group);
  app.add_option("--records", t.n_records, "Records in each text")
      ->check(CLI::Range(1, 20))
      ->capture_default_str()
      ->group(group);
  add_choice(app, "--record-form", t.form,
             FlagWords<RecordForm>{{"words", RecordForm::kWords}, {"codes", RecordForm::kCodes}},
             "words: passkeys of words, as published; codes: numbers, as eval needle has them")
      ->group(group);
  app.add_option("--words", t.n_words, "Words of a passkey")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--haystack", f.config.haystacks,
                 "Text file to hide records in; may be given again (default: made-up prose)")
      ->type_name("FILE")
      ->group(group);
  const auto text = [&](const char* name, std::string& value, const char* help) {
    app.add_option(name, value, help)->group(group);
  };
  text("--document-start", t.templates.start, "Stands in front of the text");
  text("--document-end", t.templates.end, "Stands behind it");
  text("--needle-template", t.templates.record, "A record");
  text("--question-template", t.templates.question, "A question");
  text("--answer-template", t.templates.answer, "Its answer");
  text("--separator", t.templates.separator, "Stands behind each answer");
  app.add_option("--copied-tokens", f.config.copies.n_random,
                 "Random tokens that echo and induction look at, repeated 4 times")
      ->transform(with_letters())
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 31))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", t.seed, "Random seed of texts and of repeated tokens")
      ->check(kSeed)
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void add_identify_flags(CLI::App& app, IdentifyFlags& f) {
  add_eval_flags(app, f.eval);
  f.eval.job.after_loss = "the last state is kept; the same command goes on from it";
  app.add_option("-o,--output", f.folder,
                 "Folder for the profile: full_attention_heads.tsv, config.json, heads.svg")
      ->type_name("FOLDER");
  add_choice(app, "--method", f.method, identify_methods(),
             "gates: the optimisation; the others need forward passes only");
  app.add_flag("--compare", f.compares, "Show what all methods find, side by side");
  app.add_flag("--estimate", f.estimates, "Say what a step takes, and stop there");
  app.add_option("--target", f.target,
                 "Also find the fewest heads with which answers and hidden states stay within this "
                 "share of the dense model's, such as 0.99")
      ->check(number_between(0.0, 1.0));
  app.add_flag("--overwrite", f.overwrites,
               "Replace a profile that is there, and a state of other settings");
  add_training_flags(app, f);
  add_text_flags(app, f);
  name_environment_variables(app);
}

void check_identify_flags(const CLI::App& app, const IdentifyFlags& flags) {
  std::vector<FlagUse> uses = {
      {"--plan", false, "a plan is made anew for each share of heads that --target tries"},
      {"--replicas", false, "all ranks work on the same text"},
      {"--overwrite", !flags.folder.empty(), "it needs -o FOLDER, where a profile may be"},
      {"--checkpoint-every", !flags.folder.empty(), "it needs -o FOLDER, where states are kept"}};
  for (const char* of_questions :
       {"--kv-limit", "--chunk-len", "--reproducible", "--cache-type-v", "--stages",
        "--decode-balance", "--history", "--gpu-transfers", "--trace"}) {
    uses.push_back({of_questions, flags.target.has_value(),
                    "it needs --target, whose questions alone are answered by a plan and from "
                    "caches"});
  }
  refuse_without_effect(app, uses);
}

void leave_out_layouts(JobConfig& job) {
  job.plan.clear();
  job.n_replicas = 1;
}

void fill_in_templates(PasskeyConfig& texts, const CLI::App& app) {
  const PasskeyTemplates preset = templates_of(texts.form);
  const auto fill = [&](const char* flag, std::string& value, const std::string& from) {
    if (app.get_option(flag)->count() == 0) value = from;
  };
  PasskeyTemplates& t = texts.templates;
  fill("--document-start", t.start, preset.start);
  fill("--document-end", t.end, preset.end);
  fill("--needle-template", t.record, preset.record);
  fill("--question-template", t.question, preset.question);
  fill("--answer-template", t.answer, preset.answer);
  fill("--separator", t.separator, preset.separator);
}

}  // namespace longhaul
