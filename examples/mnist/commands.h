// The commands of `mnist`, one file each. The functions add the command to the program; what it
// needs lives as long as the program. git_id: of the source, or "".
#pragma once

#include "examples/cli/app.h"

namespace sinter::mnist {

void add_train(cli::App& app);
void add_speedrun(cli::App& app, const char* git_id);
void add_eval(cli::App& app);
void add_predict(cli::App& app);
void add_compare(cli::App& app);
void add_inspect(cli::App& app);
void add_bench(cli::App& app);
void add_diff(cli::App& app);
void add_calibrate(cli::App& app);
void add_explain(cli::App& app);
void add_data(cli::App& app);
void add_doctor(cli::App& app, const char* git_id);

}  // namespace sinter::mnist
