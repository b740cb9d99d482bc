"""Reads the Chrome traces of all ranks by HolisticTraceAnalysis and prints what it makes of the
first, and of all in comparison, as JSON; times are us. Exit status 77: it is not installed.

usage: read_trace.py TRACE.json[.gz]...
"""
import json
import logging
import sys

try:
    from hta.trace_analysis import TraceAnalysis
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
logging.disable(logging.CRITICAL)

analysis = TraceAnalysis(trace_files=dict(enumerate(sys.argv[1:])),
                         include_last_profiler_step=True)
events = analysis.t.get_trace(0)
symbols = analysis.t.symbol_table.get_sym_table()
category = events["cat"].map(lambda i: symbols[i])
ops = events[category == "cpu_op"]["name"].map(lambda i: symbols[i])
out = {"ops": ops.value_counts().to_dict()}
if (category == "kernel").any():  # the breakdowns need kernels
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True,
                                                   num_kernels=1000)
    temporal = analysis.get_temporal_breakdown(visualize=False)
    idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    out["kernels"] = {row["name"]: int(row["sum (us)"]) for _, row in kernels.iterrows()}
    out["temporal"] = {k: int(temporal[k][0]) for k in temporal.columns if k.endswith("(us)")}
    out["idle"] = {row["idle_category"]: int(row["idle_time"]) for _, row in idle.iterrows()}
    out["launches"] = {"count": len(launches), "cpu_duration": int(launches["cpu_duration"].sum()),
                       "gpu_duration": int(launches["gpu_duration"].sum())}
    if len(sys.argv) > 2:
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        out["overlap"] = {str(int(row["rank"])): float(row["comp_comm_overlap_pctg"])
                          for _, row in overlap.iterrows()}
print(json.dumps(out))
