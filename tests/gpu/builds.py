"""Builds of all programs in parallel, in the order in which they are asked for. A runtime source that does not compile
costs only the programs that need it."""
import concurrent.futures
import heapq
import os
import threading
import time

BUILD_SECONDS = 300 # limit of one compiler run


class Jobs:
    """Jobs with dependencies. A job may start when all that it depends on have ended; the least rank starts first."""

    def __init__(self, workers):
        self.ready, self.number, self.stopped = [], 0, False
        self.changed = threading.Condition()
        for _ in range(workers):
            threading.Thread(target=self.work, daemon=True).start()

    def add(self, rank, action, after=()):
        """Returns a Future of action(); it starts when all Futures in `after` have ended, whether well or not."""
        promise, left = concurrent.futures.Future(), [len(after)]

        def ended(_=None):
            with self.changed:
                left[0] -= 1
                if left[0] <= 0:
                    self.number += 1
                    heapq.heappush(self.ready, (rank, self.number, action, promise))
                    self.changed.notify()
        if not after:
            ended()
        for future in after:
            future.add_done_callback(ended)
        return promise

    def work(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.ready or self.stopped)
                if self.stopped:
                    return
                _, _, action, promise = heapq.heappop(self.ready)
            try:
                promise.set_result(action())
            except BaseException as cause:
                promise.set_exception(cause)

    def stop(self):
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class Builds:
    """tools: a Toolchain. root: the folder that `prepare` wrote."""

    def __init__(self, root, tools, report, workers):
        self.root, self.tools, self.report = root, tools, report
        self.jobs = Jobs(workers)
        self.programs = {}  # by name: a Future
        self.reported = {}  # by name: whether it was built
        self.lacking = {}   # by name: why this machine cannot have it
        self.objects = {}   # by runtime source: a Future
        self.archive = None # a Future

    def folder(self, name):
        return os.path.join(self.root, "programs", name)

    def start_runtime(self):
        for source in self.tools.runtime_sources():
            self.objects[source] = self.jobs.add(0, lambda source=source: self.tools.compile_runtime(source, BUILD_SECONDS))
        self.archive = self.jobs.add(0, self.archive_objects, list(self.objects.values()))

    def archive_objects(self):
        good = [source for source, future in self.objects.items() if not future.exception()]
        for source, future in self.objects.items():
            if future.exception():
                self.report.add("builds", os.path.relpath(source, self.root), "failed", 0, str(future.exception()))
        self.tools.archive(good, BUILD_SECONDS)

    def possible(self, name, needs, gpus=1):
        """Notes why this machine cannot have a program, if so."""
        lacks = sorted(set(needs) & self.tools.lacks)
        if gpus > self.tools.gpus:
            self.lacking[name] = f"needs {gpus} GPUs, and this machine has {self.tools.gpus}"
        elif lacks:
            self.lacking[name] = f"needs {' and '.join(lacks)}, which this machine lacks"
        return name not in self.lacking

    def rank(self):
        """Programs are built in the order in which they are started; the first beside the runtime."""
        return len(self.programs)

    def start(self, name, sources, needs=(), gpus=1):
        """A program's stages: each source becomes a program beside it."""
        if name in self.programs or not self.possible(name, needs, gpus):
            return
        paths = [os.path.join(self.folder(name), source) for source in sources]
        rank = self.rank()
        compiled = [self.jobs.add(rank, lambda path=path: self.tools.compile_stage(path, BUILD_SECONDS)) for path in paths]

        def link():
            for future in compiled:
                future.result()
            for path in paths:
                self.tools.link([path + ".o"], path[:-len(".cu")], BUILD_SECONDS)
        self.programs[name] = self.jobs.add(rank, link, [*compiled, self.archive])

    def start_test(self, test):
        """A test of kernels: its sources become the program "test" in its folder, with some of the runtime's objects."""
        name = test["name"]
        if name in self.programs or not self.possible(name, test["needs"]):
            return
        folder = self.folder(name)
        os.makedirs(folder, exist_ok=True)
        runtime = [os.path.join(self.root, "runtime", source) for source in test["runtime"]]

        def build():
            objects = []
            for source in test["sources"]:
                objects.append(os.path.join(folder, os.path.basename(source) + ".o"))
                self.tools.compile_test(os.path.join(self.root, source), objects[-1], BUILD_SECONDS)
            for source in runtime:
                self.objects[source].result()
            self.tools.link(objects, os.path.join(folder, "test"), BUILD_SECONDS, runtime)
        self.programs[name] = self.jobs.add(self.rank(), build, [self.objects[source] for source in runtime])

    def pending(self):
        return [future for future in self.programs.values() if not future.done()]

    def done(self, name):
        """Whether a program's build has ended, or cannot be."""
        return name in self.lacking or self.programs[name].done()

    def good(self, name):
        """Of a program whose build has ended: whether it succeeded. Reports that once."""
        if name not in self.reported:
            if name in self.lacking:
                self.report.add("builds", name, "missing", 0, self.lacking[name])
            else:
                cause = self.programs[name].exception()
                self.report.add("builds", name, "failed" if cause else "ok", 0, str(cause or ""))
            self.reported[name] = name not in self.lacking and not self.programs[name].exception()
        return self.reported[name]

    def finish(self):
        """Waits for all builds and reports each."""
        for name in [*self.lacking, *self.programs]:
            while not self.done(name) and self.report.left() > 0:
                time.sleep(0.05)
            if self.done(name):
                self.good(name)
            else:
                self.report.add("builds", name, "not done", 0, "no time is left")
