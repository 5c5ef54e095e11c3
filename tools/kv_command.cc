#include "tools/kv_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/print_stderr.h"
#include "base/sizes.h"
#include "base/terminal.h"
#include "base/text_columns.h"
#include "tools/flags/count_flag.h"
#include "tools/flags/environment.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"
#include "tools/job/input_errors.h"
#include "tools/kv_compare.h"
#include "tools/kv_convert.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr int kExitDifferent = 1;

struct KvFlags {
  std::vector<fs::path> paths;
};

// The files among `paths` that are no parts: a shell's *.h5 names parts beside their masters.
// Throws kCorruptData for what is not there, also the master of a part, kInvalidArgument for a part
// alone.
std::vector<fs::path> without_parts(const std::vector<fs::path>& paths) {
  std::vector<fs::path> others;
  for (const fs::path& path : paths) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: there is no such file or folder", path.string()));
    }
    const auto master = master_of_part(path);
    if (!master) {
      others.push_back(path);
      continue;
    }
    if (!fs::exists(*master, ignored)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} is a part of {}, which is missing: put that back, for parts "
                              "alone cannot be read",
                              path.string(), master->string()));
    }
    const fs::path folder = master->has_parent_path() ? master->parent_path() : fs::path(".");
    const auto names_it = [&](const fs::path& given) {
      return fs::equivalent(given, *master, ignored) || fs::equivalent(given, folder, ignored);
    };
    require(std::find(paths.begin(), paths.end(), *master) != paths.end() ||
                std::any_of(paths.begin(), paths.end(), names_it),
            fmt::format("{} is a part of {}: give that", path.string(), master->string()));
  }
  return others;
}

enum class EmptyFolders { kAreFine, kAreRefused };

// The masters that paths stand for: themselves, or those in a folder.
std::vector<fs::path> masters_of(const std::vector<fs::path>& paths, EmptyFolders empty) {
  std::vector<fs::path> masters;
  for (const fs::path& path : without_parts(paths)) {
    if (!fs::is_directory(path)) {
      masters.push_back(path);
      continue;
    }
    const std::vector<fs::path> found = read_input([&] { return saved_masters(path); });
    if (found.empty() && empty == EmptyFolders::kAreRefused) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: no saved document (NAME.h5) is in this folder", path.string()));
    }
    masters.insert(masters.end(), found.begin(), found.end());
  }
  return masters;
}

// The headers of files that are named one by one.
std::vector<SavedHeader> headers_of(const std::vector<fs::path>& files) {
  std::vector<SavedHeader> headers;
  for (const fs::path& file : without_parts(files))
    headers.push_back(read_input([&] { return read_saved_header(file); }));
  return headers;
}

// Of a file that is not read whole: says which parts are missing or cut off, and whether any is.
bool lacks_parts(const SavedHeader& header) {
  bool lacks = false;
  for (const WrittenFile& part : header.parts) {
    try {
      check_part_size(header, part);
    } catch (const Error& error) {
      print_stderr("longhaul: {}\n", error.what());
      lacks = true;
    }
  }
  return lacks;
}

std::string types_of(const SavedHeader& header) {
  return fmt::format("{}/{}", name_of(header.k_type), name_of(header.v_type));
}

// A line for each document; where one would be wider than `width`, models stand above theirs.
std::string listed(const std::vector<SavedHeader>& headers, std::size_t width) {
  constexpr const char* kRow = "{:<20} {:>10}  {:<11} {:>8}  {}";
  const auto row = [&](const SavedHeader& header) {
    return fmt::format(kRow, header.name(), header.n_tokens, types_of(header),
                       format_byte_size(header.n_bytes()), header.created_utc);
  };
  const bool is_wide = std::ranges::all_of(headers, [&](const SavedHeader& header) {
    return n_columns(row(header)) + 2 + n_columns(header.model_id) <= width;
  });
  std::string text = fmt::format(kRow, "name", "tokens", "k/v", "size",
                                 is_wide ? "saved (UTC)           model\n" : "saved (UTC)\n");
  std::string model;
  for (const SavedHeader& header : headers) {
    if (!is_wide && std::exchange(model, header.model_id) != header.model_id)
      text += fmt::format("of {}\n", model);
    text += row(header) + (is_wide ? "  " + header.model_id : "") + "\n";
  }
  return text;
}

int run_list(const KvFlags& flags) {
  std::vector<SavedHeader> headers;
  int status = kExitDone;
  for (const fs::path& master : masters_of(flags.paths, EmptyFolders::kAreFine)) {
    try {
      headers.push_back(read_saved_header(master));
      if (lacks_parts(headers.back())) status = kExitBadInput;
    } catch (const Error& error) {
      print_stderr("longhaul: {}\n", error.what());
      status = kExitBadInput;
    }
  }
  fmt::print("{}", listed(headers, output_width()));
  return status;
}

// "2 retrieval, 14 streaming (sink 16, recent 128)"
std::string describe_roles(const std::vector<SavedRole>& roles) {
  std::vector<std::pair<SavedRole, int>> counts;
  for (const SavedRole& role : roles) {
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& counted) { return counted.first == role; });
    if (known == counts.end()) {
      counts.emplace_back(role, 1);
    } else {
      ++known->second;
    }
  }
  std::string text;
  for (const auto& [role, n] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, role.name);
    if (role.is_chosen()) text += " (chosen tokens)";
    if (role.has_slots()) text += " (merged tokens)";
    if (role.recent >= 0) text += fmt::format(" (sink {}, recent {})", role.sink, role.recent);
  }
  return text;
}

void print_info(const SavedHeader& header) {
  fmt::print("{}\n", header.master.string());
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("  {:<14}{}\n", name, wrapped_text(value, {.width = output_width(), .indent = 16}));
  };
  line("content", header.content_id);
  line("tokens", fmt::format("{}", header.n_tokens));
  line("model", fmt::format("{} ({}, {} layers of {} KV heads, head_dim {}, rope_theta {})",
                            header.model_id, header.model_type, header.n_layers, header.n_kv_heads,
                            header.head_dim, header.rope_theta));
  line("caches", fmt::format("keys {}, values {}", name_of(header.k_type), name_of(header.v_type)));
  line("heads", describe_roles(read_saved_roles(header)));
  line("saved", fmt::format("{} by {}, in blocks of {}", header.created_utc, header.producer,
                            header.block_size));
  line("size", format_byte_size(header.n_bytes()));
  for (const WrittenFile& part : header.parts)
    line("part", fmt::format("{} ({})", part.name, format_byte_size(part.n_bytes)));
}

int run_info(const KvFlags& flags) {
  int status = kExitDone;
  for (const SavedHeader& header : headers_of(masters_of(flags.paths, EmptyFolders::kAreRefused))) {
    print_info(header);
    if (lacks_parts(header)) status = kExitBadInput;
  }
  return status;
}

// Everything is read: checksums of whole files, then every row with its own.
void verify(const fs::path& master) {
  const SavedHeader header = read_saved_header(master);
  for (const WrittenFile& part : header.parts) check_part(header, part);
  if (sha256_of_tokens(read_saved_tokens(header)) != header.tokens_sha256) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: /tokens: not what tokens_sha256 says", master.string()));
  }
  std::int64_t n_rows = 0;
  for (const LayerId layer : IdRange<LayerId>(header.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(header.n_kv_heads))
      n_rows += static_cast<std::int64_t>(read_saved_head(header, layer, kv_head).rows.size());
  }
  fmt::print("{}: whole: {} tokens, {} heads, {} rows, {} parts, {}\n", master.string(),
             header.n_tokens, header.n_layers * header.n_kv_heads, n_rows, header.parts.size(),
             format_byte_size(header.n_bytes()));
}

int run_verify(const KvFlags& flags) {
  int status = kExitDone;
  for (const fs::path& master : masters_of(flags.paths, EmptyFolders::kAreRefused)) {
    try {
      verify(master);
    } catch (const Error& error) {
      fmt::print("{}: NOT whole: {}\n", master.string(), error.what());
      status = kExitBadInput;
    }
  }
  return status;
}

int run_diff(const KvFlags& flags) {
  const std::vector<SavedHeader> two = headers_of(flags.paths);
  for (const SavedHeader& header : two) {
    for (const WrittenFile& part : header.parts) check_part(header, part);
  }
  require(two.size() == 2, "two files NAME.h5 are compared, and not a part of one with it");
  const std::vector<std::string> lines = compare_saved(two[0], two[1]);
  for (const std::string& line : lines) fmt::print("{}\n", line);
  if (lines.empty()) fmt::print("no difference: the same tokens, settings and bits\n");
  return lines.empty() ? kExitDone : kExitDifferent;
}

struct ConvertFlags {
  fs::path from;
  fs::path to;
  JobConfig types;
  std::optional<std::int64_t> block_size;
};

Command add_convert(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "Write it again: of other types, in one part");
  const auto flags = std::make_shared<ConvertFlags>();
  command->add_option("file", flags->from, "File NAME.h5")->required();
  command->add_option("--to", flags->to, "Folder for the new files")
      ->type_name("FOLDER")
      ->required();
  add_cache_type_flags(*command, flags->types, "Cache types", "the file has them");
  command
      ->add_option("--block-size", flags->block_size,
                   std::string(kBlockTokensHelp) + " (default: as the file has them)")
      ->transform(with_letters())
      ->check(kBlockTokens);
  name_environment_variables(*command);
  return {command, [flags] {
            const SavedHeader header = headers_of({flags->from}).front();
            const fs::path master = convert_saved(header, flags->to,
                                                  {.k_type = flags->types.k_type,
                                                   .v_type = flags->types.v_type,
                                                   .block_size = flags->block_size});
            fmt::print("{}\n", master.string());
            return kExitDone;
          }};
}

struct MergeFlags {
  std::vector<fs::path> from;
  fs::path to;
};

Command add_merge(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("merge", "Make one of what several runs have of a document");
  const auto flags = std::make_shared<MergeFlags>();
  command
      ->add_option("files", flags->from,
                   "Files NAME.h5 of one document; shorter ones may hold its beginning")
      ->required();
  command->add_option("--to", flags->to, "Folder for the new files")
      ->type_name("FOLDER")
      ->required();
  name_environment_variables(*command);
  command->footer(
      R"(Rows that several files have come from the longest document's, in the order
given. Damaged and lost parts are named and left out; what no file has is
refused by head and positions.

)" + exit_status_help());
  return {command, [flags] {
            const fs::path master = merge_saved_files(
                headers_of(flags->from), flags->to,
                [](const std::string& note) { print_stderr("longhaul: left out: {}\n", note); });
            fmt::print("{}\n", master.string());
            return kExitDone;
          }};
}

Command add(CLI::App& app, const char* name, const char* help, int n_paths,
            int (*run)(const KvFlags&)) {
  CLI::App* command = app.add_subcommand(name, help);
  const auto flags = std::make_shared<KvFlags>();
  CLI::Option* paths =
      command
          ->add_option("paths", flags->paths,
                       n_paths == 2 ? "Two files NAME.h5" : "Files NAME.h5, or folders of them")
          ->required();
  if (n_paths > 0) paths->expected(n_paths);
  name_environment_variables(*command);
  return {command, [flags, run] { return run(*flags); }};
}

}  // namespace

Command add_kv_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "kv", "Saved KV caches (--save-kv): list, check, compare, convert, merge them");
  app->require_subcommand(1);
  app->footer(exit_status_help());  // which the commands below take over
  const std::vector<Command> commands = {
      add(*app, "list", "One line for each saved document", -1, run_list),
      add(*app, "info", "What a saved document was made with, and its files", -1, run_info),
      add(*app, "verify", "Compare all checksums; status 5 if any is wrong", -1, run_verify),
      add(*app, "diff", "What differs, by head; status 1 if anything does", 2, run_diff),
      add_convert(*app),
      add_merge(*app)};
  const std::string of_diff = "diff also ends with 1 where anything differs.\n\n";
  app->get_subcommand("diff")->footer(of_diff + exit_status_help());
  app->footer(of_diff + exit_status_help());
  return {app, [commands]() -> int {
            for (const Command& command : commands) {
              if (command.app->parsed()) return command.run();
            }
            return kExitInternal;
          }};
}

}  // namespace longhaul
