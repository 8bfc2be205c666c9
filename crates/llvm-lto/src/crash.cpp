// What happens when LLVM (or anything else in this process) crashes: a command prepared beforehand is run in a fresh process, a message
// prepared beforehand is written, temporary files are removed, and the process ends by the signal as it would have. Only what is safe in a
// signal handler is used, on a stack of its own: recursion that is too deep is a common way for a compiler to crash.
//
// One signal is no crash: SIGBUS on a mapped input means that somebody has cut the file off while it was being read.

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {
const char *const *command;
const char *if_done, *if_failed, *if_cut_off;
// What the thread works on, to be said in its message.
thread_local const char *job;
// The directory to remove, once there is one.
char temporaries[PATH_MAX];
std::atomic<bool> has_temporaries;

// The maps of input files; those beyond the last slot have no name in messages.
struct Map {
  std::atomic<const char *> begin;
  size_t length;
  const char *path;
};
Map maps[1024];
volatile sig_atomic_t crashed;
const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

void write_all(const char *text, size_t left) {
  while (left > 0) {
    ssize_t written = write(2, text, left);
    if (written < 0 && errno != EINTR)
      return;
    if (written > 0) {
      text += written;
      left -= size_t(written);
    }
  }
}

// The text with what it is about in place of its first `{job}`.
void say(const char *text, const char *about) {
  const char *place = std::strstr(text, "{job}");
  if (place) {
    write_all(text, size_t(place - text));
    if (about) {
      write_all(about, std::strlen(about));
      write_all(": ", 2);
    }
    text = place + std::strlen("{job}");
  }
  write_all(text, std::strlen(text));
}

// As `rm -r`, without the allocations of opendir().
void remove_tree(int parent, const char *name, int depth) {
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0)
    return;
  alignas(dirent64) char buffer[2048];
  for (;;) {
    long size = syscall(SYS_getdents64, directory, buffer, sizeof buffer);
    if (size <= 0)
      break;
    for (long at = 0; at < size;) {
      auto *entry = reinterpret_cast<dirent64 *>(buffer + at);
      at += entry->d_reclen;
      if (!std::strcmp(entry->d_name, ".") || !std::strcmp(entry->d_name, ".."))
        continue;
      if (unlinkat(directory, entry->d_name, 0) != 0 && depth > 0)
        remove_tree(directory, entry->d_name, depth - 1);
    }
  }
  close(directory);
  unlinkat(parent, name, AT_REMOVEDIR);
}

// The input file that an address belongs to.
const char *file_at(const void *address) {
  for (const Map &map : maps) {
    const char *begin = map.begin.load();
    if (begin && address >= begin && address < begin + map.length)
      return map.path;
  }
  return nullptr;
}

// Whether the command ran and ended well.
bool run() {
  if (!command[0])
    return false;
  // Not fork(): that takes locks which the crashed thread may hold.
  long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child < 0)
    return false;
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int signal : signals)
      std::signal(signal, SIG_DFL);
    // What it has to say concerns nobody: only whether it works.
    close(1);
    close(2);
    execv(command[0], const_cast<char *const *>(command));
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid_t(child), &status, 0) < 0)
    if (errno != EINTR)
      return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void handler(int signal, siginfo_t *info, void *) {
  // Another thread is at it already; the process is about to end.
  if (crashed)
    for (;;)
      pause();
  crashed = 1;
  const char *cut_off = signal == SIGBUS && info ? file_at(info->si_addr) : nullptr;
  if (cut_off)
    say(if_cut_off, cut_off);
  else
    say(run() ? if_done : if_failed, job);
  if (has_temporaries.load())
    remove_tree(AT_FDCWD, temporaries, 4);
  if (cut_off)
    _exit(1);
  std::signal(signal, SIG_DFL);
  raise(signal);
}
} // namespace

// The strings and the array must live as long as the process; the array ends with a null pointer.
extern "C" void warplink_on_crash(const char *const *words, const char *done, const char *failed, const char *cut_off) {
  command = words;
  if_done = done;
  if_failed = failed;
  if_cut_off = cut_off;
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (int signal : signals)
    sigaction(signal, &action, nullptr);
}

// Whether this process was started with the signal ignored, as by nohup.
extern "C" int warplink_is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// What this thread works on from now on, or null; it must live until the next call. Returns what it worked on before.
extern "C" const char *warplink_crash_job(const char *name) {
  const char *before = job;
  job = name;
  return before;
}

// The directory that a crash removes, with an absolute path. A longer one than any that the system takes is not.
extern "C" void warplink_crash_removes(const char *path) {
  size_t length = std::strlen(path);
  if (length >= sizeof temporaries)
    return;
  has_temporaries = false;
  std::memcpy(temporaries, path, length + 1);
  has_temporaries = true;
}

// Notes a map of an input; the path must live until it is forgotten. Returns its slot, or -1 if all are taken.
extern "C" int warplink_crash_map(const char *begin, size_t length, const char *path) {
  static std::atomic<int> next;
  int slot = next.fetch_add(1);
  if (slot < 0 || slot >= int(sizeof maps / sizeof *maps))
    return -1;
  maps[slot].length = length;
  maps[slot].path = path;
  maps[slot].begin = begin;
  return slot;
}

// The map is about to end.
extern "C" void warplink_crash_unmap(int slot) {
  if (slot >= 0)
    maps[slot].begin = nullptr;
}
