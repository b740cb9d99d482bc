#include "nn/module.h"

#include <algorithm>
#include <map>

#include "autograd/autograd.h"
#include "core/context.h"
#include "core/text_grid.h"
#include "ops/op.h"
#include "profiler/phase.h"

namespace sinter::nn {

Tensor Module::operator()(const Tensor& x) {
  if (!is_child_) check_registered();
  const std::string& name = label();
  if (name.empty()) return forward(x);
  Context& context = Context::current();
  std::optional<profiler::PhaseScope> phase;
  if (context.phase == Phase::none) phase.emplace(Phase::forward);
  const ModuleScope here(path_below(context.module), x.id());
  const profiler::Scope scope(scope_name_, profiler::ScopeKind::module);
  try {
    return forward(x);
  } catch (Error& error) {
    error.set_path(context.module);
    throw;
  }
}

// Note [A parameter that nobody registered]
void Module::check_registered() const {
  const Context& context = Context::current();
  if (!*context.module || !context.grad_enabled || asked_ || is_stateless()) return;
  throw Error(Error::Kind::usage,
      sinter::str("module: a module that was never registered: ", describe(),
          " is called in the forward of ", context.module,
          ", and no module has it as a child; its parameters and "
          "training flag would be out of reach"),
      "std::shared_ptr<..> child = add(\"NAME\", std::make_shared<..>(..)) in place of a plain "
      "member");
}

bool Module::is_stateless() const {
  const auto trains = [](const Entry& entry) { return entry.tensor.requires_grad(); };
  return !depends_on_training() && std::ranges::none_of(tensors_, trains) &&
         std::ranges::all_of(
             children_, [](const Child& child) { return child.module->is_stateless(); });
}

const std::string& Module::label() {
  if (label_.empty() && !(is_container() && !path_.empty())) {
    label_ = path_.empty() ? describe() : path_ + " / " + describe();
    scope_name_ = profiler::intern(label_);
  }
  return label_;
}

// Interned: ops of the backward pass keep it, and the module may be gone by then.
const char* Module::path_below(const char* parent) {
  if (parent == parent_path_) return full_path_;
  parent_path_ = parent;
  full_path_ = profiler::intern(*parent ? sinter::str(parent, " / ", label_) : label_).c_str();
  return full_path_;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child, bool own_keys) {
  SINTER_CHECK(child, usage, sinter::str("module: no module given for the child ", name));
  for (const Child& other : children_)
    SINTER_CHECK(other.name != name, usage,
        sinter::str("module: two children are called ", name, " in ", describe()));
  for (const Module* m : child->modules())
    SINTER_CHECK(
        m != this, usage, sinter::str("module: its child ", name, " may not hold ", describe()));
  child->is_child_ = true;
  children_.push_back({name, std::move(child), own_keys});
  set_path(path_, key_);
}

void Module::set_path(const std::string& path, const std::string& key) {
  path_ = path;
  key_ = key;
  label_.clear();
  parent_path_ = nullptr;
  // From the last to the first: what is tied keeps the first of its names.
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    child->module->set_path(
        is_container() && !path.empty() ? path + "." + child->name : child->name,
        child->own_keys ? key + child->name + "." : key);
  }
  for (auto entry = tensors_.rbegin(); entry != tensors_.rend(); ++entry)
    entry->tensor.autograd().name = key + entry->name;
}

void Module::add_parameter(const std::string& name, Tensor value) {
  value.set_requires_grad(true).autograd().known = true;
  tensors_.push_back({name, std::move(value), true});
  set_path(path_, key_);
}

void Module::add_buffer(const std::string& name, Tensor value) {
  value.autograd().name = key_ + name;
  tensors_.push_back({name, std::move(value), false});
}

NamedTensors Module::named_parameters() const {
  asked_ = true;
  NamedTensors all, out;
  collect_into(all, "", false);
  for (NamedTensor& item : all) {
    const auto tied = [&item](
                          const NamedTensor& before) { return before.tensor.is_same(item.tensor); };
    if (std::ranges::none_of(out, tied)) out.push_back(std::move(item));
  }
  return out;
}

NamedTensors Module::state_dict() const {
  asked_ = true;
  NamedTensors out;
  collect_into(out, "", true);
  return out;
}

void Module::visit_parameters(const std::function<void(const Tensor&)>& f) const {
  for (const Entry& entry : tensors_) {
    if (entry.is_parameter) f(entry.tensor);
  }
  for (const Child& child : children_) child.module->visit_parameters(f);
}

void Module::collect_into(NamedTensors& out, const std::string& prefix, bool buffers) const {
  for (const Entry& entry : tensors_) {
    if (entry.is_parameter || buffers) out.push_back({prefix + entry.name, entry.tensor});
  }
  for (const Child& child : children_)
    child.module->collect_into(out, child.own_keys ? prefix + child.name + "." : prefix, buffers);
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> out;
  for (NamedTensor& item : named_parameters()) out.push_back(std::move(item.tensor));
  return out;
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const Tensor& t : parameters()) n += t.numel();
  return n;
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> out;
  collect_modules(out);
  return out;
}

void Module::collect_modules(std::vector<Module*>& out) {
  if (std::ranges::find(out, this) != out.end()) return;
  out.push_back(this);
  for (const Child& child : children_) child.module->collect_modules(out);
}

void Module::train(bool on) {
  for (Module* module : modules()) module->training_.set(on);
}

EvalMode::EvalMode(Module& module) {
  for (Module* m : module.modules()) was_training_.emplace_back(m, m->is_training());
  module.eval();
}
EvalMode::~EvalMode() {
  for (const auto& [module, training] : was_training_) module->training_.set(training);
}

void Module::zero_grad() {
  for (const Tensor& t : parameters()) {
    t.autograd().grad = {};
    t.autograd().grad_taken_by = nullptr;
  }
}

void Module::init_parameters(uint64_t seed) {
  init::Stream stream{seed};
  for (Module* module : modules()) module->init_own(stream);
}

void Module::to(DType dtype) {
  SINTER_CHECK(is_float(dtype), dtype,
      sinter::str(
          "to: a floating type is wanted: found ", name_of(dtype), "; allowed f32, f64, bf16"));
  Converter convert;
  for (Module* module : modules()) {
    for (Entry& entry : module->tensors_) {
      if (!is_float(entry.tensor.dtype()) || entry.tensor.dtype() == dtype) continue;
      Tensor converted = convert(entry.tensor, dtype);
      converted.set_requires_grad(entry.is_parameter).autograd().known = true;
      converted.autograd().name = entry.tensor.autograd().name;
      entry.tensor = converted;
    }
  }
}

void Module::to(Device device) {
  for (const auto& [_, tensor] : state_dict()) {
    tensor.storage()->move_to(device);
    const AutogradMeta& meta = tensor.autograd();
    if (meta.grad.defined()) meta.grad.storage()->move_to(device);
    if (meta.bf16_copy.defined()) meta.bf16_copy.storage()->move_to(device);
  }
}

void Module::enable_bf16() {
  Converter convert;
  Module* last = nullptr;
  for (Module* module : modules()) {
    if (module->enable_bf16_own(convert, DType::bf16)) last = module;
  }
  if (last) last->enable_bf16_own(convert, DType::f32);
}

std::string Module::str(int depth) const {
  std::string out = describe();
  const std::string margin(size_t(2 * depth), ' ');
  for (const Child& child : children_) {
    out += sinter::str(&child == &children_[0] ? "(\n" : "", margin, "  (", child.name,
        "): ", child.module->str(depth + 1));
  }
  return out + (children_.empty() ? "\n" : margin + ")\n");
}

namespace {

// Sums what each module's ops cost, by its path.
struct CostRecorder : Recorder {
  struct Row {
    std::string out;
    int64_t flops = 0;
  };
  std::map<std::string, Row> rows;

  CostRecorder() { Context::current().recorders.push_back(this); }
  ~CostRecorder() override { std::erase(Context::current().recorders, this); }
  void record(const Call& call) override {
    Row& row = rows[Context::current().module];
    if (!call.out.empty()) row.out = call.out[0].shape().str();
    if (call.op.cost && !call.op.view)
      row.flops += call.op.cost(call.in, call.out, call.attrs).flops;
  }
};

}  // namespace

std::string Module::summary(const Shape& input_shape, std::optional<DType> input) {
  const std::vector<Module*> all = modules();
  const std::vector<Tensor> params = parameters();
  CostRecorder recorder;
  {
    const NoGrad no_grad;
    const EvalMode evaluation(*this);
    const Tensor like = params.empty() ? Tensor::meta({}) : params[0];
    const auto first =
        std::ranges::find_if(all, [](const Module* m) { return !m->tensors_.empty(); });
    if (!input && first != all.end()) input = (*first)->own_input();
    (*this)(Tensor::meta(input_shape, input.value_or(like.dtype()), like.device()));
  }
  TextGrid grid({"<module", "<output", "parameters", "FLOPs"});
  int64_t total_flops = 0;
  for (Module* module : all) {
    const auto ran = recorder.rows.find(module->full_path_);
    int64_t own = 0;
    for (const Entry& entry : module->tensors_)
      own += entry.is_parameter ? entry.tensor.numel() : 0;
    if (ran == recorder.rows.end() && own == 0) continue;
    const auto [out, flops] = ran == recorder.rows.end() ? CostRecorder::Row{"-"} : ran->second;
    total_flops += flops;
    grid.add({module->label(), out, sinter::str(own), sinter::str(flops)});
  }
  grid.add({"total", "", sinter::str(num_parameters()), sinter::str(total_flops)});
  return grid.text();
}

}  // namespace sinter::nn
