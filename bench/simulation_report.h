// What a simulated trace comes to: as JSON, as a few lines of text, and as a page with plots.
// Owner: bench. Pure functions but for the files, one thread. Must not know how it was simulated.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/trace_simulation.h"

namespace inferd::bench {

// Sums that hold where every request ended: requests = finished + refused; and for those finished
//   prompt + generated - finished = found + computed - recomputed
// (an answer's last token is not computed, and what was computed or found once is counted once).
nlohmann::ordered_json report_json(const Trace& trace, const SimulationOptions& options,
                                   const SimulationResult& result);

std::string report_text(const nlohmann::ordered_json& report);

// Writes index.html, whose plots are part of it, report.json, and each plot as a file of its own.
// The folder is made if need be. `source`: where the trace came from, for the title. Errors: kIo.
Result<void> write_report_page(const std::string& folder, std::string_view source,
                               const nlohmann::ordered_json& report,
                               const SimulationOptions& options, const SimulationResult& result);

}  // namespace inferd::bench
