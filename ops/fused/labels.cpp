// Note [Names are labels] (fused.h): the programs that have a name, and what the ops that run them
// are called. A name is looked up where an op is told of only: when a rule makes one, and while a
// profile is made.
#include "ops/fused/product_chain.h"

namespace sinter {

using profiler::StaticName;

namespace {

template <class A> struct Named {
  StaticName name;
  A attrs;
};

// Others than these are no gates of the models that we know.
bool is_gate(Act act) { return act_saves(act) == pointwise::Saves::inputs; }

const std::vector<Named<ProductChainAttrs>>& named_products() {
  static const auto all = [] {
    std::vector<Named<ProductChainAttrs>> list;
    const auto add = [&](StaticName name, ProductKind product, const ChainProgram& program,
                         bool normed = false, bool merged = false) {
      list.push_back({name, {.product = product, .normed = normed, .merged = merged}});
      list.back().attrs.program = program;
      // The eps is the step's; this one is for tests, which draw a variance above -4.
      if (normed) list.back().attrs.eps = 4;
    };
    for (const Act act : kActivations) {
      for (const bool two : {false, true}) {  // keep the operand; halves of one result
        add("linear_act", ProductKind::linear, act_program(act, two));
        add("conv_act", ProductKind::conv2d, act_program(act, two));
        if (is_gate(act))
          add("gated_linear_backward", ProductKind::matmul, gate_grad_program(act), false, two);
      }
      add("input_grad_act", ProductKind::matmul, act_grad_program(act));
      add("conv_norm_act", ProductKind::conv2d, act_program(act), true);
    }
    add("conv_norm_act", ProductKind::conv2d, act_program(Act::none), true);
    return list;
  }();
  return all;
}

const std::vector<Named<ChainAttrs>>& named_chains() {
  static const auto all = [] {
    std::vector<Named<ChainAttrs>> list;
    for (const Act act : kActivations) {
      if (!is_gate(act)) continue;
      list.push_back({"glu", {gate_program(act)}});
      for (const bool merged : {false, true})
        list.push_back({"glu_backward", {gate_grad_program(act), merged}});
    }
    return list;
  }();
  return all;
}

Form example_of(const ChainAttrs& attrs) {
  Form form{{}, attrs};
  while (form.in.size() < size_t(attrs.program.n_inputs)) form.in.push_back(Tensor::meta({2, 3}));
  return form;
}
// One result of two is no pattern's, but made by code.
template <class A> std::vector<Form> forms_of(StaticName name, const std::vector<Named<A>>& list) {
  std::vector<Form> forms;
  for (const Named<A>& named : list) {
    if (named.name == name && !named.attrs.merged) forms.push_back(example_of(named.attrs));
  }
  return forms;
}

// The plain ops broadcast; these kernels do not.
std::string gate_limit(Operands in, const Attrs&) {
  for (const Tensor& t : in) {
    if (t.rank() != 2 || t.shape() != in[0].shape())
      return str("an operand is ", t.describe(), " beside ", in[0].describe(),
          "; all must be of one shape [B, H]");
  }
  return "";
}

}  // namespace

StaticName label_of_product(const Attrs& attrs) {
  const auto& a = attrs.as<ProductChainAttrs>();
  const auto named = std::ranges::find_if(named_products(), [&](const auto& known) {
    const ProductChainAttrs& k = known.attrs;  // what else there is, is no matter of the name
    return k.product == a.product && k.normed == a.normed && k.merged == a.merged &&
           k.program == a.program;
  });
  return named == named_products().end() ? kProductChainOp.name : named->name;
}
StaticName label_of_chain(const Attrs& attrs) {
  const auto named =
      std::ranges::find(named_chains(), attrs.as<ChainAttrs>(), &Named<ChainAttrs>::attrs);
  return named == named_chains().end() ? kPointwiseChainOp.name : named->name;
}

std::span<const Label> labels() {
  const auto product = [](StaticName name, Formula formula) -> Label {
    return {name, &kProductChainOp, formula, [name] { return forms_of(name, named_products()); },
        kProductChainOp.limit};
  };
  const auto chain = [](StaticName name, Formula formula) -> Label {
    return {name, &kPointwiseChainOp, formula, [name] { return forms_of(name, named_chains()); },
        gate_limit};
  };
  static const Label all[] = {
      product("linear_act", "y = act(x W^T + b), and x W^T + b if it is kept"),
      product("input_grad_act", "dx = (dy W) act'(saved)"),
      product("gated_linear_backward", "dh = dy Wd, du = dh act(g), dg = dh u act'(g)"),
      product("conv_act", "y = act(conv2d(x, W) + b), and its operand if it is kept"),
      product("conv_norm_act", "y = act(batch_norm2d_eval(conv2d(x, W) + b)), as one convolution"),
      chain("glu", "h = act(g) u"),
      chain("glu_backward", "du = dh act(g), dg = dh u act'(g)"),
      {"merge_linear", &kLinearOp, "y = x W^T + b, W and b of several linears below each other"},
  };
  return all;
}
const Label* find_label(std::string_view name) {
  const auto found = std::ranges::find(labels(), name, &Label::text);
  return found == labels().end() ? nullptr : &*found;
}

}  // namespace sinter
