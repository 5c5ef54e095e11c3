// What it means how fast hosts reach each other, and whether their clocks agree.
#pragma once
#include <string>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/job/link_probe.h"

namespace longhaul {

// Pure. `hosts`: of each rank.
std::vector<Finding> judge_links(const std::vector<LinkFact>& links,
                                 const std::vector<std::string>& hosts);

}  // namespace longhaul
