// What `nimble campaigns` tells of campaigns, of their workloads and of who measures them.
#pragma once

#include <ostream>
#include <vector>

#include "tuner/service/status.h"
#include "vm/arguments/table.h"

namespace nimble::tools {

Table::Json json_of(const tuner::CampaignStatus& s);
Table campaign_table(const std::vector<tuner::CampaignStatus>& campaigns);
Table worker_table(const tuner::FleetStatus& fleet);

// For people: its workloads, machines and open requests.
void print_campaign(std::ostream& out, const tuner::CampaignStatus& s);

}  // namespace nimble::tools
