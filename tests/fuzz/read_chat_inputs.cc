// The reader of chat templates, with a conversation that is rendered (read_inputs.h).
#include "model/chat/chat_template.h"
#include "tests/fuzz/read_inputs.h"

namespace longhaul::test {

// Reads the template and renders a conversation with it, within limits that keep a fuzzer busy.
void read_chat_template(std::string_view bytes) {
  static const Json variables = parse_json(
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<s> Hi"},
          {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Größe?"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})",
      "variables");
  const chat::ChatTemplate read = chat::ChatTemplate::parse(bytes, kInputName);
  read.takes_content_parts();
  const chat::RenderRequest request{
      .variables = &variables, .bos_token = "<s>", .eos_token = "</s>"};
  read.render(request, {.max_steps = 50'000, .max_text_bytes = 1 << 16, .max_depth = 300});
}

}  // namespace longhaul::test
