#include "model/tokenizer/decoder.h"

#include <fmt/format.h>

#include <optional>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/unsupported.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

const std::string& one_character(const JsonField& field) {
  const std::string& text = field.as_string();
  if (text.empty() || char_length(text[0]) != text.size()) field.fail("expected one character");
  return text;
}

}  // namespace

Decoder Decoder::from_json(const JsonField& field) {
  Decoder decoder;
  decoder.stages_.clear();
  decoder.add(field);
  return decoder;
}

void Decoder::add(const JsonField& field) {
  const JsonField type_field = field.at("type");
  const std::string& type = type_field.as_string();
  bool fused = false;
  for (const DecoderStage& stage : stages_)
    fused |=
        std::holds_alternative<FuseStage>(stage) || std::holds_alternative<ByteLevelStage>(stage);
  const auto refuse_after_fuse = [&] {
    if (fused) refuse(type_field, fmt::format("{} after Fuse or ByteLevel is not supported", type));
  };
  if (type == "Sequence") {
    const JsonField list = field.at("decoders");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (type == "Replace") {
    Pattern pattern = Pattern::from_json(field.at("pattern"));
    if (!pattern.is_literal()) refuse_after_fuse();
    stages_.emplace_back(ReplaceStage{std::move(pattern), field.at("content").as_string()});
  } else if (type == "Metaspace") {
    refuse_after_fuse();
    const auto scheme = field.find("prepend_scheme");
    const bool prefixed =
        scheme ? scheme->as_string() != "never" : field.bool_or("add_prefix_space", true);
    stages_.emplace_back(
        MetaspaceStage{Pattern::literal(one_character(field.at("replacement"))), prefixed});
  } else if (type == "Strip") {
    const auto count = [&](std::string_view name) {
      return static_cast<std::size_t>(field.at(name).as_integer(0, INT32_MAX));
    };
    stages_.emplace_back(
        StripStage{one_character(field.at("content")), count("start"), count("stop")});
  } else if (type == "ByteFallback") {
    refuse_after_fuse();
    stages_.emplace_back(ByteFallbackStage{});
  } else if (type == "Fuse") {
    stages_.emplace_back(FuseStage{});
  } else if (type == "ByteLevel") {
    refuse_after_fuse();
    stages_.emplace_back(ByteLevelStage{});
  } else {
    refuse(type_field, fmt::format("the decoder \"{}\" is not supported", type));
  }
}

std::string Decoder::bytes_of_token(std::string_view token) const {
  std::string text(token);
  for (const DecoderStage& stage : stages_) {
    if (const auto* replace = std::get_if<ReplaceStage>(&stage)) {
      text = replace_all(replace->pattern, text, replace->content);
    } else if (const auto* metaspace = std::get_if<MetaspaceStage>(&stage)) {
      text = replace_all(metaspace->replacement, text, " ");
    } else if (std::holds_alternative<ByteFallbackStage>(stage)) {
      if (const auto byte = byte_token(text)) return std::string(1, *byte);
    } else if (std::holds_alternative<ByteLevelStage>(stage)) {
      if (auto bytes = bytes_of(text)) text = std::move(*bytes);
    }
  }
  return text;
}

DecoderRun::DecoderRun(const Decoder& decoder) : decoder_(&decoder) {
  bool fused = false;
  for (const DecoderStage& stage : decoder.stages()) {
    states_.emplace_back().fused = fused;
    fused |=
        std::holds_alternative<FuseStage>(stage) || std::holds_alternative<ByteLevelStage>(stage);
  }
}

void DecoderRun::feed(std::size_t at, std::string_view token, std::string& out) {
  if (at == states_.size()) {
    out.append(token);
    return;
  }
  std::visit([&](const auto& stage) { run(stage, at, token, out); }, decoder_->stages()[at]);
  states_[at].started = true;
}

void DecoderRun::finish(std::string& out) {
  for (std::size_t at = 0; at < states_.size(); ++at) {
    State& state = states_[at];
    const DecoderStage& stage = decoder_->stages()[at];
    if (std::holds_alternative<ByteFallbackStage>(stage)) {
      flush_bytes(at, out);
    } else if (std::holds_alternative<ByteLevelStage>(stage)) {
      if (!state.pending.empty()) feed(at + 1, kReplacement, out);
    } else if (std::holds_alternative<ReplaceStage>(stage)) {
      if (!state.pending.empty()) feed(at + 1, state.pending, out);
    }  // what StripStage holds back is what it strips
    state.pending.clear();
  }
}

void DecoderRun::run(const ReplaceStage& stage, std::size_t at, std::string_view token,
                     std::string& out) {
  State& state = states_[at];
  if (!state.fused) {
    feed(at + 1, replace_all(stage.pattern, token, stage.content), out);
    return;
  }
  // A match may begin in this part and end in a later one: keep back what could begin one.
  const std::string& what = stage.pattern.text();
  state.pending.append(token);
  std::string certain;
  std::size_t done = 0;
  while (state.pending.size() - done >= what.size()) {
    if (state.pending.compare(done, what.size(), what) == 0) {
      certain += stage.content;
      done += what.size();
    } else {
      certain += state.pending[done++];
    }
  }
  state.pending.erase(0, done);
  feed(at + 1, certain, out);
}

void DecoderRun::run(const MetaspaceStage& stage, std::size_t at, std::string_view token,
                     std::string& out) {
  const bool drops = stage.prefixed && !states_[at].started;
  feed(at + 1, replace_all(stage.replacement, token, drops ? "" : " "), out);
}

void DecoderRun::run(const StripStage& stage, std::size_t at, std::string_view token,
                     std::string& out) {
  if (states_[at].fused) return strip_fused(stage, at, token, out);
  for (std::size_t i = 0; i < stage.start && token.starts_with(stage.content); ++i)
    token.remove_prefix(stage.content.size());
  for (std::size_t i = 0; i < stage.stop && token.ends_with(stage.content); ++i)
    token.remove_suffix(stage.content.size());
  feed(at + 1, token, out);
}

void DecoderRun::strip_fused(const StripStage& stage, std::size_t at, std::string_view text,
                             std::string& out) {
  State& state = states_[at];
  while (state.n_cut < stage.start && text.starts_with(stage.content)) {
    text.remove_prefix(stage.content.size());
    ++state.n_cut;
  }
  if (text.empty()) return;
  state.n_cut = stage.start;  // what follows is not the front any more
  std::string all = std::move(state.pending) + std::string(text);
  std::size_t kept = all.size();
  for (std::size_t i = 0; i < stage.stop; ++i) {
    if (!std::string_view(all).substr(0, kept).ends_with(stage.content)) break;
    kept -= stage.content.size();
  }
  state.pending = all.substr(kept);
  feed(at + 1, std::string_view(all).substr(0, kept), out);
}

void DecoderRun::run(const ByteFallbackStage&, std::size_t at, std::string_view token,
                     std::string& out) {
  if (const auto byte = byte_token(token)) {
    states_[at].pending += *byte;  // whether a run is valid shows when it ends
    return;
  }
  flush_bytes(at, out);
  feed(at + 1, token, out);
}

void DecoderRun::flush_bytes(std::size_t at, std::string& out) {
  std::string& pending = states_[at].pending;
  if (pending.empty()) return;
  if (valid_prefix(pending) == pending.size()) {
    feed(at + 1, pending, out);
  } else {
    for (std::size_t i = 0; i < pending.size(); ++i) feed(at + 1, kReplacement, out);
  }
  pending.clear();
}

void DecoderRun::run(const FuseStage&, std::size_t at, std::string_view token, std::string& out) {
  feed(at + 1, token, out);
}

void DecoderRun::run(const ByteLevelStage&, std::size_t at, std::string_view token,
                     std::string& out) {
  State& state = states_[at];
  if (const auto bytes = bytes_of(token)) {
    state.pending += *bytes;
  } else {
    state.pending += token;
  }
  std::string certain;
  settle(state.pending, certain);
  feed(at + 1, certain, out);
}

void DecoderRun::run(const JoinStage&, std::size_t at, std::string_view token, std::string& out) {
  if (states_[at].started) feed(at + 1, " ", out);
  feed(at + 1, token, out);
}

}  // namespace longhaul::tokenization
