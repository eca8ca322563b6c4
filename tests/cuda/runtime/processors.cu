/* processors PLACE: the processors of a rank, from a folder instead of /sys. The first two usable processors
 * represent a machine's; one of them is near device 2. */
#include "test.h"

#include "cuda/processors.h"

#include <sched.h>
#include <string>
#include <sys/stat.h>
#include <thread>

static void write(const std::string &path, const std::string &text) {
  for (size_t i = path.find('/', 1); i != std::string::npos; i = path.find('/', i + 1))
    mkdir(path.substr(0, i).c_str(), 0777);
  FILE *f = fopen(path.c_str(), "w");
  if (!f || fputs(text.c_str(), f) < 0 || fclose(f)) pd_fail("cannot write '%s'", path.c_str());
}

static cpu_set_t set_of(std::initializer_list<int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i : processors) CPU_SET(i, &set);
  return set;
}

static bool runs_on(std::initializer_list<int> processors) {
  cpu_set_t now, want = set_of(processors);
  return !sched_getaffinity(0, sizeof now, &now) && CPU_EQUAL(&now, &want);
}

/* The two processors, or false: there are fewer. */
static bool find_two(int two[2]) {
  cpu_set_t all;
  int n = 0;
  CHECK(!sched_getaffinity(0, sizeof all, &all));
  for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
    if (CPU_ISSET(i, &all)) two[n++] = i;
  return n == 2;
}

int main(int argc, char **argv) {
  static struct pd_stage stage = {};
  pd.stage = &stage;
  int two[2];
  CHECK(argc == 3);
  const std::string what = argv[1], root = std::string(argv[2]) + "/" + what;
  if (!find_two(two)) return 77; /* left out */
  const std::string a = std::to_string(two[0]), b = std::to_string(two[1]);
  const std::string beside = root + "/bus/pci/devices/0000:03:00.0/local_cpulist";
  setenv("CUDA_HOST_SYSFS", root.c_str(), 1);
  cpu_set_t start = what == "launched" ? set_of({two[1]}) : set_of({two[0], two[1]});
  CHECK(!sched_setaffinity(0, sizeof start, &start));
  if (what != "unlisted") write(root + "/devices/system/cpu/online", a + "," + b + "\n");
  write(beside, what == "whole" ? a + "," + b + "\n" : what == "elsewhere" ? "1022-1023\n" : a + "\n");
  pd_processors_bind(2);
  const pd_binding *binding = pd_device_binding();
  if (what == "bound") {
    bool inherited = false;
    std::thread([&] { inherited = runs_on({two[0]}); }).join();
    CHECK(runs_on({two[0]}) && inherited);
    CHECK(binding && binding->processors == a && !strcmp(binding->by, "pd"));
    CHECK(pd_processors_given() == 2 && pd_processors() == 1);
  } else if (what == "launched") {
    CHECK(runs_on({two[1]}));
    CHECK(binding && binding->processors == b && !strcmp(binding->by, "launcher"));
  } else { /* there is nothing to bind to */
    CHECK(runs_on({two[0], two[1]}) && !binding);
    CHECK(pd_processors() == 2);
  }
  return 0;
}
