/* Stands in for the object that registers a device image: before main it prints each entry that it sees. PREFIX names it. */
#include <stdio.h>
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)
#ifndef PREFIX
#define PREFIX x
#endif

struct entry {
  unsigned long long reserved;
  unsigned short version, kind;
  unsigned flags;
  void *address;
  const char *name;
  unsigned long long size, data;
  void *aux;
};

extern const struct entry __start_llvm_offload_entries[] __attribute__((visibility("hidden")));
extern const struct entry __stop_llvm_offload_entries[] __attribute__((visibility("hidden")));
/* No empty section of its own to make the linker define the two: mold 1.10 keeps sections of different flags apart, and the entries of
   position-dependent objects are not writable. */
__attribute__((section(".nvFatBinSegment"), used)) static const void *segment[3];

__attribute__((constructor)) static void print_entries(void) {
  for (const struct entry *e = __start_llvm_offload_entries; e != __stop_llvm_offload_entries; ++e)
    printf("%s: %s kind=%d flags=%u size=%llu address=%s\n", TEXT(PREFIX), e->name, e->kind, e->flags, e->size, e->address ? "set" : "null");
}
