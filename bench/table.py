#!/usr/bin/env python3
"""The promised numbers and what was measured of them: reads the figures that bench/run.sh left in a folder.

  .venv/bin/python bench/table.py bench/out/<time>
"""

import json
import pathlib
import sys

ONE_PASS = {
    "float32": 0.8, "float32 + histogram": 0.35, "float32 rectified + histogram": 0.35,
    "float32 heavy-tailed + histogram": 0.35, "bfloat16": 0.6, "bfloat16 + histogram": 0.3, "float16": 0.6,
    "float16 + histogram": 0.3, "float64": 0.6,
}


def read(folder, name):
    path = folder / name
    return json.loads(path.read_text()) if path.exists() else None


def line(what, measured, bar, met, note=""):
    verdict = "" if met is None else "met" if met else "MISSED"
    print(f"{what:66} {measured:>9} {bar:>9}  {verdict:7}{note}")


def training(folder):
    """{(model, threads): {variant: row}}"""
    tables = {}
    for path in sorted(folder.glob("overhead-*.json")):
        for row in json.loads(path.read_text()):
            tables.setdefault((row["model"], row["threads"]), {})[row["variant"]] = row
    return tables


def show_training(tables):
    for (model, threads), rows in tables.items():
        for variant, row in rows.items():
            if row["bar"]:
                dropped = sum(x["count"] for x in row.get("dropped", []))
                note = f"  noise {rows['bare again']['ratio']:.3f}" if "bare again" in rows else ""
                note += f"  {dropped} DROPPED: does not count" if dropped else ""
                line(f"{model}, {threads} thread(s): {variant}, against bare", f"{row['ratio']:.3f}", f"{row['bar']:.2f}",
                     row["ratio"] <= row["bar"] and not dropped, note)
        for ours, theirs, bar in (("raw", "smdebug_raw", 1 / 3), ("default", "smdebug_parameters", 1 / 50)):
            if ours in rows and theirs in rows:
                share = rows[ours]["added_ms"] / rows[theirs]["added_ms"]
                line(f"{model}, {threads} thread(s): {ours}, of the time that {theirs} adds", f"{share:.3f}", f"{bar:.3f}",
                     share <= bar)
        if "idle" in rows:
            added = rows["idle"]["added_ms"] * 1e3
            again = rows.get("bare again", rows["bare"])
            spread = (again["three_quarters"] - again["quarter"]) / 2 * rows["bare"]["ms"] * 1e3
            line(f"{model}, {threads} thread(s): idle, us added a step", f"{added:.0f}", "20", added <= 20,
                 f"  noise {spread:.0f} us")
        for rival in ("hand_rolled", "wandb", "tensorboard", "trainscope_every_step"):
            if rival in rows and "default" in rows:
                line(f"{model}, {threads} thread(s): {rival}, against bare", f"{rows[rival]['ratio']:.3f}", "above us",
                     rows[rival]["ratio"] > rows["default"]["ratio"])


def main():
    folder = pathlib.Path(sys.argv[1])
    tables = training(folder)
    show_training(tables)
    idle = folder / "idle.txt"
    if idle.exists():
        counts = [int(text.split(": ")[1].split()[0]) for text in idle.read_text().splitlines()]
        line("nothing due: instructions a step, 10 and 10,000 tensors", "/".join(map(str, counts)), "equal",
             len(set(counts)) == 1)
    summary = read(folder, "summary.json") or {"large": []}
    if "processor" in summary:
        print(f"one pass on {summary['processor']}, kernels {summary['kernels']}, best read loop "
              f"{summary['read_gb_per_s']:.1f} GB/s")
    for row in summary["large"]:
        if row["name"] in ONE_PASS:
            bar = ONE_PASS[row["name"]]
            line(f"one pass: {row['name']}, of the best read loop", f"{row['ratio']:.2f}", f"{bar:.2f}", row["ratio"] >= bar)
    for row in read(folder, "mxnet.json") or []:
        what = ", hybridized" if row["hybridized"] else ""
        line(f"mxnet{what}, loss {'read at every step' if row['loss_read'] else 'never read'}, against bare", f"{row['ratio']:.3f}",
             f"{row['bar']:.2f}", row["ratio"] <= row["bar"], f"  noise {row['noise']:.3f}")
    for name, row in (read(folder, "keras_fit.json") or {"ratios": {}})["ratios"].items():
        line(f"keras fit: {name}, CPU against bare", f"{row['cpu']:.3f}", f"{row['bar']:.2f}", row["cpu"] <= row["bar"],
             f"  wall {row['wall']:.3f}")
    for row in read(folder, "xgboost.json") or []:
        share, rounds = row["shap_share"], row["rounds"]
        line(f"xgboost, {rounds} rounds: metrics and importances, against bare", f"{row['importances']:.3f}", "1.15",
             row["importances"] <= 1.15, f"  noise {row['noise']:.3f}")
        if bar := {100: 8, 300: 20}.get(rounds):
            line(f"xgboost, {rounds} rounds: average SHAP, of what full passes add", f"{share:.3f}", f"1/{bar}", share <= 1 / bar)
    if cpp := read(folder, "cpp.json"):
        line("C++ loop, 200 tensors of 64 KiB: a step, times reading them once", f"{cpp['ratio']:.2f}", "2.50",
             cpp["ratio"] <= 2.5 and cpp["complete"], f"  in the caches {cpp['in_caches']:.1f}")
    if handlers := read(folder, "handlers.json"):
        for state, bar in (("cold", 3.0), ("warm", 0.5)):
            slowest = handlers[f"{state}_slowest_s"]
            line(f"finding to handler, {state}, slowest, s", f"{slowest:.2f}", f"{bar}", slowest <= bar)
    if latency := read(folder, "latency.json"):
        line("faulty step to event, median, ms", f"{latency['median_ms']:.1f}", "20", latency["median_ms"] <= 20)
        line("faulty step to event, 99th percentile, ms", f"{latency['p99_ms']:.1f}", "100", latency["p99_ms"] <= 100)
    if rules := read(folder, "rules.json"):
        if ratio := rules["vanishing"].get("ratio"):
            line("replaying VanishingGradient, times smdebug's speed (scaled)", f"{ratio:.0f}", "1000", ratio >= 1000)
        ratio, share = rules["check"]["ratio"], rules["watcher"]["share_of_a_core"]
        line("checking every summary rule, times reading the summaries", f"{ratio:.2f}", "3", ratio <= 3)
        line("watching 300 tensors at 100 steps/s, of a core", f"{share:.3f}", "0.10", share <= 0.1)
    if workers := read(folder, "workers.json"):
        rate = workers["workers"]["steps_per_second"]
        line("64 workers of 300 tensors, one process: steps judged a second", f"{rate:.0f}", "10", rate >= 10)
    for name, share in ((read(folder, "waiting.json") or {}).get("idle") or {"shares": {}})["shares"].items():
        line(f"{name} beside a training that waits, of a core", f"{share:.4f}", "0.001", share <= 0.001)
    storage = read(folder, "storage.json") or {}
    if sent := storage.get("upload"):
        line("sending to a bucket, of boto3's transfer manager's bytes a second", f"{sent['ratio']:.2f}", "0.8", sent["ratio"] >= 0.8)
    if opened := storage.get("open", {}).get("cold"):
        line("opening a million entries in a bucket, 50 ms away, s", f"{opened['open_seconds']:.2f}", "2", opened["open_seconds"] <= 2)
        line("and one series of one tensor, s", f"{opened['series_seconds']:.2f}", "1", opened["series_seconds"] <= 1)
    if seen := storage.get("visible"):
        line("until a reader of the bucket sees a step, 50 ms away, s", f"{seen['median_seconds']:.2f}", "2.5", seen["median_seconds"] <= 2.5,
             f"  95 % within {seen['p95_seconds']:.2f}")
    if beside := storage.get("training"):
        line("training beside an upload, 50 ms and 2 % errors, against local", f"{beside['ratio']:.3f}", "1.02", beside["ratio"] <= 1.02,
             f"  {beside['least']:.3f} to {beside['most']:.3f}")
    if beside := storage.get("checkpoints"):
        line("training whose checkpoints are sent, against one whose are not", f"{beside['ratio']:.3f}", "1.02", beside["ratio"] <= 1.02,
             f"  {beside['least']:.3f} to {beside['most']:.3f}")
    service = read(folder, "service.json") or {}
    if asked := service.get("size"):
        for name, text, bar in (("describe", "describe one", 10), ("list", "list(100)", 50), ("list_processing", "list(100) of their rules", 50),
                                ("streams", "describe a job's log streams", 50)):
            line(f"{asked['jobs']:,} jobs: {text}, p99, ms", f"{asked[name]['p99_ms']:.1f}", f"{bar}", asked[name]["p99_ms"] <= bar)
        for name, jobs in (("idle_100", 100), ("idle_all", asked["jobs"])):
            line(f"tdbg serve without requests, {jobs:,} finished jobs, of a core", f"{asked[name]:.5f}", "0.001", asked[name] <= 0.001)
    if stopped := service.get("stop"):
        line("from a finding to a handler's accepted StopTrainingJob, s", f"{stopped['slowest_s']:.2f}", "3.5", stopped["slowest_s"] <= 3.5)
    if fitted := service.get("fit"):
        line(f"create to Completed of a 7-second job, {fitted['client']}, s", f"{fitted['slowest_s']:.1f}", "15", fitted["slowest_s"] <= 15)
    for text, share, bar in (read(folder, "reading.json") or {"rows": []})["rows"]:
        if bar is not None:
            line(f"reading: {text}, of smdebug's time", f"1/{1 / share:.0f}", f"1/{1 / bar:.0f}", share <= bar)
    for text, size, bar in (read(folder, "reading.json") or {"bytes": []})["bytes"]:
        line(f"reading: {text}, bytes an entry", f"{size:.0f}", f"{bar}", size <= bar)
    if export := read(folder, "export_histograms.json"):
        ratio = export["wall"]["ratio"]
        line("histograms to TensorBoard files, times SummaryWriter", f"{ratio:.0f}", "10", ratio >= 10)
    peaks = [r["peak_mib_added"] for rows in tables.values() for v, r in rows.items() if v in ("default", "outputs", "raw")]
    if peaks:
        line("extra peak memory, MiB (journal 256 + 32)", f"{max(peaks):.0f}", "288", max(peaks) <= 288)


if __name__ == "__main__":
    main()
