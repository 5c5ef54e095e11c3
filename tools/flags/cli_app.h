// CLI11's classes by name only: its header takes a compiler ten seconds, and only sources that
// define flags need it.
#pragma once

namespace CLI {
class App;
class Option;
}  // namespace CLI
