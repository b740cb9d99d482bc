"""What the scripts beside this say of inference: the fields of mnist predict --bench --json."""
import statistics


def row_of(run, seconds):
    """`run` says what was run, its batch among it; `seconds` how long each call took."""
    us = [1e6 * s for s in seconds]
    percent = statistics.quantiles(us, n=100, method="inclusive")  # from 1 to 99
    mean = statistics.mean(us)
    return {**run, "calls": len(us), "p50_us": percent[49], "p90_us": percent[89],
            "p99_us": percent[98], "mean_us": mean, "images_per_s": 1e6 * run["batch"] / mean}


def line_of(row):
    return (f"{row['peer']} mlp {row['device']} {row['dtype']} {row['mode']:15s} "
            f"B={row['batch']:5d} p50 {row['p50_us']:9.1f} us  p90 {row['p90_us']:9.1f} us  "
            f"p99 {row['p99_us']:9.1f} us  {row['images_per_s']:11.0f} images/s")
