// What happens when LLVM (or anything else in this process) crashes: a command prepared beforehand is run in a fresh process, a message
// prepared beforehand is written, and the process ends by the signal as it would have. Only what is safe in a signal handler is used, on a
// stack of its own: recursion that is too deep is a common way for a compiler to crash.

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {
const char *const *command;
const char *if_done, *if_failed;
volatile sig_atomic_t crashed;
const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

void say(const char *text) {
  size_t left = std::strlen(text);
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

void handler(int signal) {
  // Another thread is at it already; the process is about to end.
  if (crashed)
    for (;;)
      pause();
  crashed = 1;
  say(run() ? if_done : if_failed);
  std::signal(signal, SIG_DFL);
  raise(signal);
}
} // namespace

// The strings and the array must live as long as the process; the array ends with a null pointer.
extern "C" void warplink_on_crash(const char *const *words, const char *done, const char *failed) {
  command = words;
  if_done = done;
  if_failed = failed;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (int signal : signals)
    sigaction(signal, &action, nullptr);
}
