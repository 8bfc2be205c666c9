// Lets one call of one library function fail in warplink, and only there: its children keep what they have.
//
// FAULT_CALL   name of the function below
// FAULT_NTH    which of its calls fails, from 1
// FAULT_ERRNO  the error number
// FAULT_HIT    file to which the call that failed is written
// FAULT_AGAIN  if set, what failed fails for ever: that call for that file
//
// clang -shared -fPIC faults.c -o faults.so; LD_PRELOAD=faults.so clang-linker-wrapper ...
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int wanted = -1; // of this process: 0 no, 1 yes
static const char *call;
static long nth;
static int error;
static long seen;
static char again[4096]; // the file for which it fails for ever
static volatile int is_again;

// Whether this call of the function is the one to fail; errno is set then.
static int fails(const char *name, const char *about) {
  if (wanted < 0) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    const char *base = strrchr(path, '/');
    call = getenv("FAULT_CALL");
    nth = getenv("FAULT_NTH") ? atol(getenv("FAULT_NTH")) : 0;
    error = getenv("FAULT_ERRNO") ? atoi(getenv("FAULT_ERRNO")) : EIO;
    wanted = base && !strcmp(base, "/warplink") && call && nth > 0;
  }
  if (wanted && is_again && about && !strcmp(name, call) && !strcmp(about, again)) {
    errno = error;
    return 1;
  }
  if (!wanted || strcmp(name, call) || __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) != nth)
    return 0;
  const char *hit = getenv("FAULT_HIT");
  int file = hit ? (int)syscall(SYS_open, hit, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
  if (file >= 0) {
    syscall(SYS_write, file, name, strlen(name));
    if (about) {
      syscall(SYS_write, file, " ", 1);
      syscall(SYS_write, file, about, strlen(about));
    }
    close(file);
  }
  if (getenv("FAULT_AGAIN") && about && strlen(about) < sizeof again) {
    strcpy(again, about);
    is_again = 1;
  }
  errno = error;
  return 1;
}

#define REAL(type, name) ((type)dlsym(RTLD_NEXT, name))

static mode_t mode_of(int flags, va_list list) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; }

int open64(const char *path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = mode_of(flags, list);
  va_end(list);
  if (fails("open", path))
    return -1;
  return REAL(int (*)(const char *, int, ...), "open64")(path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = mode_of(flags, list);
  va_end(list);
  if (fails("open", path))
    return -1;
  return REAL(int (*)(const char *, int, ...), "open")(path, flags, mode);
}

// The path of an open file.
static const char *path_of(int file) {
  static __thread char path[4096];
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  return path;
}

ssize_t read(int file, void *bytes, size_t size) {
  return fails("read", wanted ? path_of(file) : NULL) ? -1 : REAL(ssize_t (*)(int, void *, size_t), "read")(file, bytes, size);
}

ssize_t write(int file, const void *bytes, size_t size) {
  return file > 2 && fails("write", wanted ? path_of(file) : NULL) ? -1 : REAL(ssize_t (*)(int, const void *, size_t), "write")(file, bytes, size);
}

void *mmap64(void *place, size_t size, int protection, int flags, int file, off64_t at) {
  // Only maps of files: memory that cannot be had ends every Rust program.
  if (file >= 0 && fails("mmap", NULL))
    return MAP_FAILED;
  return REAL(void *(*)(void *, size_t, int, int, int, off64_t), "mmap64")(place, size, protection, flags, file, at);
}

int mkdir(const char *path, mode_t mode) { return fails("mkdir", path) ? -1 : REAL(int (*)(const char *, mode_t), "mkdir")(path, mode); }

DIR *opendir(const char *path) { return fails("opendir", path) ? NULL : REAL(DIR *(*)(const char *), "opendir")(path); }

int rename(const char *from, const char *to) {
  return fails("rename", to) ? -1 : REAL(int (*)(const char *, const char *), "rename")(from, to);
}

int unlink(const char *path) { return fails("unlink", path) ? -1 : REAL(int (*)(const char *), "unlink")(path); }

int pipe2(int files[2], int flags) { return fails("pipe", NULL) ? -1 : REAL(int (*)(int[2], int), "pipe2")(files, flags); }

int posix_spawnp(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                 char *const arguments[], char *const environment[]) {
  typedef int (*Spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);
  return fails("spawn", program) ? error : REAL(Spawn, "posix_spawnp")(child, program, actions, attributes, arguments, environment);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  typedef int (*Create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  return fails("thread", NULL) ? error : REAL(Create, "pthread_create")(thread, attributes, start, argument);
}

int statx(int directory, const char *path, int flags, unsigned mask, struct statx *result) {
  typedef int (*Statx)(int, const char *, int, unsigned, struct statx *);
  return fails("stat", path) ? -1 : REAL(Statx, "statx")(directory, path, flags, mask, result);
}
