// Whether a model's files hold what they held when they were published: their SHA-256, all of every
// file. One flipped bit in twenty changes answers and breaks no format.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/job/job_config.h"
#include "tools/job/model_source.h"

namespace longhaul {

struct FileChecksum {
  std::string name;    // within the model's folder
  std::string sha256;  // 64 hexadecimal digits
  bool operator==(const FileChecksum&) const = default;
};

// Of a model's .safetensors files, their index, its configurations, its tokenizer and its chat
// template, by name.
// Reads them all. Throws kIo and kInvalidArgument for files that cannot be read.
std::vector<FileChecksum> checksums_of(const std::filesystem::path& model_folder);

// In the form of sha256sum: "<digits>  <name>" on a line each.
std::string to_text(const std::vector<FileChecksum>& checksums);
// Throws kCorruptData naming source and line, also for a file that is listed twice. Pure.
std::vector<FileChecksum> parse_checksums(std::string_view text, std::string_view source);

// What the hub said of a downloaded file: the blob that a snapshot's link leads to is named by its
// SHA-256, and beside files that were downloaded into a folder of their own
// .cache/huggingface/download/NAME.metadata has it. nullopt where neither says it.
std::optional<std::string> hub_sha256(const std::filesystem::path& file);

// Compares all of the model's weight files (and every other file that is named) with `list`, or
// where that is empty with longhaul.sha256 in the model's folder, or with what the hub said. Throws
// kCorruptData naming the files that differ, kInvalidArgument where a weight file's checksum is not
// known.
void verify_weights(const std::filesystem::path& model_folder, const std::filesystem::path& list);

// The same where the config asks for it and the model is a folder; says so on stderr, unless it is
// quiet.
void verify_if_asked(const JobConfig& config, const ModelSource* model);

}  // namespace longhaul
