// What a report says about the machine.
#pragma once
#include <string>
#include <string_view>

namespace longhaul::bench {

// The first "model name" of the text of /proc/cpuinfo; empty when it names none.
std::string cpu_name_in(std::string_view cpuinfo);
std::string cpu_name();  // of this machine; "unknown CPU" when the system does not say

}  // namespace longhaul::bench
