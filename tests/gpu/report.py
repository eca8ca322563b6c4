"""The result file of a run: written again after every result, so that a run that is cut short keeps what it found."""
import json
import os
import threading
import time

from toolchain import Failed, Late, Missing, NoMemory

# not done: no time was left; missing: this machine lacks a tool, library or GPU; no memory: the GPU has too little.
STATES = ("ok", "failed", "not done", "missing", "no memory")
# Counters of the log's last line (docs/reference/log.md, "End"): work that ran slower than it was compiled for.
COUNTS = ("own_products", "plain_products", "other_algorithms", "separate_gelus", "separate_sums",
          "refused_algorithms", "column_convolutions", "own_attentions", "late_kernels")


class Report:
    """Thread-safe. `seconds` bounds the whole run."""

    def __init__(self, path, seconds):
        self.path, self.started, self.seconds = path, time.monotonic(), seconds
        self.lock = threading.RLock()
        self.content = {"machine": {}, "builds": [], "checks": [], "measurements": [], "counts": {}, "seconds": 0,
                        "ok": True}

    def elapsed(self):
        return time.monotonic() - self.started

    def left(self):
        return self.seconds - self.elapsed()

    def write(self):
        with self.lock:
            self.content["seconds"] = round(self.elapsed(), 1)
            with open(self.path + ".new", "w") as file:
                json.dump(self.content, file, indent=1)
            os.replace(self.path + ".new", self.path)

    def add(self, kind, name, state, seconds, message="", **more):
        """kind: builds, checks or measurements. state: one of STATES. Builds are printed only when they fail."""
        with self.lock:
            entry = {"name": name, "state": state, "seconds": round(seconds, 2), "at": round(self.elapsed(), 1),
                     "message": message, **more}
            self.content[kind].append(entry)
            if state == "failed":
                self.content["ok"] = False
            try:
                self.write()
            except OSError as cause: # a full disk costs the file, not the run
                print(f"cannot write {self.path}: {cause.strerror}", flush=True)
            if state != "ok" or kind != "builds":
                last = message.strip().splitlines()[-1:] or [""]
                print(f"{self.content['seconds']:6.1f} s  {state:9} {name:34} {last[0][:150]}", flush=True)

    def count(self, program, last):
        """Keeps the counters of a log's last line; returns those that are not 0, in words."""
        counts = {name: sum(last[name]) for name in COUNTS}
        with self.lock:
            self.content["counts"][program] = counts
        return ", ".join(f"{name} {n}" for name, n in counts.items() if n)

    def attempt(self, kind, name, action, most):
        """Runs action(seconds), which returns what to keep, "message" among it. True if it succeeded."""
        start, seconds = time.monotonic(), min(most, self.left())
        if seconds < 2:
            self.add(kind, name, "not done", 0, "no time is left")
            return False
        try:
            more = action(seconds) or {}
        except (Failed, Missing, NoMemory) as cause:
            state = {Missing: "missing", NoMemory: "no memory"}.get(type(cause), "failed")
            if isinstance(cause, Late) and seconds < most:
                state = "not done" # the whole run's time was up, not this action's
            self.add(kind, name, state, time.monotonic() - start, str(cause))
            return False
        except Exception as cause: # a mistake in one action must not cost the others
            self.add(kind, name, "failed", time.monotonic() - start, f"{type(cause).__name__}: {cause}")
            return False
        self.add(kind, name, "ok", time.monotonic() - start, **more)
        return True

    def summary(self):
        """Prints the counters and how many results have which state; the exit status."""
        content = self.content
        for name in COUNTS:
            met = {program: counts[name] for program, counts in content["counts"].items() if counts[name]}
            print(f"{name}: {', '.join(f'{n} in {program}' for program, n in sorted(met.items())) or 'none'}")
        results = [x for kind in ("builds", "checks", "measurements") for x in content[kind]]
        print(", ".join(f"{sum(x['state'] == state for x in results)} {state}" for state in STATES))
        print(f"{self.path}: {'good' if content['ok'] else 'not good'} after {self.elapsed():.0f} s")
        return 0 if content["ok"] else 1
