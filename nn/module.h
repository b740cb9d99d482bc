// Module: a function with parameters, the building block of models; a tree of them. Modules own
// their parameters and children, name both as PyTorch does, and leave their path in errors,
// profiles and graphs: "MLP / layers.2 / Linear(512 -> 256)".
//
//   struct Net : nn::Module {
//     std::shared_ptr<nn::Linear> fc1 = add("fc1", nn::Linear(784, 10));
//     Tensor forward(const Tensor& x) override { return (*fc1)(x); }
//     std::string describe() const override { return "Net"; }
//   };
//
// Note [A parameter that nobody registered]
//   C++ does not tell a class which members it has. So `Tensor w` or `nn::Linear fc1` as a plain
//   member of a Module is in no list: no optimizer would step it, no file would hold it, to() and
//   train() would not reach it, and training would go on as if nothing were wrong. That is found
//   where it does harm, in a forward pass that records gradients, and is an error there:
//     a tensor   that requires grad, is used inside a module's forward, and is known to nobody: no
//                module registered it, no optimizer steps it, no caller of a module passed it in;
//     a module   that is called inside another's forward, has something to lose (parameters that
//                require grad, a training flag), is nobody's child, and whose parameters nobody
//                asked for.
//   So a module that is used inside another but trained on its own (a critic) stays allowed, as do
//   a frozen one, a tensor that is input, and all of it under NoGrad.
//
// Convert a module (to, enable_bf16) before its parameters are given to an optimizer: to(DType)
// replaces them, and an optimizer's memory stays on the device where the parameters were. Not
// thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/training_flag.h"
#include "nn/init.h"
#include "nn/named_tensor.h"
#include "profiler/names.h"

namespace sinter::nn {

class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // What the module computes. Call the module, not this: the call keeps the path for errors and
  // profiles.
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x);
  // One line: "Linear(784 -> 256)".
  virtual std::string describe() const = 0;

  // The module's own parameters first, then those of its children, in the order in which they were
  // registered. Names are state-dict keys. A tied parameter (registered by several modules, or in a
  // module that stands in several places) is listed once, under its first name.
  NamedTensors named_parameters() const;
  // Parameters and buffers, the tied ones under every name; the tensors themselves, not copies.
  NamedTensors state_dict() const;
  std::vector<Tensor> parameters() const;
  // Calls f for each of them, in that order, without allocating; for a tied one as often as it has
  // names.
  void visit_parameters(const std::function<void(const Tensor&)>& f) const;
  int64_t num_parameters() const;
  // This module and all below it, parents first, each once.
  std::vector<Module*> modules();

  // Training or evaluation: Dropout asks. A new module trains.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void zero_grad();
  // Draws all parameters anew: parameter k of the tree is a pure function of (seed, k).
  void init_parameters(uint64_t seed);
  // Parameters and buffers in another floating type.
  void to(DType dtype);
  // Parameters, buffers, gradients and bf16 copies on another device, in place: the tensors stay
  // the same.
  void to(Device device);
  // Activations and copies of the weights in bf16; parameters, biases and the output of the last
  // product stay f32.
  void enable_bf16();

  // The tree as text, a line per module, `depth` levels to the right.
  std::string str(int depth = 0) const;
  // The tree as a table: output shape, parameters and forward FLOPs of each module for an input of
  // `input_shape`, whose first size is the batch. It runs the model once in evaluation mode on a
  // meta tensor, so nothing is computed. Its type is `input`, or that which the first module with
  // parameters reads.
  std::string summary(const Shape& input_shape, std::optional<DType> input = {});

 protected:
  Module() = default;
  Module(Module&&) = default;

  // Registration. A parameter requires grad. A child with `own_keys` false adds no "name." to the
  // keys of what it holds.
  void add_parameter(const std::string& name, Tensor value);
  void add_buffer(const std::string& name, Tensor value);
  template <class M>
  std::shared_ptr<M> add(const std::string& name, std::shared_ptr<M> child, bool own_keys = true) {
    add_child(name, child, own_keys);
    return child;
  }
  template <std::derived_from<Module> M>
  std::shared_ptr<M> add(const std::string& name, M child, bool own_keys = true) {
    return add(name, std::make_shared<M>(std::move(child)), own_keys);
  }
  // Parameter or buffer i, counted in the order of registration; child i. Throws usage if there is
  // none.
  const Tensor& tensor(size_t i) const {
    check_index("tensor", i, tensors_.size());
    return tensors_[i].tensor;
  }
  Module& child(size_t i) const {
    check_index("child", i, children_.size());
    return *children_[i].module;
  }
  size_t num_children() const { return children_.size(); }
  size_t num_tensors() const { return tensors_.size(); }

  // Fills the module's own parameters.
  virtual void init_own(init::Stream&) {}
  // Makes the module's own bf16 copies and lets its result be `out`; false: it has no product.
  virtual bool enable_bf16_own(Converter&, DType) { return false; }
  // Does its result depend on is_training()?
  virtual bool depends_on_training() const { return false; }
  // The type of what it reads, where that is not its parameters': tokens.
  virtual std::optional<DType> own_input() const { return {}; }
  // A container has no label inside another module: its children carry its name, as in "layers.2".
  virtual bool is_container() const { return false; }

 private:
  friend class EvalMode;
  struct Entry {
    std::string name;
    Tensor tensor;
    bool is_parameter;
  };
  struct Child {
    std::string name;
    std::shared_ptr<Module> module;
    bool own_keys;
  };
  void check_registered() const;
  static void check_index(const char* what, size_t i, size_t count) {
    SINTER_CHECK(i < count, usage,
        sinter::str("module: no such ", what, ": ", i, "; it has ", count, ", counted from 0"));
  }
  bool is_stateless() const;
  void add_child(const std::string& name, std::shared_ptr<Module> child, bool own_keys);
  void set_path(const std::string& path, const std::string& key);
  const std::string& label();
  const char* path_below(const char* parent);
  void collect_modules(std::vector<Module*>& out);
  void collect_into(NamedTensors& out, const std::string& prefix, bool buffers) const;

  std::deque<Entry> tensors_;
  std::vector<Child> children_;
  std::string path_, key_, label_;  // path_: in the nearest parent with a label; key_: before own
                                    // keys; label_: made at the first call
  profiler::StaticName scope_name_;
  // What path_below() found last: its parent, and the path.
  const char *parent_path_ = nullptr, *full_path_ = "";
  TrainingFlag training_;
  bool is_child_ = false;
  mutable bool asked_ = false;  // for its parameters
};

// For capture::StepOptions::parameters. REQUIRES: the module outlives the step.
inline std::function<void(const std::function<void(const Tensor&)>&)> parameter_visitor(
    const Module& module) {
  return [&module](const std::function<void(const Tensor&)>& f) { module.visit_parameters(f); };
}

// Evaluation for a scope; then every module is as it was. REQUIRES: the tree stays as it is.
class EvalMode {
 public:
  explicit EvalMode(Module& module);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> was_training_;
};

}  // namespace sinter::nn
