// What one types at mnist, see cli/words.h.
#include "examples/mnist/flags.h"

namespace sinter::mnist {
namespace {

constexpr std::string_view kNoWorkers =
    "none is needed: the device draws its batches, or a thread makes them beside the step";
constexpr Instead kInstead[] = {  // That went.
    {"profile", "csv", "--profile=json has all of it: mnist diff and jq read it"},
    {"augment", "elastic", "--augment shift=2,rotate=10,scale=10"},
    {"csv", "", "mnist bench --json has all of it"},
    {"html", "", "mnist eval --html; --profile=html of train and compare; inspect writes a page"},
    {"budget", "", "fewer sizes take less time; after Ctrl-C those measured are printed"},
    // Of scripts for PyTorch.
    {"compile", "", "mnist train --mode fused"}, {"amp", "", "mnist train --dtype bf16"},
    {"fp16", "", "mnist train --dtype bf16"}, {"bf16", "", "mnist train --dtype bf16"},
    {"gamma", "", "mnist train --schedule step, cosine or onecycle lowers the rate"},
    {"save-model", "", "a run folder holds it, mnist train --out DIR: model.safetensors"},
    {"workers", "", kNoWorkers}, {"num-workers", "", kNoWorkers}};

constexpr FlagWords kFlags[] = {{"DataOptions.what = ", "--data "},
    {"DataOptions.classes = ", "--classes "},
    {"to_json() of the graph of a prediction writes one that fits",
        "mnist predict --dump-graph F writes one that fits"},
    {"prepare_digit scales and centres it", "leave out --raw to scale and centre it"},
    {"scaled_image scales it", "leave out --raw to scale it"}};

}  // namespace

ProgramWords words() { return {kInstead, kFlags}; }

}  // namespace sinter::mnist
